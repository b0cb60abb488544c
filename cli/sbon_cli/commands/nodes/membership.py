"""``sbon join``, ``sbon leave`` and ``sbon drain``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
from rich.markup import escape

from sbon import SbonError
from sbon.model import DrainStep, MemberInfo, NodeDrained
from sbon_cli.client import Client
from sbon_cli.options.names import NODE
from sbon_cli.terminal.output import EXIT_REFUSED, asks_node, bytes_text, counted, err, print_json, reports_errors


@click.command()
@click.argument("addresses", nargs=-1, required=True, metavar="HOST:PORT...")
@click.pass_obj
@reports_errors
def join(api: str, addresses: tuple[str, ...]) -> None:
    """Joins the cluster of the nodes at these addresses; any live one will do."""
    count = Client(api).join(*addresses)
    click.echo(f"joined; {counted(count, 'member')} known")


@click.command()
@click.confirmation_option(prompt="The node leaves for good and stops. Continue?")
@click.option("--force", is_flag=True, help="Leave even if queries need the node: they are stopped, or fail.")
@click.pass_obj
@reports_errors
def leave(api: str, force: bool) -> None:
    """Makes the node leave for good: the others forget it, and it stops. Refused while queries need it. To stop it for a while,
    send it SIGTERM."""
    Client(api).leave(force=force)
    click.echo("left")


@click.command()
@click.argument("name", required=False, type=NODE, metavar="[NODE]")
@click.option("--dry-run", is_flag=True, help="Only name the nodes to which its operators would move.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks_node
def drain(api: str, name: str | None, dry_run: bool, yes: bool, json_: bool) -> None:
    """Moves a node's operators to other nodes, while their queries run, and makes it leave for good.

    NODE is by default the node asked. From now on, it accepts no operators, sources, sinks and queries; a restart does not undo
    it. Sources and sinks cannot move, nor can operators for which no other node has capacity: then the node stays, drained, with
    a line for each. Remove these, and drain it again.
    """
    member = _member(api, name)
    if not dry_run and not yes:
        click.confirm("The node takes no part in queries any more, and leaves for good. Continue?", abort=True)
    shown: dict[str, tuple[str, str, str]] = {}
    for event in _events(api, member, dry_run):
        if json_:
            print_json(event)
        elif isinstance(event, DrainStep):
            new = (event.step, event.target, event.reason)
            if event.step != "stays" and shown.get(event.operator) != new:  # the end lists those that stay
                shown[event.operator] = new
                err().print(f"[dim]{escape(drain_text(event))}[/]")
        else:
            show_end(event, dry_run)
        if isinstance(event, NodeDrained) and not event.has_left and event.stays:
            sys.exit(EXIT_REFUSED)


def _member(api: str, name: str | None) -> MemberInfo | None:
    """Return the member of that name, None for the node asked; raise ``unknown-node``."""
    if name is None or Client(api).status().name == name:
        return None
    members = {member.name: member for member in Client(api).members()}
    if name not in members:
        from sbon_node.overlay.membership.views import unknown_node

        raise unknown_node(name, members)
    return members[name]


def _events(api: str, member: MemberInfo | None, dry_run: bool) -> Iterator[DrainStep | NodeDrained]:
    """Drain the member at its API as the cluster knows it, or the node asked; raise an error that names a silent node."""
    if member is None:
        yield from Client(api).drain(dry_run=dry_run)
        return
    try:
        yield from Client(f"http://{member.api}").drain(dry_run=dry_run)
    except SbonError as error:
        if error.code != "node-unreachable":
            raise
        message = f"{member.name}, which is {member.state}, does not answer: {error.message}"
        hint = "start it and drain it again; if it runs, name an address of its API that can be reached from here with --node URL"
        raise SbonError(error.code, message, where=member.name, hint=hint) from error


def drain_text(step: DrainStep) -> str:
    """Return ``large.b0 to paris: copying 1.0 kB`` or ``large.b0: waiting: no answer from paris``."""
    operator = f"{step.query}.{step.operator.rpartition('.')[2]}"
    to = f" to {step.target}" if step.target else ""
    size = f" {bytes_text(step.progress.total_bytes)}" if step.step == "copying" and step.progress.total_bytes else ""
    reason = f": {step.reason}" if step.reason else ""
    return f"{operator}{to}: {step.step}{size}{reason}"


def show_end(end: NodeDrained, dry_run: bool) -> None:
    """Print the end of a drain: what has moved, what stays, and what to do."""
    moved = f"{counted(len(end.moved), 'operator')} moved away"
    if end.has_left:
        click.echo(f"{end.node} has left; {moved}")
        return
    for line in end.stays:
        click.echo(f"{end.node} {line}")
    if dry_run:
        click.echo("nothing else would stay" if end.stays else f"{end.node} would leave")
    else:
        click.echo(f"{end.node} stays, drained; {moved}; remove what is listed, and drain it again")

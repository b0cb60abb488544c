"""The cluster: ``sbon members``, ``status`` and ``rtt`` show it, ``sbon join``, ``leave`` and ``drain`` change it."""

import sys
from collections.abc import Iterator, Sequence

import click
import msgspec
from rich.markup import escape

from sbon import SbonError
from sbon.model import DrainStep, MemberInfo, NodeCapacity, NodeDrained, NodeStatus, PairInfo, RttRequest
from sbon_cli.client import Client
from sbon_cli.options.names import NODE
from sbon_cli.options.types import Choice, milliseconds_of
from sbon_cli.terminal.exit_codes import EXIT_REFUSED
from sbon_cli.terminal.output import asks_node, bytes_text, cell_text, counted, err, print_json, print_table, reports_errors, tell

STATES = ("alive", "suspect", "away", "dead", "left")


@click.command()
@click.option("--near", default="", type=NODE, help="Sort by round-trip time from that node.")
@click.option(
    "--within",
    callback=lambda context, parameter, value: None if value is None else milliseconds_of(value, "--within"),
    metavar="DURATION",
    help="Only nodes within this round-trip time of --near, by default of the node asked: 30ms, 0.5s.",
)
@click.option("--state", "states", multiple=True, type=Choice(STATES), help="Only nodes in this state; may be repeated.")
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Only nodes with this tag; may be repeated.")
@asks_node
def members(api: str, near: str, within: float | None, states: tuple[str, ...], tags: tuple[str, ...], json_: bool) -> None:
    """Lists the nodes of the cluster as the node asked sees them; or those near one of them, the nearest first.

    Times are measured where the node asked has measured them lately, and else estimated from the coordinates.
    """
    wanted = _wanted(tags)
    answer = Client(api).members(near, within)
    shown = [m for m in answer if (not states or m.state in states) and wanted.items() <= m.tags.items()]
    tell(shown, json_, lambda listed: show_members(listed, near, within))


def _wanted(tags: tuple[str, ...]) -> dict[str, str]:
    wanted = {}
    for tag in tags:
        key, separator, value = tag.partition("=")
        if not separator:
            raise click.UsageError(f"--tag: {tag!r} is not KEY=VALUE")
        wanted[key] = value
    return wanted


def show_members(shown: Sequence[MemberInfo], near: str = "", within: float | None = None) -> None:
    """Print the members as a table, with distances if requested."""
    if near or within is not None:
        print_table(
            ("node", f"from {near or 'here'} ms", "", "state", "address", "coordinate", "tags", "health"),
            [(m.name, m.distance_ms, _kind(m.distance_ms, m.distance_measured), m.state, m.address, *_last(m)) for m in shown],
            empty="no node is within that distance",
        )
        return
    print_table(
        ("node", "state", "address", "api", "rtt ms", "", "coordinate", "tags", "health"),
        [(m.name, m.state, m.address, m.api, m.rtt_ms, _kind(m.rtt_ms, m.measured), *_last(m)) for m in shown],
        empty="no such members",
    )


@click.command()
@asks_node
def status(api: str, json_: bool) -> None:
    """Shows the node asked: engine, operators, what takes its capacity, coordinate, counters."""
    tell(Client(api).status(), json_, _show_status)


def _show_status(node: NodeStatus) -> None:
    shown = msgspec.to_builtins(node)
    shown["coordinate"] = (
        f"{_point(node.coordinate)}, height {node.height:.1f} ms, error {node.error:.2f}, load {_load(node.load_per_core)}"
    )
    shown["operators"] = ", ".join(node.operators) or "none"
    shown["capacity"] = _capacity(node.capacity)
    shown["health"] = health(node)
    counters = shown.pop("counters")
    del shown["height"], shown["error"], shown["load"], shown["load_per_core"], shown["ready"], shown["reasons"]
    print_table(("", ""), [(name, cell_text(value)) for name, value in shown.items()])
    if node.capacity is not None and node.capacity.held:
        rows = [(one.operator, one.use, f"{one.cores:.2f}", f"{one.memory_mb:.0f}") for one in node.capacity.held]
        print_table(("takes capacity", "as", "cores", "MB"), rows)
    if counters:
        print_table(("counter", "count"), sorted(counters.items()))


def _capacity(capacity: NodeCapacity | None) -> str:
    """Return what is taken of what the node has."""
    if capacity is None:
        return "not reported"
    cores, memory_mb = sum(one.cores for one in capacity.held), sum(one.memory_mb for one in capacity.held)
    places = f"{capacity.taken} of {capacity.operators} places"
    return f"{places}, {cores:.2f} of {capacity.cores:g} cores, {memory_mb:,.0f} of {capacity.memory_mb:,.0f} MB taken"


def _load(per_core: float | None) -> str:
    return "not counted" if per_core is None else f"{per_core:.2f} a core"


def _kind(rtt_ms: float | None, measured: bool) -> str:
    return "" if rtt_ms is None else "measured" if measured else "estimated"


def health(member: MemberInfo | NodeStatus) -> str:
    """Return whether the node says that it can work, and the codes of its reasons; empty if it is not there."""
    if member.ready is None:
        return ""
    word = "ready" if member.ready else "not ready"
    return f"{word} ({', '.join(member.reasons)})" if member.reasons else word


def _last(member: MemberInfo) -> tuple[str, str, str]:
    """Return the last columns: coordinate, tags, health."""
    tags = ", ".join(f"{key}={value}" for key, value in sorted(member.tags.items()))
    return _point(member.coordinate), tags, health(member)


def _point(coordinate: tuple[float, ...] | None) -> str:
    return "-" if coordinate is None else "(" + ", ".join(f"{x:.1f}" for x in coordinate) + ")"


@click.command()
@click.argument("a", type=NODE, metavar="A")
@click.argument("b", type=NODE, metavar="[B]", default="")
@click.option("--measure/--cached", default=None, help="Always measure, or never.")
@asks_node
def rtt(api: str, a: str, b: str, measure: bool | None, json_: bool) -> None:
    """Shows the round-trip time between nodes A and B, by default the node asked.

    Estimated from the coordinates, and measured: the least of three pings, which A sends unless B is the node asked. A pair that
    was measured within directory.fresh_s is not measured again.
    """
    question = RttRequest(pairs=((a, b),), max_age_s=0.0 if measure else None, cached=measure is False)
    (pair,) = Client(api).rtt(question)
    if pair.code:
        ms = "not known" if pair.coordinates_ms is None else f"{pair.coordinates_ms:.1f} ms"
        raise SbonError(pair.code, pair.reason, where=pair.where, hint=pair.hint, details=(f"by the coordinates: {ms}",))
    tell(pair, json_, _show_pair)


def _show_pair(pair: PairInfo) -> None:
    measured = "not lately" if pair.age_s is None else f"{pair.age_s:.1f} s ago by {pair.by}, the least of three pings"
    used = {"probes": "this node's own probes, filtered", "unknown": "unknown"}
    rows = [
        ("by the coordinates", pair.coordinates_ms, ""),
        ("measured", pair.measured_ms, measured),
        ("used by placement", pair.estimate_ms, used.get(pair.estimate_source, pair.estimate_source)),
    ]
    print_table((f"{pair.a} to {pair.b}", "ms", ""), rows)


# -- Joining, leaving, and moving a node's operators away -------------------------------------------------------------


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
        hint = (
            "start it and drain it again; if it runs, name an address of its API that is reached from here: sbon --node URL drain"
        )
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

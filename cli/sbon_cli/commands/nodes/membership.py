"""``sbon join``, ``sbon leave`` and ``sbon drain``."""

from __future__ import annotations

import click

from sbon_cli.client import Client
from sbon_cli.terminal.output import counted, reports_errors


@click.command()
@click.argument("addresses", nargs=-1, required=True, metavar="HOST:PORT...")
@click.pass_obj
@reports_errors
def join(api: str, addresses: tuple[str, ...]) -> None:
    """Joins the cluster of the nodes at these addresses; any live one will do."""
    count = Client(api).join(*addresses)
    click.echo(f"joined; {counted(count, 'member')} known")


@click.command()
@click.confirmation_option(prompt="The node leaves for good and stops. Go on?")
@click.option("--force", is_flag=True, help="Leave though queries need the node: they are stopped, or fail.")
@click.pass_obj
@reports_errors
def leave(api: str, force: bool) -> None:
    """Makes the node leave for good: the others forget it, and it stops. Refused while queries need it. To stop it for a while,
    send it SIGTERM."""
    Client(api).leave(force=force)
    click.echo("left")


@click.command()
@click.confirmation_option(prompt="The node takes no part in queries from now on, for good. Go on?")
@click.pass_obj
@reports_errors
def drain(api: str) -> None:
    """Has the node take no operators, sources, sinks and queries any more, for good, so that it can be taken away.

    It stays a member until it leaves: sbon leave. A restart changes nothing of it. Refused, with every reason, while anything
    lives on it: nothing is moved to other nodes yet.
    """
    Client(api).drain()
    click.echo("drained; to take it out of the cluster: sbon leave")

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
@click.confirmation_option(prompt="The node accepts no components of queries from now on, for good. Continue?")
@click.pass_obj
@reports_errors
def drain(api: str) -> None:
    """Keeps operators, sources, sinks and queries away from the node, for good, so that it can be removed.

    It stays a member until it leaves: sbon leave. A restart does not undo it. The node refuses, with every reason, while anything
    is on it: move its operators first (sbon query migrate).
    """
    Client(api).drain()
    click.echo("drained; to remove it from the cluster: sbon leave")

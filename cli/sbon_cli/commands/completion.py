"""``sbon completion``: what makes a shell complete the command line, names of the node's nodes, streams and queries among it."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints what makes a shell complete this command: verbs, options, and the names the node asked knows.

    The node is that of SBON_API or --node; where none answers, names are not completed.
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "sbon", "_SBON_COMPLETE").source())

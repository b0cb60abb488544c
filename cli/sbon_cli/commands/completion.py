"""``sbon completion``: shell completion of the command line, and of the names of nodes, streams and queries."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints the completion script of a shell: verbs, options, and the names that the node asked knows.

    The node is that of SBON_API or --node; if it does not answer, names are not completed."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(ctx.find_root().command, {}, "sbon", "_SBON_COMPLETE").source())

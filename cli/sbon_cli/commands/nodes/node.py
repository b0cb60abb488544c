"""``sbon node``: runs a node in the foreground until a signal."""

import os
import signal
import sys
import threading
from copy import copy
from pathlib import Path

import click

from sbon_cli.commands.nodes.config import flags_of, settings_options
from sbon_cli.commands.nodes.members import drain
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.terminal.output import reports_errors
from sbon_node.base.logging import output
from sbon_node.base.private_files import keep_private
from sbon_node.config.config import load


@click.group(cls=SuggestingGroup, invoke_without_command=True, subcommand_metavar="")
@settings_options
@click.option(
    "--until-stdin-closes", is_flag=True, hidden=True, help="Stop when standard input ends, together with the parent process."
)
@click.pass_context
@reports_errors
def node(
    context: click.Context, /, config_file: Path | None, settings: tuple[str, ...], until_stdin_closes: bool, **named: str | None
) -> None:
    """Runs a node in the foreground.

    SIGTERM and Ctrl-C make it go away cleanly: operators stop after a committed batch, and it resumes where it was when it is
    started again on the same data directory. A second signal ends it at once. To leave for good: sbon leave.
    """
    if context.invoked_subcommand is not None:
        if any(named.values()) or settings:
            raise click.UsageError("settings are for a node that is to run; another command follows")
        return
    config, _ = load(config_file, environ=os.environ, flags=flags_of(settings, named))
    keep_private()
    tap = output.configure(config.log, node=config.node.name)
    if until_stdin_closes:
        threading.Thread(target=_end_with_stdin, daemon=True, name="until-stdin-closes").start()
    import uvloop

    from sbon_node.daemon import run_node

    sys.exit(uvloop.run(run_node(config, tap)))


# ``drain`` is listed here too, although it addresses a running node, like ``join`` and ``leave``.
_drain = copy(drain)
_drain.hidden = True
node.add_command(_drain)


def _end_with_stdin() -> None:
    """Stop the node once stdin closes: only the process that started it has the other end."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)

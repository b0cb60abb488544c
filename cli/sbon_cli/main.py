"""The command ``sbon``: one verb a file, loaded when it is called."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version
from typing import Any

import click

from sbon_cli.output import EXIT_CODES, EXIT_INTERRUPTED

VERBS = {
    "node": "sbon_cli.node:node",
    "cluster": "sbon_cli.cluster:cluster",
    "demo": "sbon_cli.demo:demo",
    "stream": "sbon_cli.stream:stream",
    "submit": "sbon_cli.submit:submit",
    "explain": "sbon_cli.explain:explain",
    "query": "sbon_cli.query:query",
    "status": "sbon_cli.members:status",
    "members": "sbon_cli.members:members",
    "rtt": "sbon_cli.rtt:rtt",
    "monitor": "sbon_cli.monitor:monitor",
    "map": "sbon_cli.map:map_",
    "join": "sbon_cli.membership:join",
    "leave": "sbon_cli.membership:leave",
    "drain": "sbon_cli.membership:drain",
    "doctor": "sbon_cli.doctor:doctor",
    "debug": "sbon_cli.debug:debug",
    "config": "sbon_cli.config:config",
    "bench": "sbon_cli.bench:bench",
    "simulate": "sbon_cli.simulate:simulate",
    "experiment": "sbon_cli.experiment:experiment",
}


class Verbs(click.Group):
    """Finds verbs in ``VERBS``, and has a word for one misspelt."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, _, attribute = VERBS[cmd_name].partition(":")
        found: Any = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = _near(args[0], self.list_commands(ctx)) if args else ""
            raise click.UsageError(f"{error.message}{near}", ctx) from error


def _near(word: str, words: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, words, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.option(
    "--node",
    "api",
    envvar="SBON_API",
    default="http://127.0.0.1:7480",
    show_default=True,
    metavar="URL",
    help="API of the node to talk to, also from SBON_API.",
)
@click.version_option(version("sbon"), prog_name="sbon")
@click.pass_context
def sbon(ctx: click.Context, api: str) -> None:
    """A stream-based overlay network: queries over wide-area streams, run by Spark where the network likes it best.

    Results are tables on a terminal and JSON in a pipe or with --json.
    """
    ctx.obj = api


def main() -> None:
    """Runs the command line; the exit codes are those of ``sbon --help``."""
    try:
        code = sbon.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        print("\ninterrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()

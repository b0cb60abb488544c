"""The command ``sbon``: one verb a file, loaded when it is called."""

from __future__ import annotations

import importlib
import sys
from typing import Any, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from sbon_cli import waiting
from sbon_cli.examples import with_examples
from sbon_cli.exit_codes import EXIT_CODES, EXIT_INTERRUPTED, EXIT_REFUSED
from sbon_cli.standard_streams import abandon_output, is_of_output, open_closed_streams

DEFAULT_API = "http://127.0.0.1:7480"


class Verb(NamedTuple):
    """``help`` is the first sentence of the command's own, so that a list of all need not load them."""

    target: str
    help: str


SECTIONS: dict[str, dict[str, Verb]] = {
    "Nodes": {
        "node": Verb("sbon_cli.node:node", "Runs a node in the foreground."),
        "cluster": Verb("sbon_cli.cluster:cluster", "Runs a cluster of nodes on this machine."),
        "join": Verb("sbon_cli.membership:join", "Joins the cluster of the nodes at these addresses."),
        "leave": Verb("sbon_cli.membership:leave", "Makes the node leave for good."),
        "drain": Verb("sbon_cli.membership:drain", "Has the node take no operators, sources, sinks and queries any more."),
        "status": Verb("sbon_cli.members:status", "Shows the node asked."),
        "members": Verb("sbon_cli.members:members", "Lists the nodes of the cluster as the node asked sees them."),
        "rtt": Verb("sbon_cli.rtt:rtt", "Shows the round-trip time between nodes A and B."),
        "map": Verb("sbon_cli.map:map_", "Draws the cost space: who is near whom."),
        "monitor": Verb("sbon_cli.monitor:monitor", "Tells what happens at the node asked."),
        "doctor": Verb("sbon_cli.doctor:doctor", "Examines the node asked."),
        "debug": Verb("sbon_cli.debug:debug", "Looks inside a running node."),
        "config": Verb("sbon_cli.config:config", "Shows and checks a node's configuration."),
    },
    "Streams and queries": {
        "stream": Verb("sbon_cli.stream:stream", "Creates, fills, lists and drops streams."),
        "streams": Verb("sbon_cli.stream:list_", "Lists the streams of the cluster."),
        "sql": Verb("sbon_cli.sql:sql", "A shell for queries."),
        "submit": Verb("sbon_cli.submit:submit", "Submits a query and prints its rows as they arrive."),
        "explain": Verb("sbon_cli.explain:explain", "Explains a query that is not submitted, or one that is."),
        "query": Verb("sbon_cli.query:query", "Lists, shows, follows and stops queries."),
        "queries": Verb("sbon_cli.query:list_", "Lists every query of the cluster."),
        "bill": Verb("sbon_cli.query:bill", "Shows what a query cost the network."),
    },
    "Trying and measuring": {
        "demo": Verb("sbon_cli.demo:demo", "Six nodes in six cities."),
        "bench": Verb("sbon_cli.bench:bench", "Measures."),
        "simulate": Verb("sbon_cli.simulate:simulate", "Runs whole daemons through a scenario in virtual time."),
        "experiment": Verb("sbon_cli.experiment:experiment", "Repeats an experiment."),
    },
    "This command": {
        "completion": Verb("sbon_cli.completion:completion", "Prints what makes a shell complete this command."),
    },
}
VERBS: dict[str, Verb] = {name: verb for section in SECTIONS.values() for name, verb in section.items()}


class Verbs(click.Group):
    """Finds verbs in ``VERBS``, lists them without loading any, and has a word for one misspelt."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, _, attribute = VERBS[cmd_name].target.partition(":")
        found: Any = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, click.Command)
        return with_examples(found, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, verb.help) for name, verb in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [CompletionItem(name, help=verb.help) for name, verb in VERBS.items() if name.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

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
    default=DEFAULT_API,
    show_default=True,
    metavar="URL",
    help="API of the node to talk to, also from SBON_API.",
)
@click.version_option(package_name="sbon", prog_name="sbon")
@click.pass_context
def sbon(ctx: click.Context, api: str) -> None:
    """A stream-based overlay network: queries over wide-area streams, run by Spark where the network likes it best.

    Results are tables on a terminal, and JSON in a pipe or with --json: a line for each, or for the one there is.
    """
    ctx.obj = api


_PLAIN = {
    "is not a valid float range": "is not a number",
    "is not a valid integer range": "is not a whole number",
    "is not a valid float": "is not a number",
    "is not a valid integer": "is not a whole number",
    "is not a valid boolean": "is neither true nor false",
}


def _plain(message: str) -> str:
    """What click says of a value, without the words for types of programmes."""
    for said, plain in _PLAIN.items():
        message = message.replace(said, plain)
    return message


def _end_without_output(error: OSError) -> NoReturn:
    from sbon_cli.output import complain
    from sbon_node.errors import SbonError

    abandon_output()
    complain(SbonError("not-written", f"cannot be written: {error.strerror}", where="standard output"))
    sys.exit(EXIT_REFUSED)


def main() -> None:
    """Runs the command line; the exit codes are those of ``sbon --help``."""
    open_closed_streams()
    waiting.told = True
    try:
        code = sbon.main(prog_name="sbon", standalone_mode=False)
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        click.UsageError(_plain(error.format_message()), context).show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        print("\ninterrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        if not is_of_output(error):
            raise
        _end_without_output(error)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()

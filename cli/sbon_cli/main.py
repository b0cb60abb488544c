"""The command ``sbon``: one file for each verb, loaded when called."""

from __future__ import annotations

import importlib
import sys
from typing import Any, NamedTuple, NoReturn

import click
from click.exceptions import NoArgsIsHelpError
from click.shell_completion import CompletionItem

from sbon_cli.options.examples import with_examples
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.terminal import waiting
from sbon_cli.terminal.exit_codes import EXIT_CODES, EXIT_INTERRUPTED, EXIT_REFUSED
from sbon_cli.terminal.standard_streams import abandon_output, is_of_output, open_closed_streams

DEFAULT_API = "http://127.0.0.1:7480"


class Verb(NamedTuple):
    """A verb; ``help`` is the first sentence of its command's help, so that the list of verbs need not load them."""

    target: str
    help: str


SECTIONS: dict[str, dict[str, Verb]] = {
    "Nodes": {
        "node": Verb("sbon_cli.commands.nodes.node:node", "Runs a node in the foreground."),
        "cluster": Verb("sbon_cli.commands.nodes.cluster:cluster", "Runs a cluster of nodes on this machine."),
        "join": Verb("sbon_cli.commands.nodes.membership:join", "Joins the cluster of the nodes at these addresses."),
        "leave": Verb("sbon_cli.commands.nodes.membership:leave", "Makes the node leave for good."),
        "drain": Verb(
            "sbon_cli.commands.nodes.membership:drain",
            "Moves a node's operators to other nodes, while their queries run, and makes it leave for good.",
        ),
        "status": Verb("sbon_cli.commands.nodes.members:status", "Shows the node asked."),
        "members": Verb("sbon_cli.commands.nodes.members:members", "Lists the nodes of the cluster as the node asked sees them."),
        "rtt": Verb("sbon_cli.commands.nodes.rtt:rtt", "Shows the round-trip time between nodes A and B."),
        "map": Verb("sbon_cli.commands.nodes.map:map_", "Draws the cost space: distances between nodes."),
        "monitor": Verb("sbon_cli.commands.nodes.monitor:monitor", "Prints the events of the node asked."),
        "doctor": Verb("sbon_cli.commands.nodes.doctor:doctor", "Examines all nodes."),
        "debug": Verb("sbon_cli.commands.nodes.debug:debug", "Looks inside a running node."),
        "config": Verb("sbon_cli.commands.nodes.config:config", "Shows and checks a node's configuration."),
    },
    "Streams and queries": {
        "stream": Verb("sbon_cli.commands.streams.stream:stream", "Creates, fills, lists and drops streams."),
        "streams": Verb("sbon_cli.commands.streams.stream:list_", "Lists the streams of the cluster."),
        "sql": Verb("sbon_cli.commands.queries.sql:sql", "A shell for queries."),
        "submit": Verb("sbon_cli.commands.queries.submit:submit", "Submits a query and prints its rows as they arrive."),
        "explain": Verb("sbon_cli.commands.queries.explain:explain", "Explains a query that is not submitted, or one that is."),
        "query": Verb("sbon_cli.commands.queries.query:query", "Lists, shows, follows and stops queries."),
        "queries": Verb("sbon_cli.commands.queries.query:list_", "Lists every query of the cluster, the oldest first."),
        "usage": Verb("sbon_cli.commands.queries.query:query_usage", "Shows what a query cost the network."),
    },
    "Trying and measuring": {
        "demo": Verb("sbon_cli.commands.demo.demo:demo", "Six nodes in six cities."),
        "bench": Verb("sbon_cli.commands.experiments.bench:bench", "Measures."),
        "simulate": Verb(
            "sbon_cli.commands.experiments.simulate:simulate", "Runs whole daemons through a scenario in virtual time."
        ),
        "experiment": Verb("sbon_cli.commands.experiments.experiment:experiment", "Repeats an experiment."),
    },
    "This command": {
        "completion": Verb("sbon_cli.commands.completion:completion", "Prints the completion script of a shell."),
    },
}
VERBS: dict[str, Verb] = {name: verb for section in SECTIONS.values() for name, verb in section.items()}


class Verbs(SuggestingGroup):
    """Group that finds verbs in ``VERBS``, and lists them without loading them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, _, attribute = VERBS[cmd_name].target.partition(":")
        command: Any = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return with_examples(command, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, verb.help) for name, verb in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [CompletionItem(name, help=verb.help) for name, verb in VERBS.items() if name.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]


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

    Results are tables, and rows in a pipe JSON lines; --output table|json|text, or SBON_OUTPUT, chooses.
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
    """Return click's message on a value without the names of programming types."""
    for original, plain in _PLAIN.items():
        message = message.replace(original, plain)
    return message


def _end_without_output(error: OSError) -> NoReturn:
    from sbon import SbonError
    from sbon_cli.terminal.output import complain

    abandon_output()
    complain(SbonError("not-written", f"cannot be written: {error.strerror}", where="standard output"))
    sys.exit(EXIT_REFUSED)


def main() -> None:
    """Run the command line; the exit codes are those of ``sbon --help``."""
    open_closed_streams()
    waiting.enabled = True
    try:
        code = sbon.main(prog_name="sbon", standalone_mode=False)
    except NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(error.exit_code)
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

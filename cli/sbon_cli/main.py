"""The command ``sbon``: one file for each verb, loaded when called."""

import importlib
import sys
from typing import Any, NoReturn

import click
from click.exceptions import NoArgsIsHelpError
from click.shell_completion import CompletionItem

from sbon_cli.options.examples import with_examples
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.terminal import waiting
from sbon_cli.terminal.exit_codes import EXIT_CODES, EXIT_INTERRUPTED, EXIT_REFUSED, EXIT_USAGE
from sbon_cli.terminal.standard_streams import abandon_output, is_of_output, open_closed_streams
from sbon_cli.verbs import sections, verb_named, verbs

DEFAULT_API = "http://127.0.0.1:7480"


class Verbs(SuggestingGroup):
    """Group that finds verbs in :mod:`.verbs`, and lists them without loading them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(verbs())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = verb_named(cmd_name)
        if verb is None:
            return None
        module, _, attribute = verb.target.partition(":")
        command: Any = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return with_examples(command, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in sections():
            with formatter.section(section.title):
                formatter.write_dl([(name, verb.help) for name, verb in section.verbs.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=verb.help) for name, verb in verbs().items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


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
    complain(SbonError("not-written", f"cannot be written: {error.strerror}", where=error.filename or "standard output"))
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
    except (click.Abort, KeyboardInterrupt) as error:
        of_signal = isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt)
        unasked = not of_signal and not sys.stdin.isatty()
        print("\nnot confirmed; where no terminal asks, add --yes" if unasked else "\ninterrupted", file=sys.stderr)
        sys.exit(EXIT_USAGE if unasked else EXIT_INTERRUPTED)
    except OSError as error:
        if not is_of_output(error):
            raise
        _end_without_output(error)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()

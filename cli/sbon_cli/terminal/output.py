"""Output of commands: tables, JSON lines or plain text, and errors as one clear line on stderr.

Results go to stdout, everything else (progress, hints, errors) to stderr, so that a pipe carries nothing but results.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import click
import msgspec
from click.core import ParameterSource
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sbon import SbonError
from sbon_cli.terminal.exit_codes import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from sbon_cli.terminal.exit_codes import EXIT_REFUSED as EXIT_REFUSED
from sbon_cli.terminal.exit_codes import exit_code_of as exit_code_of
from sbon_cli.terminal.standard_streams import abandon_output

P = ParamSpec("P")
R = TypeVar("R")

UNBROKEN = 32
"""Length from which words are broken in a table of a narrow terminal."""
UNLIMITED = 100_000
"""Width of a table in a pipe, which no line of it reaches."""

Output = Literal["table", "json", "text"]
OUTPUTS: tuple[Output, ...] = ("table", "json", "text")
API_HINT = "see docs/api.md"
"""A node's hint about a bad request, which is for programs."""
_CHOSEN, _EXPLICIT = "sbon.output", "sbon.output.said"


def err() -> Console:
    """Return the console of stderr, created anew because tests replace the stream."""
    return Console(file=sys.stderr, soft_wrap=True, highlight=False)


def out() -> Console:
    return Console(file=sys.stdout, highlight=False)


def say(text: str = "") -> None:
    """Print an unbroken line on stdout, so that its content can be copied and searched for."""
    out().print(text, soft_wrap=True)


def complain(error: SbonError) -> None:
    """Print the error as one line, the hint on a second, details below."""
    console = err()
    prefix = f"{error.where}: " if error.where else ""
    console.print(f"[bold red]error[/]: {escape(prefix + error.message)}")
    for detail in error.details:
        if detail != error.message:
            console.print(f"  - {escape(detail)}")
    if error.hint:
        console.print(f"  [dim]hint:[/] {escape(_of_command(error.hint))}")


def _of_command(hint: str) -> str:
    """Return the hint, with the running command's help in place of the API's."""
    context = click.get_current_context(silent=True)
    return f"see {context.command_path} --help" if hint == API_HINT and context is not None else hint


@contextmanager
def written(file: Path, code: str = "not-written") -> Iterator[None]:
    """Raise :class:`SbonError` with the ``code`` where a file cannot be written; no part of it stays."""
    try:
        yield
    except OSError as error:
        if error.filename is None and file.is_file():  # It was opened, and is no device.
            file.unlink(missing_ok=True)
        hint = "name another with --out"
        raise SbonError(code, f"cannot be written: {error.strerror}", where=str(file), hint=hint) from error


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn errors into a line on stderr and an exit code."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except SbonError as error:
            complain(error)
            sys.exit(exit_code_of(error))
        except KeyboardInterrupt:
            sys.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            abandon_output()  # the reader has closed the pipe
            sys.exit(EXIT_REFUSED)

    return run


def chosen_output() -> Output | None:
    """Return the choice of ``--output``, ``--json`` or ``SBON_OUTPUT``; None without a choice."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_CHOSEN)


def rows_output(json_: bool) -> Output:
    """Return the form of rows and events: the chosen form, else tables on a terminal and JSON lines in a pipe."""
    return "json" if json_ else chosen_output() or ("table" if sys.stdout.isatty() else "json")


def print_json(value: Any) -> None:
    """Print a line of JSON for each item of a list, or for a single value."""
    for item in value if isinstance(value, list | tuple) else (value,):
        print(msgspec.json.encode(item).decode(), flush=True)


def tell(answer: R, json_: bool, shown: str | Callable[[R], object]) -> None:
    """Print an answer as JSON, or for people: a line, or by a function."""
    if json_:
        print_json(answer)
    elif isinstance(shown, str):
        click.echo(shown)
    else:
        shown(answer)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", empty: str = "nothing") -> None:
    """Print a table with right-aligned numbers. A narrow terminal wraps text, but words can still be copied."""
    listing = [list(row) for row in rows]
    if chosen_output() == "text":
        for row in listing:
            print("\t".join(plain(value) for value in row))
        return
    if not listing:
        say(f"[dim]{escape(empty)}[/]")
        return
    table = Table(title=title or None, box=None, header_style="bold", pad_edge=False, title_justify="left")
    for position, column in enumerate(columns):
        cells = [row[position] for row in listing if row[position] is not None]
        number = bool(cells) and all(isinstance(value, int | float) for value in cells)
        longest = max(
            len(word) for cell in (column, *(row[position] for row in listing)) for word in cell_text(cell).split() or [""]
        )
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(column, justify=justify, overflow="fold", min_width=min(longest, UNBROKEN))
    for row in listing:
        table.add_row(*(escape(cell_text(value)) for value in row))
    console = out() if sys.stdout.isatty() else Console(file=sys.stdout, highlight=False, width=UNLIMITED)
    console.print(table, crop=False)


def print_records(records: Iterable[Mapping[str, object]], *, empty: str = "nothing") -> None:
    """Print a table of records, which have the same headings."""
    listing = list(records)
    print_table(list(listing[0]) if listing else (), [list(record.values()) for record in listing], empty=empty)


def plain(value: object) -> str:
    """Return a cell as plain text: numbers for programs, empty for None, no tabs or line breaks."""
    return "" if value is None else " ".join(str(value).split())


def headings(columns: Iterable[str]) -> list[str]:
    """Return names of columns as words, so that long names are broken between these."""
    return [column.replace("_", " ") for column in columns]


def cell_text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 0.05 or value == 0 else f"{value:.2g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def bytes_text(count: float) -> str:
    """Format a size: ``1.4 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def span_text(seconds: float) -> str:
    """Format a length of time: ``2.1 s``, ``45 s``, ``9 min``, ``3 h``, ``20 days``."""
    for upto, length, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < upto:
            return f"{seconds:.1f} s" if seconds < 10 else f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def milliseconds_text(milliseconds: float) -> str:
    """Format a delay: ``12.3 ms``, and as a length of time from 10 s."""
    return f"{milliseconds:,.1f} ms" if milliseconds < 10_000 else span_text(milliseconds / 1000)


def rows_text(count: int | None) -> str:
    """Format a number of rows: ``1,400 rows``."""
    return "rows not known" if count is None else counted(count, "row")


def counted(count: int, singular: str, many: str = "") -> str:
    """Format a count: ``1 row``, ``1,400 rows``."""
    return f"{count:,} {singular if count == 1 else many or f'{singular}s'}"


def json_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add ``--output`` and its short form ``--json``; the command's ``json_`` says whether that is JSON."""
    command = click.option("--json", "json_", is_flag=True, callback=_json_chosen, help="Short for --output json.")(command)
    return click.option(
        "--output",
        type=click.Choice(OUTPUTS),
        envvar="SBON_OUTPUT",
        expose_value=False,
        is_eager=True,
        callback=_output_chosen,
        metavar="FORM",
        help="table, json or text (also SBON_OUTPUT).",
    )(command)


def asks_node(command: Callable[Concatenate[str, P], R]) -> Callable[P, R]:
    """Give a command the API of the node to ask, ``--output`` with its short form, and errors as lines on stderr."""
    return json_option(click.pass_obj(reports_errors(command)))


def _output_chosen(context: click.Context, parameter: click.Parameter, value: Output | None) -> None:
    context.meta[_CHOSEN] = value
    context.meta[_EXPLICIT] = value is not None and context.get_parameter_source("output") is ParameterSource.COMMANDLINE


def _json_chosen(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    if value:
        if context.meta.get(_EXPLICIT) and context.meta[_CHOSEN] != "json":
            raise click.UsageError(f"--json and --output {context.meta[_CHOSEN]} contradict each other")
        context.meta[_CHOSEN] = "json"
    return context.meta.get(_CHOSEN) == "json"

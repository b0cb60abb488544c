"""What commands print: tables for people on a terminal, JSON for machines, errors as one clear line on stderr.

Results go to stdout, everything else (progress, hints, errors) to stderr, so that a pipe carries nothing but results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sbon_cli.exit_codes import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from sbon_cli.exit_codes import EXIT_REFUSED as EXIT_REFUSED
from sbon_cli.exit_codes import exit_code_of as exit_code_of
from sbon_cli.standard_streams import abandon_output
from sbon_node.errors import SbonError

P = ParamSpec("P")
R = TypeVar("R")

UNBROKEN = 32
"""Longer words than that are broken in a table of a narrow terminal."""


def err() -> Console:
    """The console of stderr, found anew because tests replace the stream."""
    return Console(file=sys.stderr, soft_wrap=True, highlight=False)


def out() -> Console:
    return Console(file=sys.stdout, highlight=False)


def say(text: str = "") -> None:
    """A line on stdout, which no narrow terminal breaks: what is in it can be copied and searched for."""
    out().print(text, soft_wrap=True)


def complain(error: SbonError) -> None:
    """The error as one line, the hint on a second, details below."""
    console = err()
    place = f"{error.where}: " if error.where else ""
    console.print(f"[bold red]error[/]: {escape(place + error.message)}")
    details = [d for d in error.details if d != error.message]
    for detail in details:
        console.print(f"  - {escape(detail)}")
    if error.hint:
        console.print(f"  [dim]hint:[/] {escape(error.hint)}")


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turns refusals into a line on stderr and an exit code."""

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
            abandon_output()  # its reader has had enough
            sys.exit(EXIT_REFUSED)

    return run


def as_json(forced: bool = False) -> bool:
    """Whether results are for machines: ``--json``, or stdout is not a terminal."""
    return forced or not sys.stdout.isatty()


def print_json(value: Any) -> None:
    """A line of JSON for each of a list, or for the one value there is."""
    for one in value if isinstance(value, list | tuple) else (value,):
        print(msgspec.json.encode(one).decode(), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", empty: str = "nothing") -> None:
    """A table; numbers are set to the right. Where the terminal is narrow, text is wrapped, but words can still be copied."""
    listed = [list(row) for row in rows]
    if not listed:
        say(f"[dim]{escape(empty)}[/]")
        return
    table = Table(title=title or None, box=None, header_style="bold", pad_edge=False, title_justify="left")
    for position, column in enumerate(columns):
        found = [row[position] for row in listed if row[position] is not None]
        number = bool(found) and all(isinstance(value, int | float) for value in found)
        longest = max(
            len(word) for cell in (column, *(row[position] for row in listed)) for word in cell_text(cell).split() or [""]
        )
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(column, justify=justify, overflow="fold", min_width=min(longest, UNBROKEN))
    for row in listed:
        table.add_row(*(escape(cell_text(value)) for value in row))
    out().print(table, crop=False)


def headings(columns: Iterable[str]) -> list[str]:
    """Names of columns as words, so that those that are too long are broken between these."""
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
    """``1.4 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def rows_text(count: int | None) -> str:
    """``1,400 rows``."""
    return "rows not known" if count is None else counted(count, "row")


def counted(count: int, one: str, many: str = "") -> str:
    """``1 row``, ``1,400 rows``."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def json_option(command: Callable[P, R]) -> Callable[P, R]:
    return click.option("--json", "json_", is_flag=True, help="Print JSON lines, as in a pipe.")(command)

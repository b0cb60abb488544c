"""An error in SQL, with its line and a caret under the position."""

from __future__ import annotations

import re

from rich.markup import escape

from sbon import SbonError
from sbon_cli.shell.statements import Statement
from sbon_cli.terminal.output import err

_PLACE = re.compile(r"line (\d+), column (\d+)")
MARGIN = 2


def complain_at(error: SbonError, statement: Statement, file: str = "") -> None:
    """Write the error to stderr; positions are those of the whole text, of ``file`` if given."""
    console = err()
    match = _PLACE.fullmatch(error.where)
    if match is None:
        where = ": ".join(part for part in (file, error.where) if part)
        console.print(f"[bold red]error[/]: {escape(f'{where}: ' if where else '')}{escape(error.message)}")
    else:
        line, column = int(match[1]), int(match[2])
        of_text = column + statement.column - 1 if line == 1 else column
        where = f"{f'{file}, ' if file else ''}line {statement.line + line - 1}, column {of_text}"
        console.print(f"[bold red]error[/]: {escape(where)}: {escape(error.message)}")
        for shown in pointed(statement.text, line, column, console.width - MARGIN):
            console.print(" " * MARGIN + escape(shown))
    for detail in error.details:
        console.print(f"  - {escape(detail)}")
    if error.hint:
        console.print(f"  [dim]hint:[/] {escape(error.hint)}")


def pointed(text: str, line: int, column: int, width: int) -> list[str]:
    """Return the line (from 1) with a caret under the column (from 1), cut to ``width``; empty without such a line."""
    lines = text.split("\n")
    if not 1 <= line <= len(lines):
        return []
    line_text = lines[line - 1].replace("\t", " ").rstrip()
    at = min(max(column - 1, 0), len(line_text))
    first = 0 if at < width - 1 else at - width // 2
    shown = line_text[first : first + width]
    return [shown, " " * (at - first) + "^"]

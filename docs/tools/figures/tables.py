"""Markdown tables from the rows of results, as a page's template declares them in TOML.

Keys of a declaration:

- ``results``: names of results, whose rows are read in this order.
- ``where``: values that a row must have.
- ``unfold``: a column with names and a column with values; rows that agree in all others become one row.
- ``columns``: heading, cell, and optionally values that a row must have to fill the cell.
- ``by``: keys of rows that share a line; a cell takes the first of them that fits. Without it, each row is a line.
- ``lines``: instead of cells in columns; each line has ``head`` cells, a ``cell``, optionally ``where`` and ``tail`` cells.
- ``head``, ``tail``: headings of the cells before and after, with ``lines``.
- ``empty``: text of a cell without a value.

A cell is a format string over a row, such as ``{median:.3f}, {p90:.3f}``. Where ``||`` separates several, the first
counts for which a row has all values. With ``lines``, ``cell`` may be a list, a cell for each column.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any

from results import FiguresError, Result, Row, read

KEYS = {"results", "where", "unfold", "columns", "by", "lines", "head", "tail", "empty"}


def table(root: Path, declaration: str) -> tuple[list[Result], list[str]]:
    """Return the results that the table shows, and its lines of Markdown. Raise :class:`FiguresError`."""
    spec = tomllib.loads(declaration)
    if unknown := sorted(set(spec) - KEYS):
        raise FiguresError(f"a table has unknown keys: {', '.join(unknown)}")
    results = [read(root, name) for name in spec.get("results", ())]
    if not results:
        raise FiguresError("a table names no result")
    rows = [row for result in results for row in result.rows if fits(row, spec.get("where", {}))]
    if "unfold" in spec:
        rows = unfolded(rows, *spec["unfold"])
    headings, lines = _transposed(spec, rows) if "lines" in spec else _plain(spec, rows)
    return results, markdown(headings, lines)


def _plain(spec: Mapping[str, Any], rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    columns = [(column[0], column[1], column[2] if len(column) > 2 else {}) for column in spec["columns"]]
    groups: dict[object, list[Row]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(tuple(row.get(key) for key in spec["by"]) if "by" in spec else number, []).append(row)
    empty = spec.get("empty", "")
    lines = [[cell(text, group, where, empty) for _, text, where in columns] for group in groups.values()]
    for position, (heading, text, _) in enumerate(columns):
        if "{" in text and all(line[position] == empty for line in lines):
            raise FiguresError(f"no row has a value for the column {heading!r}")
    return [heading for heading, *_ in columns], lines


def _transposed(spec: Mapping[str, Any], rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    lines = []
    for line in spec["lines"]:
        fitting = [row for row in rows if fits(row, line.get("where", {}))]
        texts = line["cell"] if isinstance(line["cell"], list) else [line["cell"]] * len(spec["columns"])
        wheres = [column[1] if len(column) > 1 else {} for column in spec["columns"]]
        cells = [cell(text, fitting, where, spec.get("empty", "")) for text, where in zip(texts, wheres, strict=True)]
        if all(text == spec.get("empty", "") for text in cells):
            raise FiguresError(f"no row has a value for the line {line['head']}")
        lines.append([*line["head"], *cells, *line.get("tail", [""] * len(spec.get("tail", ())))])
    return [*spec["head"], *(column[0] for column in spec["columns"]), *spec.get("tail", ())], lines


def fits(row: Row, where: Mapping[str, Any]) -> bool:
    return all(row.get(key) in value if isinstance(value, list) else row.get(key) == value for key, value in where.items())


def cell(text: str, rows: Iterable[Row], where: Mapping[str, Any], empty: str = "") -> str:
    """Format the first row that fits and has all values; ``empty`` without one."""
    fitting = [row for row in rows if fits(row, where)]
    for choice in text.split(" || "):
        keys = [name for _, name, _, _ in Formatter().parse(choice) if name]
        for row in fitting:
            if all(row.get(key) is not None for key in keys):
                return choice.format(**row)
    return empty


def unfolded(rows: Iterable[Row], name: str, value: str) -> list[Row]:
    found: dict[tuple[tuple[str, Any], ...], Row] = {}
    for row in rows:
        rest = {key: one for key, one in row.items() if key not in (name, value)}
        found.setdefault(tuple(rest.items()), rest)[row[name]] = row[value]
    return list(found.values())


def markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Align columns of figures to the right."""
    figures = [
        all(re.match(r"-?\d|-$|$", line[i]) for line in lines) and any(line[i] for line in lines) for i in range(len(headings))
    ]
    rule = ["---:" if right else "---" for right in figures]
    return [re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(cells)} |") for cells in (headings, rule, *lines)]

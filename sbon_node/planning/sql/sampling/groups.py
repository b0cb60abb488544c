"""Groups of sampled rows: how many a window or a key makes, and the rows that an aggregate gives."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sbon_node.model.samples import Value
from sbon_node.planning.sql.relations.logical import Aggregate, Output, Window
from sbon_node.planning.sql.sampling.evaluate import Values, evaluate
from sbon_node.planning.sql.sampling.rows import SampledRows, distinct_of, distinct_values

UNKNOWN_KEY = 10.0
"""Distinct values of a key that cannot be evaluated (Selinger's constant for an equality)."""
MAX_COPIES = 64
"""Most overlapping windows of a row that are looked at one by one."""
LEAST_WINDOWS = 2.0
"""Windows that a sample must span to count the groups of each."""

Group = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of an aggregate: ``of_row`` for each row that goes in, or else ``keys``, the distinct keys.

    ``rows`` are those that the aggregate gives for the sampled rows; None if it cannot be told.
    """

    of_row: float | None
    keys: float
    rows: SampledRows | None

    def in_window(self, rows: float) -> float:
        """Return the expected groups of one window with so many rows."""
        return distinct_of(self.keys, rows)


def grouped(sample: SampledRows, aggregate: Aggregate) -> Groups | None:
    """Return the groups of sampled rows; None if no key is known."""
    keys = [evaluate(key.expression, sample.columns, sample.count) for key in aggregate.keys]
    known = [column for column in keys if column is not None]
    time = sample.columns.get(aggregate.window.time) if aggregate.window is not None else None
    if (aggregate.window is not None and time is None) or (not known and aggregate.keys):
        return None
    unknown = UNKNOWN_KEY ** (len(keys) - len(known))
    rows: list[Group] = list(zip(*(column.values for column in known), strict=True)) if known else [()] * sample.count
    if aggregate.window is None:
        once = min(_of_row(rows, sample, 1.0) * unknown, 1.0)
        return Groups(once, math.inf, _rows_of({}, rows, sample, aggregate) if unknown == 1 else None)
    assert time is not None
    placed, copies = _in_windows(aggregate.window, time.values, rows)
    windows = [(window, *key) for window, key, _ in placed]
    spans = sample.complete or _span_ms(time.values) >= LEAST_WINDOWS * aggregate.window.size_ms
    of_row = min(_of_row(windows, sample, copies) * unknown, copies) if spans else None
    of_rows = [row for *_, row in placed]
    made = _rows_of(_ends(aggregate.window, placed), windows, sample, aggregate, of_rows) if unknown == 1 else None
    return Groups(of_row, distinct_values(rows, sample.seen if sample.complete else math.inf) * unknown, made)


def _of_row(groups: Sequence[Group], sample: SampledRows, copies: float) -> float:
    return distinct_values(groups, sample.seen * copies) / max(sample.seen, 1.0)


def _span_ms(times: Sequence[Value]) -> float:
    known = [value for value in times if isinstance(value, int)]
    return (max(known) - min(known)) / 1000 if known else 0.0


Placed = tuple[int, Group, int]
"""A window's first microsecond, the key, and the row."""


def _in_windows(window: Window, times: Sequence[Value], rows: Sequence[Group]) -> tuple[list[Placed], float]:
    """Return each row in each of its windows, and the windows of a row. Rows without a time are in none."""
    timed = [(value, rows[at], at) for at, value in enumerate(times) if isinstance(value, int)]
    if window.kind == "session_window":
        return _in_sessions(window, timed), 1.0
    size, slide = window.size_ms * 1000, max(window.slide_ms, 1) * 1000
    copies = size / slide
    if copies > MAX_COPIES:
        size, copies = slide, copies
    placed: list[Placed] = []
    for value, key, at in timed:
        start = value - (value - window.offset_ms * 1000) % slide
        while start > value - size:
            placed.append((start, key, at))
            start -= slide
    return placed, copies


def _in_sessions(window: Window, timed: Sequence[tuple[int, Group, int]]) -> list[Placed]:
    by_key: dict[Group, list[tuple[int, int]]] = defaultdict(list)
    for value, key, at in timed:
        by_key[key].append((value, at))
    placed: list[Placed] = []
    for key, rows in by_key.items():
        rows.sort()
        start, last = rows[0][0], rows[0][0]
        for value, at in rows:
            if value - last >= window.size_ms * 1000:
                start = value
            last = value
            placed.append((start, key, at))
    return placed


def _ends(window: Window, placed: Sequence[Placed]) -> dict[str, list[Value]]:
    """Return the windows' columns for each placed row; a session's end is that of its last row plus the gap."""
    starts: list[Value] = [start for start, *_ in placed]
    size = window.size_ms * 1000
    return {window.start: starts, window.end: [start + size for start, *_ in placed]}


def _rows_of(
    ends: Mapping[str, list[Value]],
    groups: Sequence[Group],
    sample: SampledRows,
    aggregate: Aggregate,
    rows: Sequence[int] | None = None,
) -> SampledRows:
    """Return a row for each distinct group. Only a complete sample has the values of its aggregates."""
    members: dict[Group, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        members[group].append(place)
    at = list(range(len(groups))) if rows is None else rows
    firsts = [places[0] for places in members.values()]
    columns = {name: Values("timestamp", [values[first] for first in firsts]) for name, values in ends.items()}
    for key in aggregate.keys:
        values = evaluate(key.expression, sample.columns, sample.count)
        if values is not None:
            columns[key.name] = values.chosen([at[first] for first in firsts])
    if sample.complete:
        of_groups = [[at[place] for place in places] for places in members.values()]
        columns |= {o.name: v for o in aggregate.aggregates if (v := _aggregated(o, sample, of_groups)) is not None}
    share = len(members) / sample.count if sample.count else 0.0
    return SampledRows(columns, len(members), sample.seen * share, sample.weight * share, sample.complete)


def _aggregated(output: Output, sample: SampledRows, groups: Sequence[Sequence[int]]) -> Values | None:
    """Return a count, sum, average or extreme for each group; None for other aggregates."""
    call = output.expression
    name = str(call.this).lower() if isinstance(call, exp.Anonymous) else ""
    if name == "count" and (not call.expressions or isinstance(call.expressions[0], exp.Star | exp.Literal)):
        return Values("number", [len(rows) for rows in groups])
    if name not in ("count", "sum", "avg", "mean", "min", "max") or len(call.expressions) != 1:
        return None
    argument = evaluate(call.expressions[0], sample.columns, sample.count)
    if argument is None or (name in ("sum", "avg", "mean") and argument.kind != "number"):
        return None
    values = [[argument.values[row] for row in rows if argument.values[row] is not None] for rows in groups]
    if name == "count":
        return Values("number", [len(of_group) for of_group in values])
    of = {"sum": math.fsum, "avg": _mean, "mean": _mean, "min": min, "max": max}[name]
    return Values(argument.kind, [of(of_group) if of_group else None for of_group in values])  # type: ignore[operator]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)

"""The kinds of queries that schedules run, each with the rows that it must deliver, computed without an engine."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from sbon_lab.simulation.engine.evaluate import rows_of

Kind = Literal["filter", "window", "join", "chain"]
Rows = list[tuple[object, ...]]

STEP_MS = 25
"""Event time between two rows of a stream, whose ids follow each other."""
WINDOW_MS = 200
PARTS = 3
FRAGMENT = "SELECT id, v * 2 AS w, upper(t) AS u FROM {} WHERE v > 0 OR t IS NULL"
SQL: Mapping[Kind, str] = {
    "filter": FRAGMENT,
    "window": "SELECT count(*) AS n, sum(id) AS ids FROM {} GROUP BY window(ts, '200 milliseconds')",
    "join": (
        "SELECT a.id, b.v FROM {0} AS a LEFT JOIN {0} AS b ON a.id = b.id AND b.v > 0 AND b.ts BETWEEN "
        "a.ts - INTERVAL 100 MILLISECONDS AND a.ts + INTERVAL 100 MILLISECONDS"
    ),
    "chain": (
        f"SELECT count(*) AS parts, sum(n) AS n FROM (SELECT window, id % {PARTS} AS part, count(*) AS n FROM {{}} "
        f"GROUP BY window(ts, '200 milliseconds'), id % {PARTS}) GROUP BY window"
    ),
}
"""A filter is one operator for each source, a window follows one for each source, a join has two inputs for each source, and a
chain ends with a window over another one.
"""


def oracle(rows: Sequence[dict[str, Any]]) -> Rows:
    """Return the result of the filter."""
    columns = {"id": pa.int64(), "v": pa.float64(), "t": pa.string()}
    table = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in columns.items()})
    return [tuple(row.values()) for row in rows_of(FRAGMENT.format("in0"), table).to_pylist()]


def windows(rows: Sequence[dict[str, Any]]) -> Rows:
    """Return the number of rows in each window of event time, and the sum of their ids."""
    counts: Counter[int] = Counter()
    sums: Counter[int] = Counter()
    for row in rows:
        number = row["id"] * STEP_MS // WINDOW_MS
        counts[number] += 1
        sums[number] += row["id"]
    return [(counts[number], sums[number]) for number in counts]


def joined(rows: Sequence[dict[str, Any]]) -> Rows:
    """Return each row's id, with its value where this is positive."""
    return [(row["id"], row["v"] if row["v"] is not None and row["v"] > 0 else None) for row in rows]


def chained(rows: Sequence[dict[str, Any]]) -> Rows:
    """Return the number of parts of each window that have rows, and the number of its rows."""
    counts: Counter[int] = Counter(row["id"] * STEP_MS // WINDOW_MS for row in rows)
    parts = {(row["id"] * STEP_MS // WINDOW_MS, row["id"] % PARTS) for row in rows}
    return [(sum(of == number for of, _ in parts), counts[number]) for number in counts]


ORACLES: dict[Kind, Callable[[Sequence[dict[str, Any]]], Rows]] = {
    "filter": oracle,
    "window": windows,
    "join": joined,
    "chain": chained,
}

"""Operators of the engine's benchmark: a filter, a tumbling window, and a join of two streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sbon_node.experiments.bench.rows import SCHEMA, Rows, frame
from sbon_node.model.columns import Column, Schema
from sbon_node.model.frames import FrameDraft

Longs = npt.NDArray[np.int64]

SENSORS = 100
WINDOW_MS = 10_000
KEYS = 10_000
BOUND_MS = 10_000
"""Time bound of the join: each side has a row a millisecond, of a random key, with about one partner within the bound."""
ROWS_OF_A_FRAME = 12_000
"""Rows in about 256 KB of the narrow rows that reach a window or a join."""


@dataclass(frozen=True)
class Work:
    """A fragment from the planner over inputs ``in0``, ``in1``; with ``event_time`` if it has state."""

    fragment: str
    inputs: tuple[Schema, ...]
    schema: Schema
    event_time: str = ""


class Pass(NamedTuple):
    """Frames of each input that arrive at once, and the resulting output rows."""

    drafts: Sequence[Sequence[FrameDraft]]
    out: int

    @property
    def rows(self) -> int:
        return sum(draft.rows for drafts in self.drafts for draft in drafts)


READING = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))

FILTER = Work("SELECT k, ts, v * 2 AS w, upper(s) AS u FROM in0 WHERE v > 0.5", (SCHEMA,), SCHEMA)

AGGREGATE = Work(
    "SELECT window_start AS start, k, count AS n, avg AS mean FROM (SELECT `window`.start AS window_start, `window`.`end` AS"
    f" window_end, k, count(*) AS count, avg(v) AS avg FROM in0 GROUP BY window(ts, '{WINDOW_MS} milliseconds',"
    f" '{WINDOW_MS} milliseconds', '0 milliseconds'), k) AS groups",
    (READING,),
    (Column("start", "timestamp"), Column("k", "bigint"), Column("n", "bigint"), Column("mean", "double")),
    "ts",
)

JOIN = Work(
    "SELECT in0.ts, in0.k, in0.v * in1.v AS x FROM in0 JOIN in1 ON in0.k = in1.k"
    f" AND (in1.ts BETWEEN in0.ts - INTERVAL '{BOUND_MS // 1000}' SECOND AND in0.ts)",
    (READING, READING),
    (Column("ts", "timestamp"), Column("k", "bigint"), Column("x", "double")),
    "ts",
)


def filter_passes(seed: int, rows: int, passes: int) -> list[Pass]:
    """Return passes with the same rows in each."""
    made = Rows(seed, rows)
    return [Pass([made.drafts], sum(made.passing))] * passes


def aggregate_passes(seed: int, rows: int, passes: int) -> list[Pass]:
    """Return passes in order of time. A pass is complete when the windows that its last row closes are out."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, SENSORS, rows * passes)
    return _passes(rng, [keys], [_groups(keys[:end]) for end in range(rows, len(keys) + 1, rows)])


def join_passes(seed: int, rows: int, passes: int) -> list[Pass]:
    """Return passes in order of time; half of the ``rows`` are of each side."""
    rng = np.random.default_rng(seed)
    side = rows // 2
    left, right = rng.integers(0, KEYS, side * passes), rng.integers(0, KEYS, side * passes)
    return _passes(rng, [left, right], [_pairs(left[:end], right[:end]) for end in range(side, len(left) + 1, side)])


def _passes(rng: np.random.Generator, sides: Sequence[Longs], out: Sequence[int]) -> list[Pass]:
    """Return passes with a row a millisecond of each side; ``out`` are the total output rows after each pass."""
    rows = len(sides[0]) // len(out)
    found = []
    for number, total in enumerate(out):
        spans = [
            (at, min(at + ROWS_OF_A_FRAME, (number + 1) * rows))
            for at in range(number * rows, (number + 1) * rows, ROWS_OF_A_FRAME)
        ]
        drafts = [[_readings(rng, keys, *span) for span in spans] for keys in sides]
        found.append(Pass(drafts, total - (out[number - 1] if number else 0)))
    return found


def _readings(rng: np.random.Generator, keys: Longs, first: int, end: int) -> FrameDraft:
    values = pa.array(rng.random(end - first))
    return frame(READING, np.arange(first, end), {"k": pa.array(keys[first:end]), "v": values})


def _groups(keys: Longs) -> int:
    """Return the number of groups in the windows that a row a millisecond has closed."""
    closed = (len(keys) - 2) // WINDOW_MS * WINDOW_MS
    return len(np.unique(np.arange(closed) // WINDOW_MS * SENSORS + keys[:closed]))


def _pairs(left: Longs, right: Longs) -> int:
    """Return the number of pairs with equal keys, the right row at most the bound earlier and no later."""
    times = np.arange(len(left))
    partners = np.sort((right << 32) + times)
    upto = np.searchsorted(partners, (left << 32) + times, side="right")
    since = np.searchsorted(partners, (left << 32) + np.maximum(times - BOUND_MS, 0))
    return int((upto - since).sum())

"""Operators of the engine's benchmark: a filter, a tumbling window, and joins of two streams with many and with few keys."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sbon_lab.bench.rows import SCHEMA, Rows, frame
from sbon_node.model.frames import FrameDraft
from sbon_node.streams.settings import BatchLimits, StreamSettings
from sbon_protocol.api.columns import Column, Schema
from sbon_protocol.api.operators import TimeBuckets

Longs = npt.NDArray[np.int64]

SENSORS = 100
WINDOW_MS = 10_000
KEYS = 10_000
BOUND_MS = 10_000
"""Time bound of the joins. Each side of ``JOIN`` has a row a millisecond of a random key, with about one partner within it."""
SYMBOLS = 20
EVERY_MS = (10, 2490)
"""Milliseconds between the rows of each side of ``FEW_KEYS``: trades, and news of their symbols. One in five has a partner."""
ROWS_OF_A_FRAME = 12_000
"""Rows in about 256 KB of the narrow rows that reach a window or a join."""


@dataclass(frozen=True)
class Work:
    """A fragment from the planner over inputs ``in0``, ``in1``; with ``event_time`` if it has state.

    ``by_hand`` is the SQL of bare Spark where it is not the fragment, and ``shares`` are its inputs' shares of a batch.
    """

    fragment: str
    inputs: tuple[Schema, ...]
    schema: Schema
    event_time: str = ""
    buckets: tuple[TimeBuckets, ...] = ()
    by_hand: str = ""
    shares: tuple[float, ...] = ()

    def limits(self, settings: StreamSettings) -> BatchLimits:
        return settings.batch_limits(has_state=bool(self.event_time), joins=len(self.inputs) > 1)


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

_PAIR = "SELECT in0.ts, in0.k, in0.v * in1.v AS x FROM"
_NEAR = f"ON in0.k = in1.k AND (in1.ts BETWEEN in0.ts - INTERVAL '{BOUND_MS // 1000}' SECOND AND in0.ts)"
_WIDTH_MS = 2 * BOUND_MS
_BUCKET = f"div {1000 * _WIDTH_MS}"
_FIRST, _LAST = f"unix_micros(ts) {_BUCKET}", f"(unix_micros(ts) + {1000 * BOUND_MS}) {_BUCKET}"

JOIN = Work(
    f"{_PAIR} in0 JOIN in1 {_NEAR}",
    (READING, READING),
    (Column("ts", "timestamp"), Column("k", "bigint"), Column("x", "double")),
    "ts",
    (TimeBuckets(view=0, time="ts", copied_view=1, copied_time="ts", from_ms=0, upto_ms=BOUND_MS, width_ms=_WIDTH_MS),),
    f"{_PAIR} (SELECT *, {_FIRST} AS b FROM in0) AS in0 JOIN (SELECT *, explode(CASE WHEN {_FIRST} = {_LAST} THEN array({_FIRST})"
    f" ELSE array({_FIRST}, {_LAST}) END) AS b FROM in1) AS in1 {_NEAR} AND in0.b = in1.b",
)

FEW_KEYS = replace(JOIN, shares=(EVERY_MS[1] / sum(EVERY_MS), EVERY_MS[0] / sum(EVERY_MS)))


def filter_passes(seed: int, rows: int, passes: int) -> list[Pass]:
    """Return passes with the same rows in each."""
    generated = Rows(seed, rows)
    return [Pass([generated.drafts], sum(generated.passing))] * passes


def aggregate_passes(seed: int, rows: int, passes: int) -> list[Pass]:
    """Return passes in order of time. A pass is complete when the windows that its last row closes are out."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, SENSORS, rows * passes)
    return _passes(rng, [keys], [_groups(keys[:end]) for end in range(rows, len(keys) + 1, rows)])


def join_passes(seed: int, rows: int, passes: int) -> list[Pass]:
    """Return passes in order of time; half of the ``rows`` are of each side."""
    return _join_passes(seed, (rows // 2, rows // 2), passes, KEYS, (1, 1))


def few_keys_passes(seed: int, rows: int, passes: int) -> list[Pass]:
    """Return passes in order of time; ``rows`` are divided by how often the sides have one."""
    trade_ms, news_ms = EVERY_MS
    news = rows * trade_ms // (trade_ms + news_ms)
    return _join_passes(seed, (news * news_ms // trade_ms, news), passes, SYMBOLS, EVERY_MS)


def _join_passes(seed: int, rows: tuple[int, int], passes: int, keys: int, every_ms: tuple[int, int]) -> list[Pass]:
    rng = np.random.default_rng(seed)
    left, right = (rng.integers(0, keys, of_side * passes) for of_side in rows)
    out = [_pairs(left[: rows[0] * n], right[: rows[1] * n], every_ms) for n in range(1, passes + 1)]
    return _passes(rng, [left, right], out, every_ms)


def _passes(rng: np.random.Generator, sides: Sequence[Longs], out: Sequence[int], every_ms: Sequence[int] = (1,)) -> list[Pass]:
    """Return passes with a row of each side ``every_ms``; ``out`` are the total output rows after each pass."""
    following = []
    for number, total in enumerate(out):
        drafts = []
        for keys, step_ms in zip(sides, every_ms, strict=True):
            rows, of_frame = len(keys) // len(out), max(1, ROWS_OF_A_FRAME * min(every_ms) // step_ms)
            first, end = number * rows, (number + 1) * rows
            spans = [(at, min(at + of_frame, end)) for at in range(first, end, of_frame)]
            drafts.append([_readings(rng, keys, *span, step_ms) for span in spans])
        following.append(Pass(drafts, total - (out[number - 1] if number else 0)))
    return following


def _readings(rng: np.random.Generator, keys: Longs, first: int, end: int, every_ms: int) -> FrameDraft:
    values = pa.array(rng.random(end - first))
    return frame(READING, np.arange(first, end) * every_ms, {"k": pa.array(keys[first:end]), "v": values})


def _groups(keys: Longs) -> int:
    """Return the number of groups in the windows that a row a millisecond has closed."""
    closed = (len(keys) - 2) // WINDOW_MS * WINDOW_MS
    return len(np.unique(np.arange(closed) // WINDOW_MS * SENSORS + keys[:closed]))


def _pairs(left: Longs, right: Longs, every_ms: tuple[int, int]) -> int:
    """Return the number of pairs with equal keys, the right row at most the bound earlier and no later."""
    times = np.arange(len(left)) * every_ms[0]
    partners = np.sort((right << 40) + np.arange(len(right)) * every_ms[1])
    upto = np.searchsorted(partners, (left << 40) + times, side="right")
    since = np.searchsorted(partners, (left << 40) + np.maximum(times - BOUND_MS, 0))
    return int((upto - since).sum())

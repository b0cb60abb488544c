"""Operators that move: their fragments, the rows that they read, and their results by DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sbon_node import extras
from sbon_node.connectors.formats.frames import encode
from sbon_node.model.columns import Column
from sbon_node.model.frames import FrameDraft
from sbon_node.model.operators import StateProvider
from sbon_node.streams.payload import unpack

FIRST_MS = 1_356_998_400_000
ROW_MS = 33
SCHEMA = (Column("ts", "timestamp"), Column("n", "bigint"))


@dataclass(frozen=True)
class Kind:
    """A fragment over ``inputs`` streams, with its answer in DuckDB."""

    fragment: str
    answer: str
    inputs: int = 1
    has_state: bool = True
    state_provider: StateProvider = "hdfs"


_FILTER = "SELECT ts, n FROM in0 WHERE n % 3 = 0"
_SESSIONS = """SELECT min(ts), k, count(*) FROM (SELECT ts, k, sum(new) OVER (PARTITION BY k ORDER BY ts) AS number FROM (
SELECT ts, n % 4 AS k, coalesce(ts - lag(ts) OVER (PARTITION BY n % 4 ORDER BY ts) > INTERVAL 1 SECOND, true)::int AS new FROM in0
WHERE (n // 100) % 3 < 2)) GROUP BY number, k"""
_JOINED = """SELECT in0.ts, in0.n, in1.n AS other FROM in0 {} JOIN in1
ON in0.n = in1.n AND in1.ts BETWEEN in0.ts AND in0.ts + INTERVAL 3 SECONDS"""
_INNER, _LEFT = _JOINED.format(""), _JOINED.format("LEFT")
_COUNTED = """SELECT {} AS s, k, count(*) AS c, count(other) AS found FROM (SELECT in0.ts AS ts, in0.n % 4 AS k, in1.n AS other
FROM in0 LEFT JOIN in1 ON in0.n = in1.n AND in1.ts BETWEEN in0.ts AND in0.ts + INTERVAL 3 SECONDS) AS r GROUP BY {}, k"""
KINDS = {
    "filter": Kind(_FILTER, _FILTER, has_state=False),
    "tumbling": Kind(
        "SELECT window.start AS s, n % 4 AS k, count(*) AS c FROM in0 GROUP BY window(ts, '2 seconds'), n % 4",
        "SELECT time_bucket(INTERVAL 2 SECONDS, ts) AS s, n % 4, count(*) FROM in0 GROUP BY ALL",
    ),
    "session": Kind(
        "SELECT session_window.start AS s, k, count(*) AS c FROM (SELECT ts, n % 4 AS k FROM in0 WHERE (n DIV 100) % 3 < 2) AS r "
        "GROUP BY session_window(ts, '1 second'), k",
        _SESSIONS,
    ),
    "inner join": Kind(_INNER, _INNER, inputs=2),
    "left join": Kind(_LEFT, _LEFT, inputs=2),
    "chain": Kind(
        _COUNTED.format("window.start", "window(ts, '2 seconds')"),
        _COUNTED.format("time_bucket(INTERVAL 2 SECONDS, ts)", "s"),
        inputs=2,
    ),
    "left join in RocksDB": Kind(_LEFT, _LEFT, inputs=2, state_provider="rocksdb"),
}
"""The chain is an aggregate over a left join."""


@dataclass(frozen=True)
class Feed:
    """Frames of ``rows`` rows, a row every 33 ms of event time. Input 1 has every third row, half a second later."""

    rows: int

    def table(self, number: int, view: int) -> pa.Table:
        """Return the rows of a frame, counted from 0."""
        numbers = [n for n in range(number * self.rows, (number + 1) * self.rows) if not view or n % 3 == 0]
        times = [(FIRST_MS + n * ROW_MS + 500 * view) * 1000 for n in numbers]
        return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "n": pa.array(numbers, pa.int64())})

    def draft(self, number: int, view: int) -> FrameDraft:
        table = self.table(number, view)
        payload = encode(table.combine_chunks().to_batches()[0])
        return FrameDraft(payload=payload, rows=table.num_rows, watermark_ms=self.watermark_ms(number))

    def watermark_ms(self, number: int) -> int:
        return FIRST_MS + (number + 1) * self.rows * ROW_MS - 1

    def frame_with(self, watermark_ms: int) -> int:
        """Return the first frame whose watermark is at least this."""
        return max(0, -(-(watermark_ms + 1 - FIRST_MS) // (self.rows * ROW_MS)) - 1)


def wrong_rows(kind: Kind, feed: Feed, frames: int, payloads: Sequence[bytes]) -> tuple[int, int]:
    """Return how many rows of the result of the first ``frames`` frames are missing, and how many others there are."""
    database = _database()
    database.register("found", pa.concat_tables(pa.Table.from_batches([unpack(payload)]) for payload in payloads))
    for view in range(kind.inputs):
        database.register(f"in{view}", pa.concat_tables(feed.table(number, view) for number in range(frames)))
    found = Counter(database.sql("SELECT * FROM found").fetchall())
    expected = Counter(database.sql(kind.answer).fetchall())
    return (expected - found).total(), (found - expected).total()


def _database() -> Any:
    database = extras.duckdb().connect()
    database.execute("SET TimeZone = 'UTC'")
    return database

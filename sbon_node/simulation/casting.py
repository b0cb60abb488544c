"""The casting of a schedule: which node plays which role, which queries run, and the rows that they read."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa

from sbon_node.config.config import Config
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.model.columns import Column
from sbon_node.simulation.cluster import CONFIG
from sbon_node.simulation.engine.evaluate import rows_of
from sbon_node.simulation.faults.plan import Seconds, Stage
from sbon_node.space.settings import SpaceSettings
from sbon_node.streams.settings import StreamSettings

NODES = ("h", "s", "o", "c")
QUERY = "query"
FRAGMENT = "SELECT id, v * 2 AS w, upper(t) AS u FROM {} WHERE v > 0 OR t IS NULL"
WINDOW_MS = 200
WINDOWS = "SELECT count(*) AS n, sum(id) AS ids FROM {} GROUP BY window(ts, '200 milliseconds')"
SCHEMA = (Column("id", "bigint"), Column("v", "double"), Column("t", "string"), Column("ts", "timestamp"))
FIRST_MS, STEP_MS = 1_600_000_000_000, 25
ROWS = 56
CONNECTORS = ConnectorSettings(linger_s=0.1, retry_max_s=2.0)
SPACE = SpaceSettings(algorithm="vivaldi", probe_interval_s=60.0)
"""Coordinate settings; the nodes' coordinates do not matter here."""


class Life(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One life of a query: it is submitted at ``holder``, ``after_s`` after the previous life of its name has ended.

    It reads a stream of its own, with a source at each of ``sources``. ``stop_at`` stops it ``stop_after_s`` seconds after it was
    accepted. Its last operator moves to each of ``move_to`` in turn, at first ``move_after_s`` seconds after the acceptance.
    """

    sql: Literal["filter", "window"] = "filter"
    sources: tuple[str, ...] = ("s",)
    holder: str = "h"
    consumer: str = "c"
    after_s: Seconds = 0.0
    stop_after_s: Seconds | None = None
    stop_at: str = "h"
    move_to: tuple[str, ...] = ()
    move_after_s: Seconds = 0.5


class PlannedQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query's name and its lives, one after another."""

    name: str
    lives: tuple[Life, ...] = (Life(),)


class Casting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The roles of the nodes: ``holder`` takes the submission, and the operator goes to one of ``room``.

    The input is ``rows`` with texts of up to ``text_bytes``. ``credit_bytes``, which determines the other limits of streams,
    exceeds the largest frame: rows that have waited for long come in one frame, of all rows or of a quarter of a megabyte.
    Power may be lost only with ``fsync``. ``queries`` run at once instead of the usual one; of the other fields, they use
    ``room``, ``strategy``, and those of the rows and streams.
    """

    holder: str = "h"
    room: tuple[str, ...] = ("o",)
    strategy: str = "relaxation"
    sink: Literal["file", "follow"] = "file"
    rows: int = ROWS
    text_bytes: int = 60
    credit_bytes: int = 8_000
    fsync: bool = True
    queries: tuple[PlannedQuery, ...] = ()

    @property
    def config(self) -> Config:
        """Return the configuration of a node with room."""
        streams = StreamSettings(
            inbox_credit_bytes=self.credit_bytes,
            outbox_quota_bytes=self.credit_bytes * 3 // 4,
            batch_span_bytes=self.credit_bytes // 2,
            batch_span_frames=6,
            read_bytes=self.credit_bytes // 2,
            fsync=self.fsync,
        )
        return msgspec.structs.replace(CONFIG, streams=streams, connectors=CONNECTORS, space=SPACE)

    @property
    def stage(self) -> Stage:
        if not self.queries:
            return Stage(sources=("s",), operators=self.room, consumers=("c",), holders=(self.holder,), fsync=self.fsync)
        lives = [life for query in self.queries for life in query.lives]
        return Stage(
            sources=tuple(dict.fromkeys(node for life in lives for node in life.sources)),
            operators=self.room,
            consumers=tuple(dict.fromkeys(life.consumer for life in lives)),
            holders=tuple(dict.fromkeys(life.holder for life in lives)),
            fsync=self.fsync,
        )


def numbers(count: int, text_bytes: int, seed: int | str) -> list[dict[str, Any]]:
    """Return rows with an identity each, and nulls among their values."""
    rng = random.Random(f"rows/{seed}")
    return [
        {
            "id": number,
            "v": rng.choice((None, rng.uniform(-10, 30))),
            "t": rng.choice((None, "some", "other", rng.randbytes(text_bytes // 2).hex()[: rng.randint(0, text_bytes)])),
            "ts": pa.scalar(FIRST_MS + number * STEP_MS, pa.timestamp("ms", tz="UTC")).as_py().isoformat(),
        }
        for number in range(count)
    ]


def oracle(rows: Sequence[dict[str, Any]]) -> list[tuple[object, ...]]:
    columns = {"id": pa.int64(), "v": pa.float64(), "t": pa.string()}
    table = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in columns.items()})
    return [tuple(row.values()) for row in rows_of(FRAGMENT.format("in0"), table).to_pylist()]


def windows(rows: Sequence[dict[str, Any]]) -> list[tuple[object, ...]]:
    """Return the oracle of the query ``window``: the number of rows in each window of event time, and the sum of their ids."""
    counts: Counter[int] = Counter()
    sums: Counter[int] = Counter()
    for row in rows:
        number = row["id"] * STEP_MS // WINDOW_MS
        counts[number] += 1
        sums[number] += row["id"]
    return [(counts[number], sums[number]) for number in counts]


def read_result(path: Path) -> list[tuple[object, ...]]:
    with suppress(FileNotFoundError):
        return [tuple(json.loads(line).values()) for line in path.read_text().splitlines()]
    return []

"""The casting of a schedule: which node plays which role, which queries run, and the rows that they read."""

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa

from sbon_lab.simulation.cluster import CONFIG
from sbon_lab.simulation.faults.plan import Seconds, Stage
from sbon_lab.simulation.query_kinds import STEP_MS, Kind
from sbon_node.config.config import Config
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.overlay.space.settings import SpaceSettings
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.columns import Column

NODES = ("h", "s", "o", "c")
QUERY = "query"
SCHEMA = (Column("id", "bigint"), Column("v", "double"), Column("t", "string"), Column("ts", "timestamp"))
FIRST_MS = 1_600_000_000_000
ROWS = 56
CONNECTORS = ConnectorSettings(linger_s=0.1, retry_max_s=2.0)
SPACE = SpaceSettings(algorithm="vivaldi", probe_interval_s=60.0)
"""Coordinate settings; the nodes' coordinates do not matter here."""


class PlannedMove(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user's command ``after_s`` after the last one: the operator at that position of the plan moves to the node ``to``.

    A position counts from the end if it is negative, and again from the beginning if the plan has fewer operators. The user waits
    for the end of the move before the next one if it ``waits``.
    """

    to: str
    operator: int = -1
    how: Literal["follow", "stop"] = "follow"
    after_s: Seconds = 0.5
    waits: bool = True


class Life(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One life of a query: it is submitted at ``submitter``, ``after_s`` after the previous life of its name has ended.

    It reads a stream of its own, with a source at each of ``sources``. ``stop_at`` stops it ``stop_after_s`` seconds after it was
    accepted. ``moves`` follow each other from the acceptance on.
    """

    sql: Kind = "filter"
    sources: tuple[str, ...] = ("s",)
    submitter: str = "h"
    consumer: str = "c"
    after_s: Seconds = 0.0
    stop_after_s: Seconds | None = None
    stop_at: str = "h"
    moves: tuple[PlannedMove, ...] = ()


class PlannedQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query's name and its lives, one after another."""

    name: str
    lives: tuple[Life, ...] = (Life(),)


class Casting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The roles of the nodes: ``submitter`` takes the submission, and the operator goes to one of ``room``.

    The input is ``rows`` with texts of up to ``text_bytes``. ``credit_bytes``, which determines the other limits of streams,
    exceeds the largest frame: rows that have waited for long come in one frame, of all rows or of a quarter of a megabyte.
    Power may be lost only with ``fsync``. ``queries`` run at once instead of the usual one; of the other fields, they use
    ``room``, ``strategy``, ``nodes``, and those of the rows and streams.
    """

    nodes: tuple[str, ...] = NODES
    submitter: str = "h"
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
            operator_history_bytes=0,  # So that frames are deleted, and faults strike then.
            fsync=self.fsync,
        )
        return msgspec.structs.replace(CONFIG, streams=streams, connectors=CONNECTORS, space=SPACE)

    @property
    def stage(self) -> Stage:
        if not self.queries:
            return Stage(sources=("s",), operators=self.room, consumers=("c",), leaders=(self.submitter,), fsync=self.fsync)
        lives = [life for query in self.queries for life in query.lives]
        return Stage(
            sources=tuple(dict.fromkeys(node for life in lives for node in life.sources)),
            operators=self.room,
            consumers=tuple(dict.fromkeys(life.consumer for life in lives)),
            leaders=tuple(dict.fromkeys(life.submitter for life in lives)),
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


def read_result(path: Path) -> list[tuple[object, ...]]:
    with suppress(FileNotFoundError):
        return [tuple(json.loads(line).values()) for line in path.read_text().splitlines()]
    return []

"""Answers of a node's API: streams, queries, members and network usage. Unknown fields of a newer node are ignored.

Names and fields are those of ``GET /v1/openapi.json`` (docs/api.md). Names of times end in their unit; None means "not
known".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""


class Column(msgspec.Struct, frozen=True):
    """One column; ``type`` is a Spark SQL type in lower case: ``bigint``, ``timestamp``, ``decimal(10,2)``."""

    name: str
    type: str


class NodeStatus(_Answer, frozen=True, kw_only=True):
    name: str
    cluster: str
    address: str
    api: str
    version: str
    engine: str
    coordinate: tuple[float, ...]
    height: float
    error: float
    load: float
    members: int
    operators: tuple[str, ...]
    load_per_core: float | None = None
    drained: bool = False
    counters: dict[str, int]


class MemberInfo(_Answer, frozen=True, kw_only=True):
    name: str
    state: str
    address: str
    api: str
    incarnation: int
    coordinate: tuple[float, ...] | None
    rtt_ms: float | None
    measured: bool
    height_ms: float | None = None
    load_ms: float | None = None
    load_per_core: float | None = None
    distance_ms: float | None = None
    distance_measured: bool = False
    tags: dict[str, str] = {}
    cores: float = 0.0
    memory_mb: float = 0.0
    version: str = ""


class StreamDeclaration(_Answer, frozen=True, kw_only=True):
    name: str
    schema: tuple[Column, ...]
    event_time: str
    delay_ms: int = 0
    comment: str = ""


class SourceDeclaration(_Answer, frozen=True, kw_only=True):
    stream: str
    name: str
    node: str
    connector: str
    options: dict[str, Any] = {}
    rows_s: float | None = None
    row_bytes: float | None = None
    version: int = 1
    turn: int = 1
    sampled: bool = False


class CatalogEntry(_Answer, frozen=True, kw_only=True):
    declaration: StreamDeclaration
    sources: tuple[SourceDeclaration, ...] = ()
    version: int = 1
    origin: str = ""
    dropped: bool = False
    dropped_ms: int = 0
    detached: dict[str, int] = {}


class SourceInfo(_Answer, frozen=True, kw_only=True):
    source: SourceDeclaration
    state: str
    trouble: str = ""
    rows: int = 0
    bytes: int = 0
    late: int = 0
    bad: int = 0
    too_large: int = 0
    dropped: int = 0
    dead_letters: str = ""
    rows_s: float | None = None
    bytes_s: float | None = None
    paced: bool = False
    watermark_ms: int | None = None
    finite: bool = False
    read_share: float | None = None


class StreamInfo(_Answer, frozen=True, kw_only=True):
    entry: CatalogEntry
    sources: tuple[SourceInfo, ...] = ()


class RefusedRow(_Answer, frozen=True, kw_only=True):
    line: int
    reason: str


class Pushed(_Answer, frozen=True, kw_only=True):
    """Result of a post whose rows are durable; ``rows`` excludes ``late`` and ``bad`` rows."""

    source: str
    rows: int
    late: int = 0
    bad: int = 0
    refused: tuple[RefusedRow, ...] = ()
    ignored: tuple[str, ...] = ()
    repeated: bool = False


class SinkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A sink with its options (docs/connectors.md): ``SinkSpec(kind="file", options={"path": "/srv/rows.csv"})``."""

    kind: str = "follow"
    options: dict[str, Any] = {}


class Sample(_Answer, frozen=True, kw_only=True):
    """The newest rows of a query, as shortened texts for people."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]


class SinkReport(_Answer, frozen=True, kw_only=True):
    state: str
    rows: int = 0
    refused: int = 0
    dead_letters: str = ""
    retries: int = 0


class OperatorStats(_Answer, frozen=True, kw_only=True):
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    batches: int = 0
    batch_ms: float = 0.0
    rows_out_s: float | None = None
    bytes_out_s: float | None = None
    under_way_s: float | None = None
    under_way_rows: int = 0
    under_way_bytes: int = 0


class SpillCount(_Answer, frozen=True, kw_only=True):
    frames: int = 0
    bytes: int = 0
    now_bytes: int = 0


class OperatorInfo(_Answer, frozen=True, kw_only=True):
    id: str
    node: str
    fragment: str
    state: str
    reason: str = ""
    stats: OperatorStats | None = OperatorStats()
    spilled: SpillCount = SpillCount()
    watermark_ms: int | None = None
    ended: bool = False
    skipped: int = 0
    dead_letters: str = ""


class LinkInfo(_Answer, frozen=True, kw_only=True):
    stream: str
    source_node: str
    target: str
    target_node: str
    rows: int
    bytes: int
    latency_ms: float | None
    dropped: int = 0
    failed: str = ""


class Plan(_Answer, frozen=True, kw_only=True):
    """A query's plan. ``schema`` is that of the query's rows; the other fields hold as much as JSON can."""

    text: str
    sources: tuple[dict[str, Any], ...]
    operators: tuple[dict[str, Any], ...]
    outputs: tuple[str, ...]
    schema: tuple[Column, ...]
    event_time: str = ""


class QueryProgress(_Answer, frozen=True, kw_only=True):
    """Progress of a query: ``read_share`` (0 to 1) of its sources; None if a source has no end, or its end is unknown."""

    rows_in: int
    rows_out: int | None
    read_share: float | None
    endless: tuple[str, ...] = ()
    rows_in_s: float | None = None
    rows_out_s: float | None = None
    lag_ms: int | None = None
    left_s: float | None = None


class QueryInfo(_Answer, frozen=True, kw_only=True):
    id: str
    sql: str
    state: str
    reason: str = ""
    submitted_ms: int = 0
    node: str = ""
    consumer: str = ""
    sink: SinkSpec = SinkSpec()
    strategy: str = ""
    objective: str = ""
    max_delay_ms: float | None = None
    min_throughput_bytes_s: float | None = None
    on_error: str = ""
    plan: Plan | None = None
    placement: dict[str, Any] | None = None
    operators: tuple[OperatorInfo, ...] = ()
    links: tuple[LinkInfo, ...] = ()
    rows: int | None = None
    delivery: SinkReport | None = None
    sink_lost: bool = False
    sample: Sample | None = None
    streams: tuple[str, ...] = ()
    sources: tuple[SourceInfo, ...] = ()
    progress: QueryProgress | None = None


class Unanswered(NamedTuple):
    """A member that did not answer, with its state at the node that asked."""

    node: str
    state: str


class QueryList(list[QueryInfo]):
    """Queries; the members in ``unanswered`` may hold more."""

    def __init__(self, queries: Iterable[QueryInfo] = (), unanswered: Iterable[Unanswered] = ()) -> None:
        super().__init__(queries)
        self.unanswered = tuple(unanswered)


class LinkUsage(_Answer, frozen=True, kw_only=True):
    stream: str
    source_node: str
    target_node: str
    bytes: int
    latency_ms: float | None
    byte_ms: float | None


class QueryUsagePoint(_Answer, frozen=True, kw_only=True):
    at_ms: int
    byte_ms: float
    baseline_byte_ms: float
    rows_in: int | None = None
    rows_out: int | None = None
    lag_ms: int | None = None
    batch_ms: float | None = None
    held_back: int | None = None


class QueryUsage(_Answer, frozen=True, kw_only=True):
    query: str
    strategy: str
    links: tuple[LinkUsage, ...]
    baseline: tuple[LinkUsage, ...]
    byte_ms: float
    baseline_byte_ms: float
    at_ms: int = 0
    now: QueryUsagePoint | None = None
    history: tuple[QueryUsagePoint, ...] = ()
    skipped: int = 0


class Progress(_Answer, frozen=True, kw_only=True, tag="progress", tag_field="event"):
    """A step of a submission."""

    step: str
    message: str


class Accepted(_Answer, frozen=True, kw_only=True, tag="accepted", tag_field="event"):
    """The query runs."""

    query: QueryInfo


class Rows(_Answer, frozen=True, kw_only=True, tag="rows", tag_field="event"):
    """The rows of one frame, identified by ``stream`` and ``number``."""

    stream: str
    number: int
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    watermark_ms: int
    delay_ms: int


class Finished(_Answer, frozen=True, kw_only=True, tag="finished", tag_field="event"):
    """No row will follow."""

    state: str
    reason: str = ""


class Flow(_Answer, frozen=True, kw_only=True):
    rows_s: float | None = None
    bytes_s: float | None = None
    row_bytes: float | None = None
    selectivity: float | None = None


class ExplainedComponent(_Answer, frozen=True, kw_only=True):
    id: str
    kind: str
    node: str
    state: str
    reason: str = ""
    reads: tuple[str, ...] = ()
    fragment: str = ""
    signature: str = ""
    estimated: Flow = Flow()
    measured: Flow = Flow()
    remembered: bool = False
    late: int | None = None
    rows: int | None = None
    watermark_ms: int | None = None
    ended: bool = False
    batch_ms: float | None = None
    under_way_s: float | None = None
    under_way_rows: int = 0
    under_way_bytes: int = 0


class ExplainedLink(_Answer, frozen=True, kw_only=True):
    stream: str
    source_node: str
    target: str
    target_node: str
    latency_ms: float | None
    bytes_s: float
    usage: float | None
    measured_bytes_s: float | None = None
    measured_usage: float | None = None


class Explanation(_Answer, frozen=True, kw_only=True):
    """A plan; usages are sums over links, in bytes in flight."""

    query: str
    sql: str
    state: str
    reason: str = ""
    strategy: str
    consumer: str
    parts: tuple[ExplainedComponent, ...]
    links: tuple[ExplainedLink, ...]
    usage: float | None
    baseline_usage: float | None
    measured_usage: float | None = None
    measured_baseline_usage: float | None = None

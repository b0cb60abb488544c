"""Explanation of a plan."""

from __future__ import annotations

from .queries import MoveInfo
from .shown import Shown


class Flow(Shown, frozen=True, kw_only=True):
    rows_s: float | None = None
    bytes_s: float | None = None
    row_bytes: float | None = None
    selectivity: float | None = None


class ExplainedComponent(Shown, frozen=True, kw_only=True):
    id: str
    kind: str
    node: str
    state: str
    reason: str = ""
    reads: tuple[str, ...] = ()
    result_of: str = ""
    fragment: str = ""
    signature: str = ""
    estimated: Flow = Flow()
    measured: Flow = Flow()
    remembered: bool = False
    ratio: float | None = None
    late: int | None = None
    rows: int | None = None
    watermark_ms: int | None = None
    ended: bool = False
    batch_ms: float | None = None
    under_way_s: float | None = None
    under_way_rows: int = 0
    under_way_bytes: int = 0
    state_provider: str = ""
    state_mb: float | None = None
    move: MoveInfo | None = None
    queries: tuple[str, ...] = ()


class ExplainedLink(Shown, frozen=True, kw_only=True):
    stream: str
    source_node: str
    target: str
    target_node: str
    latency_ms: float | None
    bytes_s: float
    usage: float | None
    measured_bytes_s: float | None = None
    measured_usage: float | None = None
    queries: int = 1


class Explanation(Shown, frozen=True, kw_only=True):
    """A plan; usages are sums over links, in bytes in flight."""

    query: str
    sql: str
    state: str
    reason: str = ""
    strategy: str
    consumer: str
    components: tuple[ExplainedComponent, ...]
    links: tuple[ExplainedLink, ...]
    usage: float | None
    baseline_usage: float | None
    measured_usage: float | None = None
    measured_baseline_usage: float | None = None
    saved_usage: float = 0.0
    median_ratio: float | None = None
    worst_ratio: float | None = None

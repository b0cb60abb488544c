"""Explanation of a plan: estimated and measured flows, and their network usage."""

from __future__ import annotations

from typing import Literal

from sbon_protocol.api.queries import MoveInfo
from sbon_protocol.api.shown import Shown


class Flow(Shown, frozen=True, kw_only=True):
    """Output of a part of the plan; None if unknown. ``selectivity`` is rows out for one row in."""

    rows_s: float | None = None
    bytes_s: float | None = None
    row_bytes: float | None = None
    selectivity: float | None = None


class ExplainedComponent(Shown, frozen=True, kw_only=True):
    """The sink, an operator, or a source; ``reads`` are the ids of its inputs."""

    id: str
    kind: Literal["sink", "operator", "source"]
    node: str
    """Its current node, or the strategy's current choice."""
    state: str
    """State of the operator or source; ``planned`` if nothing runs."""
    reason: str = ""
    reads: tuple[str, ...] = ()
    result_of: str = ""
    """For a source: the query whose result its stream is, if it is any's."""
    fragment: str = ""
    signature: str = ""
    estimated: Flow = Flow()
    """From declarations and samples, without measurements."""
    measured: Flow = Flow()
    """Measured while it runs; otherwise the remembered values of an equal operator, at the planned rates of its inputs."""
    remembered: bool = False
    """Whether the plan used a measurement of an equal part instead of the estimate."""
    ratio: float | None = None
    """Estimated over measured rows: of an operator, for the rows that it has read; of a source, a second. While nothing runs, of
    the last run of an equal operator. None if unknown.
    """
    late: int | None = None
    """For a source: rows dropped because they came later than the stream's delay allows."""
    rows: int | None = None
    """Rows that have left it, or that the sink has taken. None if unknown."""
    watermark_ms: int | None = None
    """Watermark of a source or operator (ms since 1970): no row that follows is earlier. None if unknown."""
    ended: bool = False
    """Whether no row will follow at all."""
    batch_ms: float | None = None
    """For an operator: time per batch, later batches counting more; None before the first batch."""
    under_way_s: float | None = None
    """For an operator: the age of its running batch, which has read ``under_way_rows``; None if no batch runs."""
    under_way_rows: int = 0
    under_way_bytes: int = 0
    state_provider: str = ""
    """For an operator with state: where it keeps it, ``hdfs`` or ``rocksdb``; ``state_mb`` megabytes are expected."""
    state_mb: float | None = None
    move: MoveInfo | None = None
    """For an operator: its move to another node, while one is under way."""
    queries: tuple[str, ...] = ()
    """For an operator that several queries share: their uids, that of this query too once it runs."""


class ExplainedLink(Shown, frozen=True, kw_only=True):
    """Flow from one part to another; ``usage`` is its rate x one-way latency, in bytes."""

    stream: str
    source_node: str
    target: str
    target_node: str
    latency_ms: float | None
    """None if the latency, and therefore the usage, is unknown."""
    bytes_s: float
    """The planned rate, which the placement uses."""
    usage: float | None
    measured_bytes_s: float | None = None
    """The recent rate at which the stream grows."""
    measured_usage: float | None = None
    """The mean usage since the query began, of the bytes that its :class:`~sbon_protocol.api.usage.QueryUsage` counts."""
    queries: int = 1
    """Queries that share the target: each bears an equal part of the usage, which is that of one."""


class Explanation(Shown, frozen=True, kw_only=True):
    """Explanation of a plan: ``components`` in the order of the tree, the sink first; usages are sums over links, in bytes."""

    query: str
    """Empty if nothing runs."""
    sql: str
    state: str
    reason: str = ""
    strategy: str
    consumer: str
    components: tuple[ExplainedComponent, ...]
    links: tuple[ExplainedLink, ...]
    usage: float | None
    """Predicted by the planned rates; None unless the latency of every link is known."""
    baseline_usage: float | None
    """Predicted usage of the consumer baseline."""
    measured_usage: float | None = None
    """Its :class:`~sbon_protocol.api.usage.QueryUsage` over the time since it began; None unless every latency is known."""
    measured_baseline_usage: float | None = None
    saved_usage: float = 0.0
    """Predicted usage that the query would have in addition with operators of its own in place of shared ones, at their nodes."""
    median_ratio: float | None = None
    """Factors by which estimated rows of the operators were more than the measured ones, or less."""
    worst_ratio: float | None = None

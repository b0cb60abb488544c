"""Network usage of a query, by link and over time."""

from __future__ import annotations

from sbon_protocol.api.shown import Shown


class LinkUsage(Shown, frozen=True, kw_only=True):
    stream: str
    source_node: str
    target_node: str
    bytes: int
    latency_ms: float | None
    byte_ms: float | None
    """This query's part of the cost; None, as ``latency_ms``, if the latency is unknown."""
    queries: int = 1
    """Queries that share the reader, and divide the cost of the link."""


class QueryUsagePoint(Shown, frozen=True, kw_only=True):
    """Sums of network usage at ``at_ms``, by the query holder's clock, and the query's progress then.

    Progress is None if it was unknown.
    """

    at_ms: int
    byte_ms: float
    baseline_byte_ms: float
    rows_in: int | None = None
    """Rows that its operators had read from sources."""
    rows_out: int | None = None
    """Rows that its sink had delivered."""
    lag_ms: int | None = None
    """Lag of the slowest operator behind the newest source below it, in event time."""
    batch_ms: float | None = None
    """Longest time per batch among its operators."""
    held_back: int | None = None
    """Number of operators that waited for their readers, or for their other inputs."""


class QueryUsage(Shown, frozen=True, kw_only=True):
    """Network usage of a query against the consumer baseline; the sums are of known values.

    ``history`` are its sums so far, oldest first, since the query began or its holder started: dense for recent times.
    Differences between points, over the time between them, are network usage in bytes.
    """

    query: str
    strategy: str
    links: tuple[LinkUsage, ...]
    baseline: tuple[LinkUsage, ...]
    byte_ms: float
    baseline_byte_ms: float
    skipped: int = 0
    """Rows that its operators have skipped because of an expression's error."""
    at_ms: int = 0
    """Time of its computation, by the same clock as its history."""
    now: QueryUsagePoint | None = None
    """Its current values as a point of its history."""
    history: tuple[QueryUsagePoint, ...] = ()

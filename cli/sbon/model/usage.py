"""Network usage of a query."""

from __future__ import annotations

from .shown import Shown


class LinkUsage(Shown, frozen=True, kw_only=True):
    stream: str
    source_node: str
    target_node: str
    bytes: int
    latency_ms: float | None
    byte_ms: float | None
    queries: int = 1


class QueryUsagePoint(Shown, frozen=True, kw_only=True):
    at_ms: int
    byte_ms: float
    baseline_byte_ms: float
    rows_in: int | None = None
    rows_out: int | None = None
    lag_ms: int | None = None
    batch_ms: float | None = None
    held_back: int | None = None


class QueryUsage(Shown, frozen=True, kw_only=True):
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

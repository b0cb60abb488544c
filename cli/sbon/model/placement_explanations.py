"""Explanation of a placement: the alternatives and their costs (docs/api.md)."""

from __future__ import annotations

import msgspec

from .plans import Needs
from .shown import Shown


class WeighedNode(Shown, frozen=True, kw_only=True):
    node: str
    distance_ms: float | None = None
    predicted: float | None = None
    measured: float | None = None
    delay_ms: float | None = None
    free: Needs | None = None
    lost: str = ""


class WeighedOperator(Shown, frozen=True, kw_only=True):
    id: str
    node: str
    now: str
    reason: str = ""
    virtual: tuple[float, ...] = ()
    needs: Needs
    candidates: tuple[WeighedNode, ...] = ()


class WeighedLink(Shown, frozen=True, kw_only=True):
    source: str
    target: str
    source_node: str
    target_node: str
    rate_bytes_s: float
    latency_ms: float | None
    known: str
    age_s: float | None
    rate_measured: bool = False


class Alternative(Shown, frozen=True, kw_only=True):
    strategy: str
    hosts: dict[str, str] = msgspec.field(default_factory=dict)
    cost: float | None = None
    usage: float | None = None
    delay_ms: float | None = None
    bandwidth_bytes_s: float | None = None
    probes: int = 0
    refused: str = ""
    breaks: str = ""
    knows: str = ""
    sends: str = ""
    adapts: str = ""
    lost: str = ""


class BoundCheck(Shown, frozen=True, kw_only=True):
    bound: str
    where: str = ""
    limit: float | None
    value: float | None
    slack: float | None


class TurningPoint(Shown, frozen=True, kw_only=True):
    a: str
    b: str
    latency_ms: float | None
    known: str
    age_s: float | None
    below_ms: float | None = None
    moves_below: dict[str, str] = msgspec.field(default_factory=dict)
    above_ms: float | None = None
    moves_above: dict[str, str] = msgspec.field(default_factory=dict)


class KnownNode(Shown, frozen=True, kw_only=True):
    node: str
    vector: tuple[float, ...] | None
    height_ms: float = 0.0
    load_ms: float = 0.0
    age_s: float | None = None


class PlacementExplanation(Shown, frozen=True, kw_only=True):
    """Costs are by the objective; usage is in bytes in transit, latencies are one-way in milliseconds."""

    strategy: str = ""
    objective: str = ""
    max_delay_ms: float | None = None
    min_throughput_bytes_s: float | None = None
    query: str
    sql: str
    state: str
    consumer: str
    pinned: dict[str, str]
    away: dict[str, str]
    current: Alternative
    now: Alternative
    now_reason: str = ""
    best: Alternative
    operators: tuple[WeighedOperator, ...]
    links: tuple[WeighedLink, ...]
    strategies: tuple[Alternative, ...]
    checks: tuple[BoundCheck, ...]
    turns: tuple[TurningPoint, ...]
    settled: int = 0
    nodes: tuple[KnownNode, ...]

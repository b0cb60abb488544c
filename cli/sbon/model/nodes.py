"""Nodes, members, round-trip times and readiness."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from .shown import Columns, Shown


class HeldCapacity(Shown, frozen=True, kw_only=True):
    """Capacity that one operator holds at a node; ``use`` is operator, arrival, follower, backup or reserved."""

    operator: str
    use: str
    cores: float
    memory_mb: float
    bandwidth_bytes_s: float


class NodeCapacity(Shown, frozen=True, kw_only=True):
    """Capacity of a node in all, and its holders; ``taken`` of its ``operators`` places are taken."""

    operators: int
    cores: float
    memory_mb: float
    bandwidth_bytes_s: float
    taken: int = 0
    held: tuple[HeldCapacity, ...] = ()


class NodeStatus(Shown, frozen=True, kw_only=True):
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
    capacity: NodeCapacity | None = None
    drained: bool = False
    ready: bool | None = None
    reasons: tuple[str, ...] = ()
    counters: dict[str, int]


class MemberInfo(Shown, frozen=True, kw_only=True):
    COLUMNS: ClassVar[Columns] = {
        one: one for one in ("name", "state", "address", "api", "rtt_ms", "measured", "tags", "version")
    }
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
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    cores: float = 0.0
    memory_mb: float = 0.0
    version: str = ""
    ready: bool | None = None
    reasons: tuple[str, ...] = ()


class RttRequest(Shown, frozen=True, kw_only=True):
    """Request for round-trip times; an empty name is the node that is asked. ``cached`` measures nothing."""

    pairs: tuple[tuple[str, str], ...]
    max_age_s: float | None = None
    cached: bool = False


class PairInfo(Shown, frozen=True, kw_only=True):
    """Round-trip times between two nodes; ``code``, ``reason``, ``where`` and ``hint`` say why a measurement failed."""

    a: str
    b: str
    coordinates_ms: float | None
    measured_ms: float | None = None
    age_s: float | None = None
    by: str = ""
    estimate_ms: float | None
    estimate_source: str
    code: str = ""
    reason: str = ""
    where: str = ""
    hint: str = ""


class Joined(Shown, frozen=True, kw_only=True):
    """Number of the members known after a join."""

    members: int


class Reason(Shown, frozen=True, kw_only=True):
    """A reason against readiness; ``weight`` is ``unready`` or ``impaired``."""

    code: str
    weight: str
    message: str
    hint: str = ""


class Readiness(Shown, frozen=True, kw_only=True):
    """Whether the node can do its work; ``reasons`` start with the worst."""

    ready: bool
    reasons: tuple[Reason, ...] = ()

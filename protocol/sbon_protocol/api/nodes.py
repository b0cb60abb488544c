"""Nodes, members and round-trip times; for the keeper of a node also its memory, its disk and a debug dump."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from sbon_protocol.api.shown import Columns, Shown
from sbon_protocol.errors import SbonError

CapacityUse = Literal["operator", "arrival", "follower", "backup", "reserved"]
"""Holders of capacity of a node: an operator that it hosts, one that moves to it, the follower of a hot operator, the backup of a
replicated one, or a reservation for an operator that has not started.
"""
HOSTED: Final = "operator"
ARRIVAL: Final = "arrival"
FOLLOWER: Final = "follower"
BACKUP: Final = "backup"
RESERVED: Final = "reserved"


class HeldCapacity(Shown, frozen=True, kw_only=True):
    """Capacity that one operator holds at a node: measured once it runs there, estimated before."""

    operator: str
    use: CapacityUse
    cores: float
    memory_mb: float
    bandwidth_bytes_s: float


class NodeCapacity(Shown, frozen=True, kw_only=True):
    """The operators, cores, memory and bandwidth that a node has in all, and what holds them.

    ``taken`` is the number of operators that count against the bound ``operators``: all but backups.
    """

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
    """``idle`` (no JVM), ``starting``, ``running`` or ``failed: reason``."""
    coordinate: tuple[float, ...]
    height: float
    """Height of the coordinate, in milliseconds."""
    error: float
    load: float
    load_per_core: float | None = None
    """Runnable processes for each core: ``load`` over ``space.load_weight_ms``; None if that is 0."""
    members: int
    operators: tuple[str, ...]
    capacity: NodeCapacity | None = None
    """None where the node does not report it."""
    drained: bool = False
    ready: bool | None = None
    """Whether it can do its work, as it tells all members; None before it has."""
    reasons: tuple[str, ...] = ()
    """Codes of the reasons why it cannot, or only in part; the worst first."""
    counters: dict[str, int]
    """Counts of everything refused, by kind: dropped datagrams, refused frames, bad rows ..."""


class MemberInfo(Shown, frozen=True, kw_only=True):
    name: str

    COLUMNS: ClassVar[Columns] = {
        one: one for one in ("name", "state", "address", "api", "rtt_ms", "measured", "tags", "version")
    }
    state: str
    address: str
    api: str
    incarnation: int
    coordinate: tuple[float, ...] | None
    """Coordinate in the latency dimensions; milliseconds."""
    rtt_ms: float | None
    """Round-trip time from this node: measured, or else estimated from the coordinates."""
    measured: bool
    height_ms: float | None = None
    """Height: the part of its coordinate that is added to every latency."""
    load_ms: float | None = None
    """Coordinate in the load dimension."""
    load_per_core: float | None = None
    """Runnable processes for each core, by the asked node's weight of load."""
    distance_ms: float | None = None
    """As ``rtt_ms``, but from the node whose nearest nodes were requested."""
    distance_measured: bool = False
    tags: dict[str, str] = {}
    cores: float = 0.0
    """Total cores, as ``memory_mb`` is the total memory; 0 if unknown."""
    memory_mb: float = 0.0
    version: str = ""
    """Version of its program; empty if unknown."""
    ready: bool | None = None
    """Whether it says that it can do its work; None if it says nothing, or is not there."""
    reasons: tuple[str, ...] = ()
    """Codes of the reasons why it cannot, or only in part, as of ``/readyz``; the worst first."""


class RttRequest(Shown, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request for round-trip times; an empty name is the node that is asked."""

    pairs: Annotated[tuple[tuple[str, str], ...], Meta(min_length=1, max_length=4096)]
    max_age_s: Annotated[float, Meta(ge=0)] | None = None
    """Older measurements are repeated; the default limit is ``directory.fresh_s``."""
    cached: bool = False
    """Whether to return only known values, and measure nothing."""


class PairInfo(Shown, frozen=True, kw_only=True):
    """Round-trip times between two nodes, in milliseconds; None if unknown."""

    a: str
    b: str
    coordinates_ms: float | None
    """Estimate from the coordinates alone."""
    measured_ms: float | None = None
    """The least of three pings, by the node ``by``, ``age_s`` seconds ago."""
    age_s: float | None = None
    by: str = ""
    estimate_ms: float | None
    """The estimate that placement uses.

    Its source is this node's own ``probes``, a pair that was ``measured``, or ``coordinates``.
    """
    estimate_source: str
    code: str = ""
    """Why a requested measurement failed; as in an error, with ``reason``, ``where`` and ``hint``."""
    reason: str = ""
    where: str = ""
    hint: str = ""


class MachineUsagePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A node's use of its machine at ``at_ms``, by its own clock.

    Processor use in cores since the previous point, and resident memory. The engine's values are None if it did not run.
    """

    at_ms: int
    cores: float
    memory_bytes: int
    engine_cores: float | None = None
    engine_memory_bytes: int | None = None


Weight = Literal["unready", "impaired"]


class Reason(Shown, frozen=True, kw_only=True):
    """A reason: ``unready`` means that the node cannot work, ``impaired`` that it works partly or not for long."""

    code: str
    weight: Weight
    message: str
    hint: str = ""


class Readiness(Shown, frozen=True, kw_only=True):
    """Readiness; ``reasons`` start with the worst."""

    ready: bool
    reasons: tuple[Reason, ...] = ()


class Problem(msgspec.Struct, frozen=True, kw_only=True, tag="problem", tag_field="event"):
    """An :class:`SbonError` as it travels; on an event stream it is the last event."""

    code: str
    message: str
    where: str = ""
    hint: str = ""
    details: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: SbonError) -> Problem:
        return cls(code=error.code, message=error.message, where=error.where, hint=error.hint, details=error.details)

    def error(self) -> SbonError:
        return SbonError(self.code, self.message, where=self.where, hint=self.hint, details=self.details)


class Joined(Shown, frozen=True, kw_only=True):
    """Number of known members."""

    members: int


class DebugDump(msgspec.Struct, frozen=True, kw_only=True):
    """A debug dump without secrets.

    ``log`` holds the last lines of the node's log, ``engine_log`` the end of the engine's.
    """

    versions: dict[str, str]
    config: dict[str, Any]
    tasks: tuple[str, ...]
    threads: tuple[str, ...]
    log: tuple[str, ...]
    engine_log: tuple[str, ...]


ProcessKind = Literal["daemon", "planner", "engine", "jvm", "zygote", "python"]
"""The node itself, its planner, its engine process with the JVM and the fork server, and Spark's Python processes."""

DiskKind = Literal[
    "stream",
    "outbox-overhead",
    "outbox-free",
    "outbox-wal",
    "records",
    "checkpoint",
    "spill",
    "dead-letters",
    "delivery-positions",
    "scratch",
    "log",
    "other",
]


class ProcessMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one process in bytes.

    ``proportional_bytes`` counts a page shared by n processes as an n-th; None where the system does not report it.
    """

    kind: ProcessKind
    pid: int
    resident_bytes: int
    proportional_bytes: int | None
    threads: int


class DiskPart(msgspec.Struct, frozen=True, kw_only=True):
    """Allocated bytes on disk for one purpose; ``name`` is the stream, operator, component or file, if there are several."""

    kind: DiskKind
    name: str
    bytes: int


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a node's processes, and parts of its data directory, the largest first. The parts add up to the directory."""

    processes: tuple[ProcessMemory, ...]
    disk: tuple[DiskPart, ...]

"""What a node tells of itself, its streams and its queries; and what a user asks of it. The HTTP API speaks these as JSON."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sbon_node.connectors.delivered import FOLLOW as FOLLOW
from sbon_node.connectors.delivered import LIVE as LIVE
from sbon_node.connectors.delivered import Finished as Finished
from sbon_node.connectors.delivered import QueryState as QueryState
from sbon_node.connectors.delivered import Rows as Rows
from sbon_node.connectors.delivered import SinkReport as SinkReport
from sbon_node.connectors.endpoints import shown
from sbon_node.engine.interface import Counted, EventTimeMs, OperatorStats, PerSecond
from sbon_node.placement.goal import Goal
from sbon_node.placement.problem import Placement
from sbon_node.query.catalog import CatalogEntry, SourceDeclaration
from sbon_node.query.plan import Decompose, Plan
from sbon_node.streams.counts import SpillCount

WallMs = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
"""Milliseconds since 1970 (UTC) by some node's clock, before the year 10000."""


class SinkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Where results go: ``follow`` (to whoever follows the query), or a sink with its options (docs/connectors.md)."""

    kind: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,62}$")] = FOLLOW
    options: dict[str, Any] = {}

    def shown(self) -> SinkSpec:
        """Without what gives access."""
        return msgspec.structs.replace(self, options=shown(self.options))


class Question(Goal, frozen=True, kw_only=True):
    """A query as the user gives it, and how it is to be placed; ``consumer`` is the node the rows go to, by default the one
    asked. Nothing comes of it but a plan."""

    sql: Annotated[str, Meta(min_length=1, max_length=65_536)]
    decompose: Decompose = "auto"
    join_window_ms: int | None = None
    """A join without a bound in time pairs rows whose event times are at most so far apart."""
    consumer: str = ""


class Submission(Question, frozen=True, kw_only=True):
    """A query that is to run."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^$|^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
            description="lower case letters, digits and - are allowed, at most 63, a letter or digit first and last",
        ),
    ] = ""
    sink: SinkSpec = SinkSpec()


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cluster: str
    address: str
    api: str
    version: str
    engine: str
    """``idle`` (no JVM), ``starting``, ``running`` or ``failed: reason``."""
    coordinate: tuple[float, ...]
    height: float
    """Milliseconds, as the coordinate."""
    error: float
    load: float
    members: int
    operators: tuple[str, ...]
    drained: bool = False
    counters: dict[str, int]
    """Dropped datagrams, refused frames, bad rows ...: everything that was refused, by kind."""


class MemberInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: str
    address: str
    api: str
    incarnation: int
    coordinate: tuple[float, ...] | None
    """Its place in the latency dimensions; milliseconds."""
    rtt_ms: float | None
    """Measured round trip from this node where there is one, else estimated from the coordinates."""
    measured: bool
    height_ms: float | None = None
    """What its coordinate adds to every way."""
    load_ms: float | None = None
    """Its place in the load dimension."""
    distance_ms: float | None = None
    """The same as ``rtt_ms``, from the node whose nearest were asked for."""
    distance_measured: bool = False
    tags: dict[str, str] = {}
    cores: float = 0.0
    """In all, as ``memory_mb``; 0 for unknown."""
    memory_mb: float = 0.0
    version: str = ""
    """Of the program it runs; empty for unknown."""


class RttQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Round-trip times that are wanted; an empty name is the node that is asked."""

    pairs: Annotated[tuple[tuple[str, str], ...], Meta(min_length=1, max_length=4096)]
    max_age_s: Annotated[float, Meta(ge=0)] | None = None
    """Older measurements are made anew; by default those that are not fresh (``directory.fresh_s``)."""
    cached: bool = False
    """Whether to tell only what is known, and to measure nothing."""


class PairInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Round-trip times between two nodes, in milliseconds; None for what is not known."""

    a: str
    b: str
    coordinates_ms: float | None
    """By the coordinates alone."""
    measured_ms: float | None = None
    """The least of three pings, by the node ``by``, ``age_s`` seconds ago."""
    age_s: float | None = None
    by: str = ""
    estimate_ms: float | None
    """What placement reckons with, and what that comes of: this node's own ``probes``, what was ``measured``, ``coordinates``."""
    estimate_source: str
    code: str = ""
    """Why it could not be measured, where it was to be; as in an error, with ``reason``, ``where`` and ``hint``."""
    reason: str = ""
    where: str = ""
    hint: str = ""


class SourceInfo(msgspec.Struct, frozen=True, kw_only=True):
    source: SourceDeclaration
    state: str
    """``idle``, ``running``, ``paused``, ``ended``, ``unreachable`` or ``failed: reason``."""
    trouble: str = ""
    """Why its rows do not come; it is tried again, unless it has ``failed``. Empty where it only waits for its subscribers."""
    rows: Counted = 0
    bytes: Counted = 0
    late: Counted = 0
    bad: Counted = 0
    too_large: Counted = 0
    dropped: Counted = 0
    """Rows of a live source that subscribers will never get, because they fell behind what is kept for them."""
    dead_letters: str = ""
    """The file, on the source's node, that keeps the bad rows with their line numbers."""
    rows_s: PerSecond | None = None
    """Measured while it runs, older seconds counting less; None before there is anything to tell."""
    bytes_s: PerSecond | None = None
    paced: bool = False
    """Whether it goes at a pace of its own, and not as fast as its subscribers take it."""
    watermark_ms: EventTimeMs | None = None
    """No row that follows is earlier; None before the first row."""


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    entry: CatalogEntry
    sources: tuple[SourceInfo, ...] = ()


class LinkInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One link and what it has carried: ``bytes`` x ``latency_ms`` (one way) is its line of the bill.

    Of a live source a subscriber may fall too far behind: it has then ``failed`` (``quota``) and lost ``dropped`` rows.
    """

    stream: str
    source_node: str
    target: str
    target_node: str
    rows: Counted
    bytes: Counted
    latency_ms: float | None
    """None where nothing is known of the way."""
    dropped: Counted = 0
    failed: str = ""


class OperatorInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    node: str
    fragment: str
    state: str
    """As its host has it; ``planned`` before it runs, ``missing`` where its host knows nothing of it, ``unreachable`` where that
    does not answer, ``over`` once the query is."""
    reason: str = ""
    stats: OperatorStats | None = OperatorStats()
    """Since it was started last; None where nothing is known of it."""
    spilled: SpillCount = SpillCount()
    watermark_ms: EventTimeMs | None = None
    """Of its output: no row that follows is earlier; None before that is known of any time, and once the output has ``ended``."""
    ended: bool = False


class ForeignPart(msgspec.Struct, frozen=True, kw_only=True):
    """An operator or sink at ``node``, of a query whose record ``holder`` holds."""

    query: str
    part: str
    node: str
    holder: str


class QueryInfo(Goal, frozen=True, kw_only=True):
    id: str
    sql: str
    state: QueryState
    """``unreachable``, in a list, where the node that holds its record does not answer: little else is known then."""
    reason: str = ""
    submitted_ms: WallMs = 0
    node: str = ""
    """The node that holds the query's record."""
    consumer: str = ""
    sink: SinkSpec = SinkSpec()
    strategy: str = ""
    plan: Plan | None = None
    placement: Placement | None = None
    operators: tuple[OperatorInfo, ...] = ()
    links: tuple[LinkInfo, ...] = ()
    rows: Counted | None = None
    """Rows the sink has delivered, restarts included; in a list, of a query that runs, as last counted. None where it is not
    known."""
    delivery: SinkReport | None = None
    """Of a sink that delivers by itself, as long as its node can be asked."""
    streams: tuple[str, ...] = ()
    """Names of the streams it reads."""
    sources: tuple[SourceInfo, ...] = ()
    """How the sources of its plan stand, in the plan's order; they count since they were attached, for all queries."""


class BillLine(msgspec.Struct, frozen=True, kw_only=True):
    stream: str
    source_node: str
    target_node: str
    bytes: int
    latency_ms: float | None
    byte_ms: float | None
    """None, as ``latency_ms``, where nothing is known of the way."""


class BillPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of a bill as they were at ``at_ms``, by the clock of the node that holds the query's record."""

    at_ms: int
    byte_ms: float
    whole_byte_ms: float


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """What a query cost the network, against shipping every source whole to the consumer; the sums are of what is known.

    ``history`` are its sums so far, oldest first: some 60 to 120 points over the time since the query began, or since the holder
    of its record has started. Differences between points, over the time between them, are bytes in flight.
    """

    query: str
    strategy: str
    links: tuple[BillLine, ...]
    whole: tuple[BillLine, ...]
    byte_ms: float
    whole_byte_ms: float
    at_ms: int = 0
    """When it was drawn up, by the same clock as its history."""
    history: tuple[BillPoint, ...] = ()


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress", tag_field="event"):
    """A step of a submission has begun or ended: ``parsing``, ``analysing``, ``placing``, ``reserving``, ``starting`` ..."""

    step: str
    message: str


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted", tag_field="event"):
    """The query runs; nothing more follows."""

    query: QueryInfo

"""Queries: submissions, and their state as the HTTP API shows it."""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Meta

from sbon_protocol.api.adaptation import MAX_PAST_MOVES, OFF, Adapt, MoveDecision, PastMove
from sbon_protocol.api.bounded import Counted, EventTimeMs, PerSecond, Share, WallMs
from sbon_protocol.api.delivery import FOLLOW, STREAM_SINK, Sample, SinkDelay, SinkReport
from sbon_protocol.api.durability import LOCAL, BackupInfo, Durability, Survival
from sbon_protocol.api.measures import OperatorMeasures
from sbon_protocol.api.moves import MoveProgress
from sbon_protocol.api.operators import OnError, OperatorStats, StateChoice
from sbon_protocol.api.placement import Placement
from sbon_protocol.api.plan import Decompose, Plan
from sbon_protocol.api.query_ids import MAX_SINKS
from sbon_protocol.api.sharing import MAX_REFERENCES, Reuse
from sbon_protocol.api.shown import Columns, Listing, Shown
from sbon_protocol.api.states.query_states import QueryState
from sbon_protocol.api.strategies import Goal
from sbon_protocol.api.streams import SourceInfo
from sbon_protocol.api.usage import SpillCount
from sbon_protocol.errors import SbonError

MAX_SHOWN_DECISIONS = 16
"""Most decisions in a description of an operator."""

ENGINE_STARTS = "its node's engine is starting"

Begin = Literal["earliest", "now"]
"""The rows that a query begins with."""


class SinkSpec(Shown, frozen=True, kw_only=True):
    """Destination of results: ``follow`` (the query's follower), or a sink with its options (docs/connectors.md).

    With ``failover``, another node takes the sink over if its node is lost.
    """

    kind: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,62}$")] = FOLLOW
    options: dict[str, Any] = {}
    failover: bool = False
    claim: Annotated[str, Meta(pattern=r"^([0-9a-f]{16})?$")] = ""
    """Random word of a sink with failover that marks its position; set by the node that takes the submission, and not shown."""


SinkBegin = Literal["", "earliest", "now"]
"""Where a further sink begins: with the first row, or after the newest; by default with the first if no row is gone."""


class SinkRequest(Shown, frozen=True, kw_only=True):
    """A further sink for a query that runs, at the node ``consumer``, by default the node that is asked."""

    sink: SinkSpec
    consumer: str = ""
    begin: SinkBegin = ""
    temporary: bool = False
    """Whether it is removed once its follower has left; for the sink ``follow`` alone."""

    def check(self) -> None:
        """Raise ``bad-sink`` for a sink that cannot be added."""
        if self.sink.kind == STREAM_SINK:
            hint = 'declare it with the query: sbon stream create NAME --as "SELECT ..."'
            raise SbonError("bad-sink", "a stream is made by a query's first sink alone", where="sink.kind", hint=hint)
        if self.sink.failover:
            hint = "add it without failover: it goes on once its node is back"
            raise SbonError("no-failover", "no other node takes over a further sink", where="sink.failover", hint=hint)
        if self.temporary and self.sink.kind != FOLLOW:
            raise SbonError("bad-sink", f"a sink {self.sink.kind} has no follower that could leave", where="temporary")


class SinkInfo(Shown, frozen=True, kw_only=True):
    """A further sink of a query."""

    id: str
    """Its id within the query, such as ``sink2``; that of a sink that was removed is used again."""
    node: str
    sink: SinkSpec
    state: str
    """A state of :mod:`.states.further_sink_states`."""
    reason: str = ""
    begins_after: Counted = 0
    """Rows of the result that it does not get, since it was added after them; 0 if it begins with the first row."""
    rows: Counted | None = None
    """Rows that it has delivered, or its follower has acknowledged, over all restarts; None if unknown."""
    temporary: bool = False
    """Whether it is removed once its follower has left."""
    delivery: SinkReport | None = None
    """Report of a sink that delivers by itself, as long as its node is reachable."""


class QuerySpec(Goal, frozen=True, kw_only=True):
    """A query as the user gives it, and its goal; planning it changes nothing.

    ``consumer`` is the node that the rows go to, by default the node that is asked.
    """

    sql: Annotated[str, Meta(min_length=1, max_length=65_536)]
    decompose: Decompose = "auto"
    join_window_ms: int | None = None
    """Largest difference of event times that a join without a time bound pairs."""
    on_error: OnError = "fail"
    """Handling of an expression's error for a row, such as a division by zero.

    The query fails, skips the row, or uses NULL for the expression.
    """
    state_provider: StateChoice | None = None
    """Where its operators keep their state; None for the setting ``query.state_provider`` of the node that plans."""
    consumer: str = ""
    adapt: Adapt | None = None
    """Whether, and how, its operators move by themselves; None for the setting ``adaptation.default`` of the node asked."""
    durability: Durability | None = None
    """Where the state of its operators is kept; None for the setting ``query.durability`` of the node asked."""
    begin: Begin = "earliest"
    """The rows that it begins with: the earliest that its sources have, or those later than all that they have now."""
    reuse: Reuse = "auto"
    """Whether it may read running operators of other queries in place of its own."""


class Submission(QuerySpec, frozen=True, kw_only=True):
    """A query to run."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^$|^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
            description="lower case letters, digits and - are allowed, at most 63, a letter or digit first and last",
        ),
    ] = ""
    sink: SinkSpec = SinkSpec()
    allow_restart_from_sources: bool = False
    """Whether the query begins anew, from frame 1 of its sources, if a part of it is lost with the nodes that had it."""

    def check(self) -> None:
        super().check()
        if self.begin == "now" and self.allow_restart_from_sources:
            hint = "leave one of the two out"
            reason = "a query that begins with rows from now on has none of before to begin anew with"
            raise SbonError("bad-begin", reason, where="allow_restart_from_sources", hint=hint)


class LinkInfo(Shown, frozen=True, kw_only=True):
    """A link and its traffic: what it bears of its ``bytes`` x ``latency_ms`` (one-way) is its share of the network usage.

    A subscriber of a live source may fall too far behind: the link has then ``failed`` (``quota``) and lost ``dropped`` rows.
    """

    stream: str
    source_node: str
    target: str
    target_node: str
    rows: Counted
    bytes: Counted
    latency_ms: float | None
    """None if the latency is unknown."""
    dropped: Counted = 0
    failed: str = ""
    frames_behind: Counted = 0
    """Visible frames that the target has not finished with, and their bytes as credits count."""
    bytes_behind: Counted = 0
    queries: Annotated[int, Meta(ge=1, le=MAX_REFERENCES)] = 1
    """Queries that share the target, each of which bears an equal part of the cost."""
    saved_bytes: Counted = 0
    """Bytes of these that other readers at the same node bear: a frame crosses once for all of them, in equal parts."""

    @property
    def borne_bytes(self) -> int:
        return max(0, self.bytes - self.saved_bytes)


class MoveInfo(Shown, frozen=True, kw_only=True):
    """A move under way, of an operator to node ``target``: its step, and how far it is, as of :class:`.moves.Moving`."""

    target: str
    step: str
    progress: MoveProgress = MoveProgress()


class OperatorInfo(Shown, frozen=True, kw_only=True):
    id: str
    node: str
    fragment: str
    state: str
    """A state of :mod:`.states.operator_states`: as its host reports it, or as another node derives it."""
    reason: str = ""
    held_back: bool = False
    """Whether it takes no batch of its available input, for the ``reason`` given."""
    epoch: Counted = 0
    """Number of its owner, which grows with each move and restart; 0 if unknown."""
    durability: Durability = LOCAL
    backup: BackupInfo | None = None
    """None if it is local, or if its host does not report it."""
    stats: OperatorStats | None = OperatorStats()
    """Counts since it began, at all of its hosts; None if unknown."""
    spilled: SpillCount = SpillCount()
    watermark_ms: EventTimeMs | None = None
    """Watermark of its output: no row that follows is earlier.

    None before the first watermark, and once the output has ``ended``.
    """
    ended: bool = False
    skipped: Counted = 0
    """Rows with a failed expression, with ``--on-error skip``; a group whose sum overflows counts as a single row."""
    dead_letters: str = ""
    """The file, on its node, that keeps the skipped rows with expression and reason."""
    move: MoveInfo | None = None
    """Its move to another node, while one is under way."""
    measures: OperatorMeasures | None = None
    """Its rates and work, weighted towards the present; None while it does not run."""
    past_moves: Annotated[tuple[PastMove, ...], Meta(max_length=MAX_PAST_MOVES)] = ()
    """Its newest moves, whatever was their cause."""
    decisions: Annotated[tuple[MoveDecision, ...], Meta(max_length=MAX_SHOWN_DECISIONS)] = ()
    """The newest decisions of its host, and of its query's leader, to move it or not; oldest first."""
    queries: Annotated[tuple[Annotated[str, Meta(max_length=160)], ...], Meta(max_length=MAX_REFERENCES)] = ()
    """The uids of the queries that share it; none if it is one query's alone."""


class ForeignComponent(msgspec.Struct, frozen=True, kw_only=True):
    """An operator or sink at ``node``, of a query whose record ``node`` does not keep; ``acceptors`` kept it at its start."""

    query: str
    component: str
    node: str
    acceptors: tuple[str, ...]


class QueryProgress(Shown, frozen=True, kw_only=True):
    """Progress of a query; None for unknown values."""

    rows_in: Counted
    """Rows of its sources that its operators have taken."""
    rows_out: Counted | None
    """Rows its sink has delivered."""
    read_share: Share | None
    """Share of its sources' rows that it has taken; None if a source is endless or unreachable."""
    endless: tuple[str, ...] = ()
    """Sources without an end. The result of another query is none of them: it ends with that query, if that has an end."""
    rows_in_s: PerSecond | None = None
    rows_out_s: PerSecond | None = None
    lag_ms: Counted | None = None
    """Lag of its output behind its sources, in event time."""
    left_s: Annotated[float, Meta(ge=0)] | None = None
    """Estimate of the time left, at the mean pace since its submission."""


class QueryInfo(Goal, frozen=True, kw_only=True):
    """A query as its leader knows it."""

    COLUMNS: ClassVar[Columns] = {one: one for one in ("id", "state", "reason", "consumer", "strategy", "rows", "sql")}

    id: str
    """The name, which a later query may have again once this one is over."""
    uid: str = ""
    """The identifier that no other query has."""
    sql: str
    state: QueryState
    """In a list, ``unreachable`` if no acceptor answers: little else is known then."""
    reason: str = ""
    submitted_ms: WallMs = 0
    node: str = ""
    """The query's leader: the first of its ``acceptors`` that lives."""
    acceptors: tuple[str, ...] = ()
    """The nodes that keep its record."""
    version: int = 0
    """Changes of its record so far."""
    restarted_from: str = ""
    """The uid of the query that it replaces: a part of that was lost, and this one has begun anew from the sources."""
    restart: str = ""
    """For users: whether it begins, or has begun, anew from its sources, and what that means for its rows."""
    stale: bool = False
    """Whether no majority of the acceptors confirms this: the query may have changed since; ``reason`` says why."""
    consumer: str = ""
    sink: SinkSpec = SinkSpec()
    """Its first sink, at the node ``consumer``, with which it ends."""
    sinks: Annotated[tuple[SinkInfo, ...], Meta(max_length=MAX_SINKS)] = ()
    """Further sinks, which were added while it ran."""
    strategy: str = ""
    adapt: Adapt = OFF
    durability: Durability = LOCAL
    on_error: OnError = "fail"
    plan: Plan | None = None
    placement: Placement | None = None
    operators: tuple[OperatorInfo, ...] = ()
    shared: tuple[OperatorInfo, ...] = ()
    """Operators of other queries that it reads, and those that feed them."""
    links: tuple[LinkInfo, ...] = ()
    rows: Counted | None = None
    """Rows that the sink has delivered, over all restarts; None if unknown.

    In a list, the last count of a running query.
    """
    delivery: SinkReport | None = None
    """Report of a sink that delivers by itself, as long as its node is reachable."""
    sink_lost: bool = False
    """The consumer's node answers, but does not know the sink."""
    sample: Sample | None = None
    """The newest rows of its sink, cut for display; None in a list, without rows, or if no node answers."""
    streams: tuple[str, ...] = ()
    """Names of the streams it reads."""
    sources: tuple[SourceInfo, ...] = ()
    """States of the plan's sources, in the plan's order; they count since their attachment, for all queries."""
    progress: QueryProgress | None = None
    """None in a list."""
    delay: SinkDelay | None = None
    """Delay of its newest rows up to the consumer's node; None in a list, and while no node reports it."""
    survival: Survival | None = None
    """Its losses with each of its nodes; None in a list, and while it does not run."""

    def hosts(self) -> dict[str, str]:
        """Return the nodes of its operators by id: where they are now, or else where they were placed."""
        placed = self.placement.hosts() if self.placement is not None else {}
        return placed | {operator.id: operator.node for operator in self.operators if operator.node}


class Unanswered(NamedTuple):
    """A member that did not answer, with its state at the node that asked: ``dead``, ``away``, ``suspect`` or ``alive``."""

    node: str
    state: str

    def __str__(self) -> str:
        return f"{self.node} ({self.state})"


class QueryList(Listing[QueryInfo]):
    """Queries; the members in ``unanswered`` may hold more."""

    def __init__(self, queries: Iterable[QueryInfo] = (), unanswered: Iterable[Unanswered] = ()) -> None:
        super().__init__(queries)
        self.unanswered = tuple(unanswered)


class Progress(Shown, frozen=True, kw_only=True, tag="progress", tag_field="event"):
    """Begin or end of a submission's step: ``parsing``, ``analysing``, ``placing``, ``reserving``, ``starting`` ...

    ``query`` is the id that the query is to have, in the first step of each attempt: who gives up the submission can stop it by
    that, and no other query of its name.
    """

    step: str
    message: str
    query: str = ""


class Accepted(Shown, frozen=True, kw_only=True, tag="accepted", tag_field="event"):
    """The query runs; nothing more follows.

    ``seconds`` are the times of the steps of the submission: ``plan``, ``analyse`` (the engine's analysis of fragments),
    ``share`` (the search for running operators), ``place``, ``reserve`` and ``start``.
    """

    query: QueryInfo
    seconds: dict[str, float] = {}

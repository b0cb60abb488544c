"""Queries: submissions, records, and the events of a submission and of a query's rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import msgspec

from .durability import BackupInfo, Survival
from .plans import Placement, Plan
from .shown import Columns, Listing, Shown
from .sinks import SinkInfo, SinkReport, SinkSpec
from .streams import SourceInfo


class QuerySpec(Shown, frozen=True, kw_only=True):
    """A query and the goal of its placement; the node checks the values (docs/api.md)."""

    sql: str
    strategy: str = "hybrid"
    objective: str = "usage"
    max_delay_ms: float | None = None
    min_throughput_bytes_s: float | None = None
    decompose: str = "auto"
    join_window_ms: int | None = None
    on_error: str = "fail"
    state_provider: str | None = None
    consumer: str = ""
    adapt: str | None = None
    durability: str | None = None
    begin: str = "earliest"
    reuse: str = "auto"


class Submission(QuerySpec, frozen=True, kw_only=True):
    """A query to run."""

    name: str = ""
    sink: SinkSpec = SinkSpec()
    allow_restart_from_sources: bool = False


class Sample(Shown, frozen=True, kw_only=True):
    """The newest rows of a query, as shortened texts for people."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]


class OperatorStats(Shown, frozen=True, kw_only=True):
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


class SpillCount(Shown, frozen=True, kw_only=True):
    frames: int = 0
    bytes: int = 0
    now_bytes: int = 0


class InputMeasures(Shown, frozen=True, kw_only=True):
    """Measures of one input; the frames that wait have been received and not finished with."""

    stream: str
    rows_s: float | None = None
    bytes_s: float | None = None
    waiting_frames: int = 0
    waiting_bytes: int = 0
    clock_error_ms: float | None = None


class OperatorMeasures(Shown, frozen=True, kw_only=True):
    """Measures of a running operator, weighted towards the present; None before the first measurement.

    A row of input takes ``row_ms`` of its host's time on average, with a squared coefficient of variation of ``row_scv``.
    ``cpu_row_ms`` and ``cpu_row_scv`` are the same of processor time at speed 1.
    """

    seconds: float = 0.0
    inputs: tuple[InputMeasures, ...] = ()
    rows_out_s: float | None = None
    bytes_out_s: float | None = None
    selectivity: float | None = None
    batches_s: float | None = None
    batch_ms: float | None = None
    row_ms: float | None = None
    row_scv: float | None = None
    cpu_row_ms: float | None = None
    cpu_row_scv: float | None = None
    busy: float | None = None
    state_bytes: int | None = None
    core_ms: float | None = None

    @property
    def rows_in_s(self) -> float | None:
        """Rows a second of all inputs together."""
        rates = [read.rows_s for read in self.inputs if read.rows_s is not None]
        return sum(rates) if rates else None


class MoveProgress(Shown, frozen=True, kw_only=True):
    """``copied_bytes`` of ``total_bytes`` of state are copied; the follower has still to read ``frames_behind`` frames of input.

    ``total_bytes`` is 0 until the list of files has arrived.
    """

    copied_bytes: int = 0
    total_bytes: int = 0
    frames_behind: int = 0


class MoveInfo(Shown, frozen=True, kw_only=True):
    """A move under way, of an operator to node ``target``: its step, and how far it is."""

    target: str
    step: str
    progress: MoveProgress = MoveProgress()


class PastMove(Shown, frozen=True, kw_only=True):
    """A move that an operator has made: the host ``node`` that it left, when, and why."""

    node: str
    at_ms: int
    reason: str = ""


class MoveDecision(Shown, frozen=True, kw_only=True):
    """A decision of an operator's host, or of the ``leader`` of its query: the operator ``moves`` or ``stays``.

    Equal decisions in a row are one, made ``times`` times.

    Usage of its links, here and at ``target``, is in bytes in transit, the ``cost`` of the move in bytes in transit x seconds.
    """

    operator: str
    node: str
    at_ms: int
    verdict: str
    code: str
    reason: str
    target: str = ""
    usage: float | None = None
    usage_there: float | None = None
    cost: float | None = None
    virtual_moved_ms: float | None = None
    probes: int = 0
    times: int = 1
    outcome: str = ""
    leader: str = ""


class OperatorInfo(Shown, frozen=True, kw_only=True):
    id: str
    node: str
    fragment: str
    state: str
    reason: str = ""
    epoch: int = 0
    durability: str = "local"
    backup: BackupInfo | None = None
    stats: OperatorStats | None = OperatorStats()
    spilled: SpillCount = SpillCount()
    watermark_ms: int | None = None
    ended: bool = False
    skipped: int = 0
    dead_letters: str = ""
    move: MoveInfo | None = None
    measures: OperatorMeasures | None = None
    past_moves: tuple[PastMove, ...] = ()
    decisions: tuple[MoveDecision, ...] = ()
    queries: tuple[str, ...] = ()


class LinkInfo(Shown, frozen=True, kw_only=True):
    stream: str
    source_node: str
    target: str
    target_node: str
    rows: int
    bytes: int
    latency_ms: float | None
    dropped: int = 0
    failed: str = ""
    frames_behind: int = 0
    bytes_behind: int = 0
    queries: int = 1
    saved_bytes: int = 0


class SinkDelay(Shown, frozen=True, kw_only=True):
    """Delay of the newest rows from their source to the sink, at most ``error_ms`` wrong; None where it is unknown.

    ``frames`` count, ``undated`` frames do not, since the clock of a node on their way was unknown.
    """

    frames: int = 0
    undated: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    error_ms: float | None = None


class QueryProgress(Shown, frozen=True, kw_only=True):
    """Progress of a query: ``read_share`` (0 to 1) of its sources; None if a source has no end, or its end is unknown."""

    rows_in: int
    rows_out: int | None
    read_share: float | None
    endless: tuple[str, ...] = ()
    rows_in_s: float | None = None
    rows_out_s: float | None = None
    lag_ms: int | None = None
    left_s: float | None = None


class QueryInfo(Shown, frozen=True, kw_only=True):
    """A query: its name ``id``, and the ``uid`` that no other query has.

    ``stale`` if no majority of its ``acceptors``, the nodes that keep its record, confirms it; ``reason`` then says why.
    """

    COLUMNS: ClassVar[Columns] = {one: one for one in ("id", "state", "reason", "consumer", "strategy", "rows", "sql")}

    id: str
    uid: str = ""
    sql: str
    state: str
    reason: str = ""
    submitted_ms: int = 0
    node: str = ""
    acceptors: tuple[str, ...] = ()
    version: int = 0
    restarted_from: str = ""
    restart: str = ""
    stale: bool = False
    consumer: str = ""
    sink: SinkSpec = SinkSpec()
    sinks: tuple[SinkInfo, ...] = ()
    strategy: str = ""
    adapt: str = "off"
    durability: str = "local"
    objective: str = ""
    max_delay_ms: float | None = None
    min_throughput_bytes_s: float | None = None
    on_error: str = ""
    plan: Plan | None = None
    placement: Placement | None = None
    operators: tuple[OperatorInfo, ...] = ()
    shared: tuple[OperatorInfo, ...] = ()
    links: tuple[LinkInfo, ...] = ()
    rows: int | None = None
    delivery: SinkReport | None = None
    sink_lost: bool = False
    sample: Sample | None = None
    streams: tuple[str, ...] = ()
    sources: tuple[SourceInfo, ...] = ()
    progress: QueryProgress | None = None
    delay: SinkDelay | None = None
    survival: Survival | None = None


class Unanswered(NamedTuple):
    """A member that did not answer, with its state at the node that asked."""

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
    """A step of a submission; the first one names the query."""

    step: str
    message: str
    query: str = ""


class Accepted(Shown, frozen=True, kw_only=True, tag="accepted", tag_field="event"):
    """The query runs.

    ``seconds`` are the times of the steps of the submission: ``plan``, ``analyse`` (the engine's analysis of fragments),
    ``place``, ``reserve`` and ``start``.
    """

    query: QueryInfo
    seconds: dict[str, float] = msgspec.field(default_factory=dict)


class Moving(Shown, frozen=True, kw_only=True, tag="progress", tag_field="event"):
    """Step of a move: ``stopping``, ``copying``, ``starting``, ``following``, ``settling``, ``switching``; and how far it is."""

    step: str
    progress: MoveProgress = MoveProgress()


class MoveCancelled(Shown, frozen=True, kw_only=True):
    """The move is given up: the operator goes on at ``node``."""

    query: str
    operator: str
    node: str


class Moved(Shown, frozen=True, kw_only=True, tag="moved", tag_field="event"):
    """The operator runs at ``node`` now. For ``pause_ms`` it has read no rows; None if that is not known."""

    query: str
    operator: str
    origin: str
    node: str
    copied_bytes: int = 0
    pause_ms: int | None = None


class DrainStep(Shown, frozen=True, kw_only=True, tag="progress", tag_field="event"):
    """Step of an operator that leaves a drained node: ``planned``, ``waiting``, a step of its move, ``moved`` or ``stays``."""

    query: str
    operator: str
    step: str
    target: str = ""
    progress: MoveProgress = MoveProgress()
    reason: str = ""


class NodeDrained(Shown, frozen=True, kw_only=True, tag="drained", tag_field="event"):
    """End of a drain: the node ``has_left``, or stays drained with what could not move."""

    node: str
    has_left: bool
    moved: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()


class Rows(Shown, frozen=True, kw_only=True, tag="rows", tag_field="event"):
    """The rows of one frame, identified by ``stream`` and ``number``."""

    stream: str
    number: int
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    watermark_ms: int
    delay_ms: int
    sink: str = ""
    """The further sink whose rows these are; empty for the query's first one."""


class Reader(Shown, frozen=True, kw_only=True, tag="reader", tag_field="event"):
    """The begin of the rows: acknowledgements name this ``word``, which nobody else knows."""

    word: str


class Finished(Shown, frozen=True, kw_only=True, tag="finished", tag_field="event"):
    """No row will follow."""

    state: str
    reason: str = ""

"""Operators: their needs, inputs and SQL, in a plan and at a host, and their counts."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sbon_protocol.api.adaptation import MAX_PAST_MOVES, OFF, Adapt, PastMove
from sbon_protocol.api.bounded import MAX_REASON, Counted, PerSecond
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.durability import LOCAL, Durability
from sbon_protocol.api.shown import Shown
from sbon_protocol.errors import SbonError

OnError = Literal["fail", "skip", "null"]
"""Handling of an expression's error: the query fails, the row becomes a dead letter, or the expression is NULL."""

StateProvider = Literal["hdfs", "rocksdb"]
"""Where Spark keeps an operator's state: in the heap, with a change file for each batch, or in RocksDB with a changelog.

Small state is faster in the heap; RocksDB is for state that does not fit there.
"""

StateChoice = Literal["auto", "hdfs", "rocksdb"]
"""Choice of the state provider of a query's operators: ``auto`` decides for each by the state that is expected."""

OPERATOR_MEMORY_MB = 80.0
"""Memory of an operator without state in all processes of its engine: four take 310 MB (docs/figures/memory.md)."""

MOST_STATE_MB = 256.0
"""Most memory that an operator's state takes: more of it is on the disk, for RocksDB."""


class Needs(Shown, frozen=True, kw_only=True):
    """Resources that an operator reserves at its host."""

    cores: float = 0.1
    memory_mb: float = OPERATOR_MEMORY_MB
    bandwidth_bytes_s: float = 0.0

    @property
    def amounts(self) -> tuple[float, float, float]:
        """Return cores, memory and bandwidth, for arithmetic on all of them."""
        return self.cores, self.memory_mb, self.bandwidth_bytes_s


View = Annotated[int, Meta(ge=0, lt=64)]
MAX_SHIFT_MS = 36_500 * 86_400_000
ShiftMs = Annotated[int, Meta(ge=-MAX_SHIFT_MS, le=MAX_SHIFT_MS)]


class PlannedInput(Shown, frozen=True, kw_only=True):
    """A stream that an operator reads, and its schema; all inputs of a ``view`` form the rows of ``in<view>``.

    If the operator has state, the stream's watermark less ``lag_ms`` is a watermark of column ``event_time``, and may be
    ``ahead_ms`` beyond those of its other inputs. ``shared``: the sources of this input feed another input, too. ``by_position``:
    the stream's columns have other names, and are those of ``schema`` by their order.
    """

    stream: str
    schema: Schema
    view: View = 0
    event_time: Annotated[str, Meta(max_length=128)] = ""
    lag_ms: Annotated[int, Meta(ge=0, le=MAX_SHIFT_MS)] = 0
    ahead_ms: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    shared: bool = False
    by_position: bool = False

    def at(self, node: str) -> InputSpec:
        """Return the input once placement has chosen the ``node`` that hosts its stream."""
        return InputSpec(node=node, **msgspec.structs.asdict(self))


class InputSpec(PlannedInput, frozen=True, kw_only=True):
    """An input with the node that hosts its stream. A ``whole`` one begins with frame 1, and fails if that is not retained.

    Others begin with the frame ``after`` that one: 0 is the first that there is.
    """

    node: str
    whole: bool = False
    after: Annotated[int, Meta(ge=0, le=2**53)] = 0


class TimeBuckets(Shown, frozen=True, kw_only=True):
    """Buckets of ``width_ms`` that divide the rows of an interval join: those of different buckets are no partners.

    A row of ``view`` is in the bucket of its ``time``. A row of ``copied_view`` is in the one or two buckets of partners with
    times from ``copied_time`` + ``from_ms`` to ``copied_time`` + ``upto_ms``.
    """

    view: View
    time: Annotated[str, Meta(max_length=128)]
    copied_view: View
    copied_time: Annotated[str, Meta(max_length=128)]
    from_ms: ShiftMs
    upto_ms: ShiftMs
    width_ms: Annotated[int, Meta(ge=1, le=2**50)]


OperatorId = Annotated[str, Meta(max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*\Z")]
"""Chosen by peers and used as a folder name: no separators, no leading dots."""


class Computation(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's computation, wherever it runs: a Spark SQL fragment over views ``in0, in1 ...``.

    Its output is the stream named by the operator's id. ``buckets`` divide the state of its joins: an operator keeps them for
    life. With ``blocks`` it reads large batches, for which an inner join keeps blocks of rows instead. All rows of an
    ``unpaced`` operator come from sources that give them as fast as they are taken: it gains by large batches, and nobody waits
    for single rows.

    With ``groups_per_batch`` its aggregate groups the rows of each batch by themselves and keeps no state: a group comes out
    once for each batch that has rows of it, and its readers merge them.

    ``state_provider`` keeps its state: an operator has it for life, wherever it runs. Operators of equal ``signature`` give equal
    rows from the same beginning. A ``residual`` one computes its rows from those of another query's operator, which contain them.
    """

    id: OperatorId
    fragment: str
    inputs: tuple[PlannedInput, ...]
    schema: Schema
    needs: Needs = Needs()
    on_error: OnError = "fail"
    buckets: Annotated[tuple[TimeBuckets, ...], Meta(max_length=32)] = ()
    blocks: bool = False
    unpaced: bool = False
    groups_per_batch: bool = False
    state_provider: StateProvider = "hdfs"
    signature: Annotated[str, Meta(max_length=64)] = ""
    residual: bool = False

    @property
    def has_state(self) -> bool:
        """Whether it keeps rows until the watermark releases them."""
        return any(input_.event_time for input_ in self.inputs)


class OperatorSpec(Computation, frozen=True, kw_only=True):
    """An operator at its host, with the nodes of its inputs.

    ``readers`` are the subscribers for which its stream keeps its frames from the first on, however late they subscribe. Its
    host may move it as ``adapt`` says; ``max_delay_ms`` and ``min_throughput_bytes_s`` are the bounds of its query, None without
    them. ``past_moves`` are its newest.
    """

    query: str
    inputs: tuple[InputSpec, ...]
    epoch: int = 1
    reader: Literal["simple", "partitioned"] = "simple"
    durability: Durability = LOCAL
    readers: Annotated[tuple[Annotated[str, Meta(max_length=160)], ...], Meta(max_length=256)] = ()
    adapt: Adapt = OFF
    max_delay_ms: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    min_throughput_bytes_s: Annotated[float, Meta(gt=0, le=1e15)] | None = None
    past_moves: Annotated[tuple[PastMove, ...], Meta(max_length=MAX_PAST_MOVES)] = ()

    def moved_from(self, node: str, at_ms: int, reason: str) -> OperatorSpec:
        """Return the specification for the next host, with this move among the newest ones."""
        past = (*self.past_moves, PastMove(node=node, at_ms=at_ms, reason=reason[:MAX_REASON]))
        return msgspec.structs.replace(self, past_moves=past[-MAX_PAST_MOVES:])

    def views(self) -> list[list[tuple[int, InputSpec]]]:
        """Return the inputs of ``in0``, ``in1`` and so on with their positions; raise :class:`SbonError` ``bad-inputs``."""
        most = max((read.view for read in self.inputs), default=-1)
        views: list[list[tuple[int, InputSpec]]] = [[] for _ in range(1 + most)]
        for position, read in enumerate(self.inputs):
            views[read.view].append((position, read))
        for number, inputs in enumerate(views):
            if not inputs or any(read.schema != inputs[0][1].schema for _, read in inputs):
                raise SbonError("bad-inputs", "its inputs are none, or differ", where=f"{self.id}, in{number}")
        return views


def computation_of(spec: OperatorSpec) -> Computation:
    """Return an operator's computation without the nodes of its inputs."""
    fields = {name: getattr(spec, name) for name in Computation.__struct_fields__}
    planned = PlannedInput.__struct_fields__
    inputs = tuple(PlannedInput(**{name: getattr(one, name) for name in planned}) for one in spec.inputs)
    return Computation(**{**fields, "inputs": inputs})


class OperatorStats(Shown, frozen=True, kw_only=True):
    """Counts of an operator since it began, at all of its hosts. They come from peers, so they are bounded."""

    rows_in: Counted = 0
    rows_out: Counted = 0
    bytes_in: Counted = 0
    bytes_out: Counted = 0
    batches: Counted = 0
    batch_ms: Annotated[float, Meta(ge=0)] = 0.0
    rows_out_s: PerSecond | None = None
    """Recent rate, weighted towards the present: silence brings it to 0; None before the first measurement."""
    bytes_out_s: PerSecond | None = None
    under_way_s: Annotated[float, Meta(ge=0)] | None = None
    """Age of the running batch, whose output is not there yet; None if no batch runs."""
    under_way_rows: Counted = 0
    """Rows that the running batch has read, as ``under_way_bytes``; they count as ``rows_in`` once it has written."""
    under_way_bytes: Counted = 0

    @property
    def selectivity(self) -> float:
        """Return rows out per row in; 1 before the first row."""
        return self.rows_out / self.rows_in if self.rows_in else 1.0

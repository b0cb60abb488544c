"""Plans and placements of queries."""

from __future__ import annotations

import msgspec

from .shown import Shown
from .streams import Column, SourceDeclaration


class Needs(Shown, frozen=True, kw_only=True):
    """Resources that an operator reserves at its host."""

    cores: float = 0.1
    memory_mb: float = 150.0
    bandwidth_bytes_s: float = 0.0


class Rate(Shown, frozen=True, kw_only=True):
    """Rate of a stream, estimated unless ``measured``."""

    rows_s: float
    bytes_s: float
    measured: bool = False


class PlannedSource(Shown, frozen=True, kw_only=True):
    """A source with its rate; ``estimate`` is its rate without measurements."""

    source: SourceDeclaration
    schema: tuple[Column, ...]
    rate: Rate
    estimate: Rate | None = None


class PlannedInput(Shown, frozen=True, kw_only=True):
    """A stream that an operator reads as part of view ``in<view>``."""

    stream: str
    schema: tuple[Column, ...]
    view: int = 0
    event_time: str = ""
    lag_ms: int = 0
    ahead_ms: int | None = None
    shared: bool = False
    by_position: bool = False


class TimeBuckets(Shown, frozen=True, kw_only=True):
    """Buckets of time that divide the rows of an interval join; rows of ``copied_view`` are in one or two of them."""

    view: int
    time: str
    copied_view: int
    copied_time: str
    from_ms: int
    upto_ms: int
    width_ms: int


class PlannedOperator(Shown, frozen=True, kw_only=True):
    """An operator with its SQL fragment; placement chooses its node."""

    id: str
    fragment: str
    inputs: tuple[PlannedInput, ...]
    schema: tuple[Column, ...]
    rate: Rate
    needs: Needs = Needs()
    signature: str = ""
    partitioned: bool = False
    estimate: Rate | None = None
    earlier_ratio: float | None = None
    state_mb: float = 0.0
    on_error: str = "fail"
    buckets: tuple[TimeBuckets, ...] = ()
    blocks: bool = False
    unpaced: bool = False
    groups_per_batch: bool = False
    state_provider: str = "hdfs"
    residual: bool = False


class SharedOperator(Shown, frozen=True, kw_only=True):
    """An operator of another query, at ``node``, that is read in place of one of its own."""

    operator: PlannedOperator
    node: str
    digest: str = ""
    queries: tuple[str, ...] = ()


class Plan(Shown, frozen=True, kw_only=True):
    """A query's operators in topological order; ``schema`` is that of the query's rows."""

    text: str
    sources: tuple[PlannedSource, ...]
    operators: tuple[PlannedOperator, ...]
    shared: tuple[SharedOperator, ...] = ()
    outputs: tuple[str, ...]
    schema: tuple[Column, ...]
    event_time: str = ""
    since_ms: int | None = None
    starts: dict[str, int] = msgspec.field(default_factory=dict)


class Candidate(Shown, frozen=True, kw_only=True):
    """A node that placement considered for an operator."""

    node: str
    distance_ms: float
    accepted: bool
    reason: str = ""
    predicted: float | None = None
    measured: float | None = None


class Assignment(Shown, frozen=True, kw_only=True):
    """An operator's host, with the reason."""

    operator: str
    node: str
    reason: str
    virtual: tuple[float, ...] = ()
    candidates: tuple[Candidate, ...] = ()


class Placement(Shown, frozen=True, kw_only=True):
    """The hosts of a query's operators. ``usage`` is in bytes in transit, ``probes`` counts nodes asked and pairs measured."""

    strategy: str
    assignments: tuple[Assignment, ...]
    usage: float
    probes: int = 0
    delay_ms: float = 0.0
    predicted: float | None = None
    discoveries: int = 0
    reason: str = ""

    def hosts(self) -> dict[str, str]:
        """Return the host of each operator by its id."""
        return {assignment.operator: assignment.node for assignment in self.assignments}

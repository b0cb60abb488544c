"""A query as a DAG of operators: sources and sinks are pinned, operators are not (SBON, section 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sbon_protocol.api.bounded import PerSecond
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import Computation, OperatorSpec
from sbon_protocol.api.shown import Shown
from sbon_protocol.api.subscribers import input_of

Decompose = Literal["auto", "always", "never"]
"""When to decompose aggregates into partial ones beside the sources and a final one.

``auto`` decomposes if that carries less data.
"""

MAX_SELECTIVITY = 1e15
IDLE_CORES = 0.1
"""Cores that an operator without rows needs."""


class Rate(Shown, frozen=True, kw_only=True):
    """Rate of a stream, either measured or only estimated."""

    rows_s: float
    bytes_s: float
    measured: bool = False

    @staticmethod
    def of_all(rates: Iterable[Rate]) -> Rate:
        """Return the total rate of several streams."""
        each = list(rates)
        measured = all(rate.measured for rate in each)
        return Rate(rows_s=sum(rate.rows_s for rate in each), bytes_s=sum(rate.bytes_s for rate in each), measured=measured)


class PlannedSource(Shown, frozen=True, kw_only=True):
    """A pinned producer; its stream is ``source.id``. ``estimate`` is its rate without measurements."""

    source: SourceDeclaration
    schema: Schema
    rate: Rate
    estimate: Rate | None = None


class PlannedOperator(Computation, frozen=True, kw_only=True):
    """An operator without a host; its ``inputs`` come from sources or operators, whose hosts placement decides.

    ``rate`` is the rate for placement, ``measured`` if its selectivity and row size are; ``estimate`` is the rate without
    measurements. ``earlier_ratio`` is estimated over measured rows of the last run of an equal operator. It is expected to keep
    ``state_mb`` megabytes of state.
    """

    rate: Rate
    partitioned: bool = False
    estimate: Rate | None = None
    earlier_ratio: PerSecond | None = None
    state_mb: Annotated[float, Meta(ge=0)] = 0.0

    def spec(self, query: str, hosts: Mapping[str, str], epoch: int = 1, readers: tuple[str, ...] = ()) -> OperatorSpec:
        """Return its host's specification, once the ``hosts`` (by id) of its inputs are known."""
        computation = {name: getattr(self, name) for name in Computation.__struct_fields__}
        computation["inputs"] = tuple(input_.at(hosts[input_.stream]) for input_ in self.inputs)
        return OperatorSpec(
            **computation, query=query, epoch=epoch, reader="partitioned" if self.partitioned else "simple", readers=readers
        )


class SharedOperator(Shown, frozen=True, kw_only=True):
    """An operator of another query that runs at ``node`` and is read in place of one of its own.

    It is kept for the query also if only another shared operator reads it. ``operator`` has the other query's id, columns and
    input streams, and a rate; ``digest`` is that of its computation. ``queries`` are the uids of those that it ran for then.
    """

    operator: PlannedOperator
    node: str
    digest: str = ""
    queries: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.operator.id


class ContainedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator of the plan as a residual of ``offered``, an operator of another query whose rows contain its own.

    Event time spends ``longer_ms`` more on this way than by the plan's own operators, and columns that follow the watermark may
    lag ``later_ms`` further behind it.
    """

    operator: PlannedOperator
    offered: str
    longer_ms: int = 0
    later_ms: int = 0


class Plan(Shown, frozen=True, kw_only=True):
    """A query's operators in topological order; ``outputs`` are the ids of the sink's input streams, by branch.

    The ``shared`` ones are of other queries.
    """

    text: str
    sources: tuple[PlannedSource, ...]
    operators: tuple[PlannedOperator, ...]
    shared: tuple[SharedOperator, ...] = ()
    outputs: tuple[str, ...]
    schema: Schema
    event_time: str = ""
    since_ms: int | None = None
    """Earliest event time that counts, if the query begins from now on; None if from the earliest rows that there are."""
    starts: dict[str, int] = {}
    """Of a query from now on: the last frame of each source, by id, that it does not read."""

    @property
    def carried_bytes_s(self) -> float:
        """Return the total rate of all its links, including the link to the sink."""
        rates = self.rates()
        read = [spec.stream for operator in self.operators for spec in operator.inputs]
        return sum(rates[stream].bytes_s for stream in (*read, *self.outputs))

    def rates(self) -> dict[str, Rate]:
        """Return the rate of each stream that it reads or makes."""
        operators = (*self.operators, *(shared.operator for shared in self.shared))
        return {one.source.id: one.rate for one in self.sources} | {one.id: one.rate for one in operators}

    def renamed_outputs(self) -> tuple[str, ...]:
        """Return outputs whose columns have other names than the result's."""
        names = [field.name for field in self.schema]
        shared = (one for one in self.shared if one.id in self.outputs)
        return tuple(one.id for one in shared if [field.name for field in one.operator.schema] != names)

    def estimated_selectivities(self) -> dict[str, float | None]:
        """Return the expected rows out for one row in of each operator, without measurements; None if no rows are expected."""
        operators = (*self.operators, *(shared.operator for shared in self.shared))
        rows_s = {planned.source.id: (planned.estimate or planned.rate).rows_s for planned in self.sources}
        rows_s |= {operator.id: (operator.estimate or operator.rate).rows_s for operator in operators}
        rows_in_s = {operator.id: sum(rows_s[read.stream] for read in operator.inputs) for operator in self.operators}
        return {
            name: min(rows_s[name] / rows_in, MAX_SELECTIVITY) if rows_in > 0 else None for name, rows_in in rows_in_s.items()
        }

    def readers(self, stream: str, sink: str) -> tuple[str, ...]:
        """Return the subscribers of an operator's stream: inputs of other operators, by position, and ``sink``."""
        readers = [
            input_of(operator.id, position)
            for operator in self.operators
            for position, spec in enumerate(operator.inputs)
            if spec.stream == stream
        ]
        return (*readers, sink) if stream in self.outputs else tuple(readers)


class ProposedPlan(Plan, frozen=True, kw_only=True):
    """A plan with ``alternatives`` to its operators, from which its query may choose."""

    alternatives: tuple[ContainedOperator, ...] = ()

    def without_alternatives(self) -> Plan:
        """Return the plan by its own operators."""
        return Plan(**{name: getattr(self, name) for name in Plan.__struct_fields__})

"""A query as a DAG of operators (SBON, section 2.1): sources and sinks are pinned, everything else may be placed anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from sbon_node.engine.interface import InputSpec, Needs, OperatorSpec, Schema
from sbon_node.query.catalog import SourceDeclaration

Decompose = Literal["auto", "always", "never"]
"""Whether aggregates are split into partial ones beside the sources and a final one: where it carries less, always, never."""

IDLE_CORES = 0.1
"""What an operator needs that has no rows."""


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """How much a stream carries, and whether that was measured or only estimated."""

    rows_s: float
    bytes_s: float
    measured: bool = False

    @staticmethod
    def of_all(rates: Iterable[Rate]) -> Rate:
        """What several streams carry together."""
        each = list(rates)
        measured = all(rate.measured for rate in each)
        return Rate(rows_s=sum(rate.rows_s for rate in each), bytes_s=sum(rate.bytes_s for rate in each), measured=measured)


class PlannedSource(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned producer; its stream is ``source.id``. ``estimate`` is its rate as if nothing had been measured."""

    source: SourceDeclaration
    schema: Schema
    rate: Rate
    estimate: Rate | None = None


class PlannedInput(msgspec.Struct, frozen=True, kw_only=True):
    """A stream an operator reads as part of view ``in<view>``; its watermark, less ``lag_ms``, is of column ``event_time``.

    It may run ``ahead_ms`` ahead of the operator's other inputs; ``shared`` where it comes of the same streams as another one.
    """

    stream: str
    schema: Schema
    view: int = 0
    event_time: str = ""
    lag_ms: int = 0
    ahead_ms: int | None = None
    shared: bool = False


class PlannedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An unpinned operator; the streams of its ``inputs`` are of sources or operators, whose hosts are known after placement.

    ``rate`` is what it was placed by, ``measured`` where its selectivity and row size are; ``estimate`` as if nothing had been.
    """

    id: str
    fragment: str
    inputs: tuple[PlannedInput, ...]
    schema: Schema
    rate: Rate
    needs: Needs = Needs()
    signature: str = ""
    partitioned: bool = False
    estimate: Rate | None = None

    def spec(self, query: str, hosts: dict[str, str], epoch: int = 1, readers: tuple[str, ...] = ()) -> OperatorSpec:
        """The specification its host is given, once ``hosts`` (by id) of its inputs are known."""
        return OperatorSpec(
            id=self.id,
            query=query,
            fragment=self.fragment,
            inputs=tuple(
                InputSpec(
                    stream=one.stream,
                    node=hosts[one.stream],
                    schema=one.schema,
                    view=one.view,
                    event_time=one.event_time,
                    lag_ms=one.lag_ms,
                    ahead_ms=one.ahead_ms,
                    shared=one.shared,
                )
                for one in self.inputs
            ),
            schema=self.schema,
            epoch=epoch,
            needs=self.needs,
            reader="partitioned" if self.partitioned else "simple",
            readers=readers,
        )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A query's operators in topological order; ``outputs`` are the ids whose streams the sink takes, one per branch."""

    text: str
    sources: tuple[PlannedSource, ...]
    operators: tuple[PlannedOperator, ...]
    outputs: tuple[str, ...]
    schema: Schema
    event_time: str = ""

    @property
    def carried_bytes_s(self) -> float:
        """What all its links carry together, the one to the sink included."""
        rates = {one.source.id: one.rate for one in self.sources} | {one.id: one.rate for one in self.operators}
        read = [one.stream for operator in self.operators for one in operator.inputs]
        return sum(rates[stream].bytes_s for stream in (*read, *self.outputs))

    def readers(self, stream: str, sink: str) -> tuple[str, ...]:
        """Who subscribes to an operator's stream: inputs of other operators, by position, and ``sink``."""
        found = [
            f"{operator.id}#{position}"
            for operator in self.operators
            for position, one in enumerate(operator.inputs)
            if one.stream == stream
        ]
        return (*found, sink) if stream in self.outputs else tuple(found)

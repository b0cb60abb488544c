"""A query as a DAG of operators (SBON, section 2.1): sources and sinks are pinned, everything else may be placed anywhere."""

from __future__ import annotations

import msgspec

from sbon_node.engine.interface import InputSpec, Needs, OperatorSpec, Schema
from sbon_node.query.catalog import SourceDeclaration


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """How much a stream carries, and whether that was measured or only estimated."""

    rows_s: float
    bytes_s: float
    measured: bool = False


class PlannedSource(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned producer; its stream is ``source.id``."""

    source: SourceDeclaration
    schema: Schema
    rate: Rate


class PlannedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An unpinned operator; ``inputs`` are ids of sources or operators, whose hosts are known after placement."""

    id: str
    fragment: str
    inputs: tuple[str, ...]
    input_schemas: tuple[Schema, ...]
    schema: Schema
    rate: Rate
    needs: Needs = Needs()
    signature: str = ""
    partitioned: bool = False

    def spec(self, query: str, hosts: dict[str, str], epoch: int = 1) -> OperatorSpec:
        """The specification its host is given, once ``hosts`` (by id) of its inputs are known."""
        return OperatorSpec(
            id=self.id,
            query=query,
            fragment=self.fragment,
            inputs=tuple(
                InputSpec(stream=i, node=hosts[i], schema=s) for i, s in zip(self.inputs, self.input_schemas, strict=True)
            ),
            schema=self.schema,
            epoch=epoch,
            needs=self.needs,
            reader="partitioned" if self.partitioned else "simple",
        )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A query's operators in topological order; ``outputs`` are the ids whose streams the sink takes, one per branch."""

    text: str
    sources: tuple[PlannedSource, ...]
    operators: tuple[PlannedOperator, ...]
    outputs: tuple[str, ...]
    schema: Schema
    event_time: str = ""

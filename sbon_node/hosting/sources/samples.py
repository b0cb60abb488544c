"""Samples of sources for plans: taken at the source's node, asked for and checked at the node that plans."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from sbon_node.connectors.sources.sample import RowSample
from sbon_node.context import Context
from sbon_node.hosting.sources.host import SourceHost
from sbon_node.model.samples import MAX_SAMPLE_ROWS, MAX_SAMPLED_SOURCES, MAX_TEXT, StreamSample, Value
from sbon_node.net.peers import Caller
from sbon_node.ownership.catalogue import Catalogue
from sbon_protocol.api.catalogue import MAX_ROWS_S
from sbon_protocol.api.columns import Schema
from sbon_protocol.errors import SbonError
from sbon_protocol.measuring import SampleRequest, SampleSources, SourceSample, SourceSamples

log = structlog.get_logger()

MAX_REPLY_VALUES = 100_000
"""Most values of a reply, which keeps it below the size of a frame."""
MAX_PLAN_ROWS = 8000
"""Sampled rows of all sources of a plan, which bounds the time that a plan takes over them."""
LEAST_ROWS = 20
MOST_WHOLE = 2**63


class SampleStore:
    """Samples of the sources of this node for others, and of the others' sources for this node's plans."""

    def __init__(self, context: Context, catalogue: Catalogue, sources: SourceHost) -> None:
        self._context, self._catalogue, self._sources = context, catalogue, sources
        context.server.handle(SampleSources, self._handle_sample)

    async def samples(self, sources: Mapping[str, str], columns: Mapping[str, Sequence[str]]) -> dict[str, StreamSample]:
        """Return samples of these ``columns`` by source, as far as nodes answer; ``sources`` maps each source to its node."""
        wanted = dict(sorted(columns.items())[:MAX_SAMPLED_SOURCES])
        rows = min(MAX_SAMPLE_ROWS, max(LEAST_ROWS, MAX_PLAN_ROWS // max(1, len(wanted))))
        at: dict[str, list[SampleRequest]] = {}
        for source, names in wanted.items():
            at.setdefault(sources[source], []).append(SampleRequest(source=source, columns=tuple(names)))
        calls = {node: SampleSources(requests=tuple(requests), rows=rows) for node, requests in sorted(at.items())}
        answers = await asyncio.gather(*(self._ask(node, call) for node, call in calls.items()))
        schemas = self._schemas()
        samples: dict[str, StreamSample] = {}
        for call, answer in zip(calls.values(), answers, strict=True):
            asked = {request.source: set(request.columns) for request in call.requests}
            for report in answer.samples:
                sample = checked(report, asked.get(report.source, set()), schemas.get(report.source, ()))
                if report.source not in asked or sample is None:
                    self._context.counters.count("sample-refused")
                else:
                    samples[report.source] = sample
        return samples

    def _schemas(self) -> dict[str, Schema]:
        return {source.id: entry.declaration.schema for entry in self._catalogue.entries.values() for source in entry.sources}

    async def _ask(self, node: str, call: SampleSources) -> SourceSamples:
        if node == self._context.name:
            return await self._taken(call)
        try:
            return await self._context.ask(node, call, SourceSamples, timeout_s=self._context.settings.component_timeout_s)
        except SbonError as error:
            log.info("sources-not-sampled", node=node, reason=str(error))
            return SourceSamples(samples=())

    async def _handle_sample(self, call: SampleSources, caller: Caller) -> SourceSamples:
        return await self._taken(call)

    async def _taken(self, call: SampleSources) -> SourceSamples:
        samples: list[SourceSample] = []
        values = 0
        for request in call.requests:
            taken = await self._sources.sample(request.source)
            if taken is None:
                continue
            columns = columns_of(taken.sample, request.columns, call.rows)
            values += sum(len(column) for column in columns.values())
            if values > MAX_REPLY_VALUES:
                break
            samples.append(
                SourceSample(
                    source=request.source,
                    seen=taken.sample.seen,
                    rows=taken.rows,
                    read_rows_s=taken.read_rows_s or 0.0,
                    columns=columns,
                )
            )
        return SourceSamples(samples=tuple(samples))


def columns_of(sample: RowSample, names: Iterable[str], most: int) -> dict[str, tuple[Value, ...]]:
    """Return the values of these columns, of at most ``most`` rows taken evenly. Unknown and binary columns are left out."""
    rows = sample.rows()
    if rows is None:
        return {}
    every = max(1, math.ceil(rows.num_rows / most))
    taken = rows.take(pa.array(range(0, rows.num_rows, every)))
    columns: dict[str, tuple[Value, ...]] = {}
    for name in dict.fromkeys(names):
        index = taken.schema.get_field_index(name)
        values = _plain(taken.column(index)) if index >= 0 else None
        if values is not None:
            columns[name] = values
    return columns


def _plain(column: pa.Array) -> tuple[Value, ...] | None:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64(), safe=False)
    elif pa.types.is_string(kind):
        column = pc.utf8_slice_codeunits(column, 0, MAX_TEXT)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return None
    return tuple(None if isinstance(v, float) and not math.isfinite(v) else v for v in column.to_pylist())


_FITS: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "string": (str,),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "date", "timestamp"), (int,)),
    **dict.fromkeys(("float", "double", "decimal"), (int, float)),
}
"""Types of the values that a column's type allows, beside nil."""


def checked(report: SourceSample, asked: set[str], schema: Schema) -> StreamSample | None:
    """Return a peer's sample, or None if such a sample is impossible."""
    types = {column.name: column.type.partition("(")[0] for column in schema}
    if not set(report.columns) <= asked & types.keys():
        return None
    rows = max((len(values) for values in report.columns.values()), default=0)
    if any(len(values) != rows or not _fit(values, types[name]) for name, values in report.columns.items()):
        return None
    if rows > report.seen or (report.rows is not None and report.seen > math.ceil(report.rows)):
        return None
    return StreamSample(
        columns={name: tuple(values) for name, values in report.columns.items()},
        seen=report.seen,
        rows=report.rows,
        read_rows_s=report.read_rows_s if 0 < report.read_rows_s <= MAX_ROWS_S else None,
    )


def _fit(values: Sequence[Any], type_: str) -> bool:
    allowed = _FITS.get(type_, ())
    return all(
        value is None
        or (
            type(value) in allowed
            and not (isinstance(value, int) and abs(value) > MOST_WHOLE)
            and not (isinstance(value, str) and len(value) > MAX_TEXT)
        )
        for value in values
    )

"""Answers of the nodes of sources to planners: samples of their rows, and measurements of operators by signature."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from sbon_node.connectors.sources.sample import RowSample
from sbon_node.context import Context
from sbon_node.hosting.sources.host import SourceHost
from sbon_node.model.frames import MAX_ROW_BYTES
from sbon_node.model.measurements import Measured, Measurement, SourcePace
from sbon_node.model.records import QueryRecord
from sbon_node.model.samples import MAX_SAMPLE_ROWS, MAX_SAMPLED_SOURCES, MAX_TEXT, StreamSample, Value
from sbon_node.net.peers import Caller
from sbon_node.ownership.catalogue import Catalogue
from sbon_protocol.api.catalogue import MAX_ROWS_S
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.errors import SbonError
from sbon_protocol.measuring import (
    MAX_MEASUREMENTS,
    KeepMeasurements,
    Measurements,
    OperatorMeasurement,
    RecallMeasurements,
    SampleRequest,
    SampleSources,
    SourceMeasurement,
    SourceSample,
    SourceSamples,
)

log = structlog.get_logger()

# -- Samples: taken at the source's node, asked for and checked at the node that plans ---------------------------------

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
        entries = self._catalogue.entries.values()
        schemas = {source.id: entry.declaration.schema for entry in entries for source in entry.sources}
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
            samples.append(SourceSample(request.source, taken.sample.seen, taken.rows, taken.read_rows_s or 0.0, columns))
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


# -- Measurements of operators -----------------------------------------------------------------------------------------

# The query's leader sends them to the nodes of the sources from time to time while the query runs, and when it ends. Nothing
# depends on them: the planner estimates a measurement that a node forgets or never receives.


class DatedMeasurement(NamedTuple):
    measurement: Measurement
    at_s: float


class MeasurementStore:
    """At most ``control.max_measurements`` measurements; the least recently received or requested are deleted first."""

    def __init__(self, context: Context, sources: SourceHost, samples: SampleStore) -> None:
        self._context, self._sources, self._samples = context, sources, samples
        self._kept: OrderedDict[str, DatedMeasurement] = OrderedDict()
        context.server.handle(KeepMeasurements, self._handle_keep)
        context.server.handle(RecallMeasurements, self._handle_recall)

    def keep(self, reports: Iterable[OperatorMeasurement]) -> None:
        """Store measurements newer than the known ones; count and drop impossible ones."""
        now, settings = self._context.clock.now(), self._context.settings
        for report in reports:
            measurement = _measurement(report)
            if not measurement.is_credible() or not report.signature:
                self._context.counters.count("measurement-refused")
                continue
            kept = self._kept.get(report.signature)
            if report.age_s <= settings.measurement_age_s and (kept is None or kept.at_s <= now - report.age_s):
                self._kept[report.signature] = DatedMeasurement(measurement, now - report.age_s)
                self._kept.move_to_end(report.signature)
        while len(self._kept) > settings.max_measurements:
            self._kept.popitem(last=False)

    def recall(self, signatures: Iterable[str]) -> tuple[OperatorMeasurement, ...]:
        """Return the measurements of these signatures that are not too old."""
        now, recalled = self._context.clock.now(), []
        for signature in signatures:
            kept = self._kept.get(signature)
            if kept is None:
                continue
            age_s = now - kept.at_s
            if age_s > self._context.settings.measurement_age_s:
                del self._kept[signature]
                continue
            self._kept.move_to_end(signature)
            recalled.append(_report(signature, kept.measurement, age_s, kept.measurement.estimated))
        return tuple(recalled)

    async def measured(
        self, sources: Mapping[str, str], signatures: Sequence[str], columns: Mapping[str, Sequence[str]]
    ) -> Measured:
        """Ask all nodes of the sources; the newest answer counts. Implements :data:`sbon_node.model.measurements.Recall`."""
        at: dict[str, list[str]] = {}
        for source, node in sources.items():
            at.setdefault(node, []).append(source)
        asking = asyncio.gather(*(self._ask(node, names, signatures) for node, names in sorted(at.items())))
        answers, samples = await asyncio.gather(asking, self._samples.samples(sources, columns))
        newest: dict[str, OperatorMeasurement] = {}
        paces: dict[str, SourcePace] = {}
        for (_, names), answer in zip(sorted(at.items()), answers, strict=True):
            for report in answer.operators:
                known = newest.get(report.signature)
                if (
                    report.signature in signatures
                    and (known is None or report.age_s < known.age_s)
                    and _measurement(report).is_credible()
                ):
                    newest[report.signature] = report
            paces |= {report.source: _pace(report) for report in answer.sources if report.source in names}
        operators = {name: _measurement(report) for name, report in newest.items()}
        return Measured(operators=operators, sources=paces, samples=samples)

    async def _ask(self, node: str, sources: Sequence[str], signatures: Sequence[str]) -> Measurements:
        call = RecallMeasurements(sources=tuple(sources)[:MAX_MEASUREMENTS], signatures=tuple(signatures)[:MAX_MEASUREMENTS])
        if node == self._context.name:
            return self._recalled(call)
        try:
            return await self._context.ask(node, call, Measurements, timeout_s=self._context.settings.component_timeout_s)
        except SbonError as error:
            log.info("measurements-not-recalled", node=node, reason=str(error))
            return Measurements(sources=(), operators=())

    def _recalled(self, call: RecallMeasurements) -> Measurements:
        sources = []
        for name in call.sources:
            report, runner = self._sources.report(name), self._sources.runner(name)
            if report is not None and runner is not None and report.rows:
                rows_s = runner.observed_rows_s if report.paced and runner.observed_rows_s else 0.0
                sources.append(SourceMeasurement(source=name, rows_s=rows_s, row_bytes=report.bytes / report.rows))
        return Measurements(sources=tuple(sources), operators=self.recall(call.signatures))

    async def distribute(self, record: QueryRecord, operators: Iterable[OperatorInfo]) -> None:
        """Send the measurements of a query's operators to the nodes of its sources; skip unreachable nodes."""
        reports = _reports_of(record, operators)
        nodes = sorted({planned.source.node for planned in record.plan.sources})
        if reports:
            await asyncio.gather(*(self._send(node, reports) for node in nodes))

    async def _send(self, node: str, reports: tuple[OperatorMeasurement, ...]) -> None:
        if node == self._context.name:
            self.keep(reports)
            return
        try:
            call = KeepMeasurements(operators=reports)
            await self._context.call(node, call, timeout_s=self._context.settings.component_timeout_s)
        except SbonError as error:
            log.info("measurements-not-sent", node=node, reason=str(error))

    async def _handle_keep(self, call: KeepMeasurements, caller: Caller) -> None:
        self.keep(call.operators)

    async def _handle_recall(self, call: RecallMeasurements, caller: Caller) -> Measurements:
        return self._recalled(call)


def _reports_of(record: QueryRecord, operators: Iterable[OperatorInfo]) -> tuple[OperatorMeasurement, ...]:
    described = {operator.id: operator for operator in operators}
    expected = record.plan.estimated_selectivities()
    reports = []
    for planned in record.plan.operators:
        stats = described[planned.id].stats if planned.id in described else None
        if stats is None or not planned.signature or planned.residual:
            continue
        measurement = Measurement(rows_in=stats.rows_in, rows_out=stats.rows_out, bytes_out=stats.bytes_out)
        if measurement.is_usable(has_state=any(read.event_time for read in planned.inputs)):
            reports.append(_report(planned.signature, measurement, 0.0, expected[planned.id]))
    return tuple(reports[:MAX_MEASUREMENTS])


def _report(signature: str, measured: Measurement, age_s: float, estimated: float | None) -> OperatorMeasurement:
    return OperatorMeasurement(signature, measured.rows_in, measured.rows_out, measured.bytes_out, age_s, estimated)


def _measurement(report: OperatorMeasurement) -> Measurement:
    return Measurement(rows_in=report.rows_in, rows_out=report.rows_out, bytes_out=report.bytes_out, estimated=report.estimated)


def _pace(report: SourceMeasurement) -> SourcePace:
    """Return the pace; treat values out of range as missing."""
    return SourcePace(
        rows_s=report.rows_s if 0 < report.rows_s <= MAX_ROWS_S else None,
        row_bytes=report.row_bytes if 0 < report.row_bytes <= MAX_ROW_BYTES else None,
    )

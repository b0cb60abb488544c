"""Measurements of operators by signature, stored at the nodes of their sources, where the next plan asks.

The query holder sends them to those nodes from time to time while the query runs, and when it ends. Nothing depends on them: the
planner estimates a measurement that a node forgets or never receives.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from sbon_node.context import Context
from sbon_node.hosting.sources.host import SourceHost
from sbon_node.hosting.sources.samples import SampleStore
from sbon_node.model.frames import MAX_ROW_BYTES
from sbon_node.model.measurements import Measured, Measurement, SourcePace
from sbon_node.model.records import QueryRecord
from sbon_node.net.peers import Caller
from sbon_protocol.api.catalogue import MAX_ROWS_S
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.errors import SbonError
from sbon_protocol.measuring import (
    MAX_MEASUREMENTS,
    KeepMeasurements,
    Measurements,
    OperatorMeasurement,
    RecallMeasurements,
    SourceMeasurement,
)

log = structlog.get_logger()


class Kept(NamedTuple):
    measurement: Measurement
    at_s: float


class MeasurementStore:
    """Measurements that this node remembers, at most ``control.max_measurements``.

    The least recently received or requested are deleted first.
    """

    def __init__(self, context: Context, sources: SourceHost, samples: SampleStore) -> None:
        self._context, self._sources, self._samples = context, sources, samples
        self._kept: OrderedDict[str, Kept] = OrderedDict()
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
                self._kept[report.signature] = Kept(measurement, now - report.age_s)
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
            measurement = kept.measurement
            recalled.append(
                OperatorMeasurement(
                    signature=signature,
                    rows_in=measurement.rows_in,
                    rows_out=measurement.rows_out,
                    bytes_out=measurement.bytes_out,
                    age_s=age_s,
                    estimated=measurement.estimated,
                )
            )
        return tuple(recalled)

    async def measured(
        self, sources: Mapping[str, str], signatures: Sequence[str], columns: Mapping[str, Sequence[str]]
    ) -> Measured:
        """Ask the nodes of the sources, all at once; the newest answer counts.

        Implements :data:`sbon_node.model.measurements.Recall`.
        """
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
            reports.append(
                OperatorMeasurement(
                    signature=planned.signature,
                    rows_in=measurement.rows_in,
                    rows_out=measurement.rows_out,
                    bytes_out=measurement.bytes_out,
                    age_s=0.0,
                    estimated=expected[planned.id],
                )
            )
    return tuple(reports[:MAX_MEASUREMENTS])


def _measurement(report: OperatorMeasurement) -> Measurement:
    return Measurement(rows_in=report.rows_in, rows_out=report.rows_out, bytes_out=report.bytes_out, estimated=report.estimated)


def _pace(report: SourceMeasurement) -> SourcePace:
    """Return the pace; treat values out of range as missing."""
    return SourcePace(
        rows_s=report.rows_s if 0 < report.rows_s <= MAX_ROWS_S else None,
        row_bytes=report.row_bytes if 0 < report.row_bytes <= MAX_ROW_BYTES else None,
    )

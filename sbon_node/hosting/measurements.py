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

from sbon_node.errors import SbonError
from sbon_node.hosting.sources import SourceHost
from sbon_node.model.catalogue import MAX_ROWS_S
from sbon_node.model.frames import MAX_ROW_BYTES
from sbon_node.model.measurements import Measured, Measurement, SourcePace
from sbon_node.model.queries import OperatorInfo
from sbon_node.model.records import QueryRecord
from sbon_node.net.peers import Caller
from sbon_node.workflow.context import Context
from sbon_protocol.calls import (
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

    def __init__(self, context: Context, sources: SourceHost) -> None:
        self._context, self._sources = context, sources
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        context.server.handle(KeepMeasurements, self._asked_to_keep)
        context.server.handle(RecallMeasurements, self._asked_to_recall)

    def keep(self, told: Iterable[OperatorMeasurement]) -> None:
        """Store measurements newer than the known ones; count and drop impossible ones."""
        now, settings = self._context.clock.now(), self._context.settings
        for one in told:
            found = _measurement(one)
            if not found.is_credible() or not one.signature:
                self._context.counters.count("measurement-refused")
                continue
            kept = self._kept.get(one.signature)
            if one.age_s <= settings.measurement_age_s and (kept is None or kept.at_s <= now - one.age_s):
                self._kept[one.signature] = Kept(found, now - one.age_s)
                self._kept.move_to_end(one.signature)
        while len(self._kept) > settings.max_measurements:
            self._kept.popitem(last=False)

    def recall(self, signatures: Iterable[str]) -> tuple[OperatorMeasurement, ...]:
        """Return the measurements of these signatures that are not too old."""
        now, found = self._context.clock.now(), []
        for signature in signatures:
            kept = self._kept.get(signature)
            if kept is None:
                continue
            age_s = now - kept.at_s
            if age_s > self._context.settings.measurement_age_s:
                del self._kept[signature]
                continue
            self._kept.move_to_end(signature)
            one = kept.measurement
            found.append(
                OperatorMeasurement(
                    signature=signature, rows_in=one.rows_in, rows_out=one.rows_out, bytes_out=one.bytes_out, age_s=age_s
                )
            )
        return tuple(found)

    async def measured(self, sources: Mapping[str, str], signatures: Sequence[str]) -> Measured:
        """Ask the nodes of the sources, all at once; the newest answer counts.

        Implements :data:`sbon_node.model.measurements.Recall`.
        """
        at: dict[str, list[str]] = {}
        for source, node in sources.items():
            at.setdefault(node, []).append(source)
        answers = await asyncio.gather(*(self._ask(node, names, signatures) for node, names in sorted(at.items())))
        newest: dict[str, OperatorMeasurement] = {}
        paces: dict[str, SourcePace] = {}
        for (_, names), answer in zip(sorted(at.items()), answers, strict=True):
            for one in answer.operators:
                known = newest.get(one.signature)
                if one.signature in signatures and (known is None or one.age_s < known.age_s) and _measurement(one).is_credible():
                    newest[one.signature] = one
            paces |= {one.source: _pace(one) for one in answer.sources if one.source in names}
        return Measured(operators={name: _measurement(one) for name, one in newest.items()}, sources=paces)

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
            report = self._sources.report(name)
            if report is not None and report.rows:
                rows_s = report.rows_s if report.paced and report.rows_s else 0.0
                sources.append(SourceMeasurement(source=name, rows_s=rows_s, row_bytes=report.bytes / report.rows))
        return Measurements(sources=tuple(sources), operators=self.recall(call.signatures))

    async def tell(self, record: QueryRecord, operators: Iterable[OperatorInfo]) -> None:
        """Send the measurements of a query's operators to the nodes of its sources; skip unreachable nodes."""
        told = _telling(record, operators)
        nodes = sorted({planned.source.node for planned in record.plan.sources})
        if told:
            await asyncio.gather(*(self._tell(node, told) for node in nodes))

    async def _tell(self, node: str, told: tuple[OperatorMeasurement, ...]) -> None:
        if node == self._context.name:
            self.keep(told)
            return
        try:
            call = KeepMeasurements(operators=told)
            await self._context.tell(node, call, timeout_s=self._context.settings.component_timeout_s)
        except SbonError as error:
            log.info("measurements-not-told", node=node, reason=str(error))

    async def _asked_to_keep(self, call: KeepMeasurements, caller: Caller) -> None:
        self.keep(call.operators)

    async def _asked_to_recall(self, call: RecallMeasurements, caller: Caller) -> Measurements:
        return self._recalled(call)


def _telling(record: QueryRecord, operators: Iterable[OperatorInfo]) -> tuple[OperatorMeasurement, ...]:
    described = {operator.id: operator for operator in operators}
    found = []
    for planned in record.plan.operators:
        stats = described[planned.id].stats if planned.id in described else None
        if stats is None or not planned.signature:
            continue
        one = Measurement(rows_in=stats.rows_in, rows_out=stats.rows_out, bytes_out=stats.bytes_out)
        if one.is_telling(has_state=any(read.event_time for read in planned.inputs)):
            found.append(
                OperatorMeasurement(
                    signature=planned.signature, rows_in=one.rows_in, rows_out=one.rows_out, bytes_out=one.bytes_out, age_s=0.0
                )
            )
    return tuple(found[:MAX_MEASUREMENTS])


def _measurement(told: OperatorMeasurement) -> Measurement:
    return Measurement(rows_in=told.rows_in, rows_out=told.rows_out, bytes_out=told.bytes_out)


def _pace(told: SourceMeasurement) -> SourcePace:
    """Return the pace; treat values out of range as missing."""
    return SourcePace(
        rows_s=told.rows_s if 0 < told.rows_s <= MAX_ROWS_S else None,
        row_bytes=told.row_bytes if 0 < told.row_bytes <= MAX_ROW_BYTES else None,
    )

"""Descriptions of the further sinks of a query, from its record and from the reports of their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from sbon_node.model.records import FurtherSink, QueryRecord
from sbon_node.model.shown import shown_sink
from sbon_protocol.api.delivery import FurtherReport
from sbon_protocol.api.queries import SinkInfo
from sbon_protocol.api.states import further_sink_states, query_states
from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE


def recorded_sink(one: FurtherSink) -> SinkInfo:
    """Return what the record alone knows of a sink."""
    return SinkInfo(
        id=one.part,
        node=one.node,
        sink=shown_sink(one.spec),
        state=one.state,
        reason=one.reason,
        begins_after=one.begins_after,
        temporary=one.temporary,
    )


def described_sinks(record: QueryRecord, reports: Mapping[str, Iterable[FurtherReport]]) -> tuple[SinkInfo, ...]:
    """Return the further sinks of a query; ``reports`` are those of the nodes that answer, by node."""
    return tuple(_described(record, one, reports) for one in record.more_sinks)


def _described(record: QueryRecord, one: FurtherSink, reports: Mapping[str, Iterable[FurtherReport]]) -> SinkInfo:
    known = recorded_sink(one)
    report = next((report for report in reports.get(one.node, ()) if report.component == one.component), None)
    if report is not None:
        return msgspec.structs.replace(known, rows=report.rows, delivery=report.report)
    if one.state != further_sink_states.RUNNING or record.state != query_states.RUNNING:
        return known
    state, reason = (LOST, "its node does not know it") if one.node in reports else (UNREACHABLE, "its node does not answer")
    return msgspec.structs.replace(known, state=state, reason=reason)

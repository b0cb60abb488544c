"""Descriptions of queries in a terminal state, whose parts no longer run."""

from __future__ import annotations

import msgspec

from sbon_protocol.api.delivery import SinkReport
from sbon_protocol.api.queries import OperatorInfo, QueryInfo, QueryProgress
from sbon_protocol.api.states import operator_states, query_states, sink_states
from sbon_protocol.api.states.lifecycle import OVER, UNREACHABLE
from sbon_protocol.api.states.query_states import LIVE


def state_of_component(state: str, query_state: str) -> str:
    """Return the state of a part: ``failed`` stays, any other is over with its query."""
    return state if query_state in LIVE or state == operator_states.FAILED else OVER


def as_terminal(info: QueryInfo) -> QueryInfo:
    """Return the last description of a query that is over; return a live query unchanged."""
    if info.state in LIVE:
        return info
    operators = tuple(_operator(operator, info.state) for operator in info.operators)
    delivery = info.delivery and _delivery(info.delivery)
    progress = info.progress and _at_end(info)
    return msgspec.structs.replace(info, operators=operators, delivery=delivery, progress=progress, survival=None)


def _at_end(info: QueryInfo) -> QueryProgress | None:
    """Mark all sources of a finished query as read, whatever the last description says."""
    if info.progress is None:
        return None
    share = 1.0 if info.state == query_states.FINISHED else info.progress.read_share
    return msgspec.structs.replace(
        info.progress, rows_out=info.rows, read_share=share, rows_in_s=None, rows_out_s=None, lag_ms=None, left_s=None
    )


def _operator(operator: OperatorInfo, query_state: str) -> OperatorInfo:
    """Clear the reason for waiting, and a move that the end has cut short; keep reasons for a failure or for a missing report."""
    state = state_of_component(operator.state, query_state)
    operator = msgspec.structs.replace(operator, move=None, backup=None)
    if operator.state == UNREACHABLE:
        return msgspec.structs.replace(operator, state=state, reason=f"{operator.reason} at its end", stats=None)
    reason = operator.reason if state == operator_states.FAILED or operator.stats is None else ""
    return msgspec.structs.replace(operator, state=state, reason=reason)


def _delivery(report: SinkReport) -> SinkReport:
    return report if report.state == sink_states.FINISHED else msgspec.structs.replace(report, state=OVER)

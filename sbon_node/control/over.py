"""What is shown of the parts of a query that is over: whatever they did last, they do it no more."""

from __future__ import annotations

import msgspec

from sbon_node.control.records import LIVE
from sbon_node.control.report import OperatorInfo, QueryInfo, SinkReport

OVER = "over"


def state_of_part(state: str, query_state: str) -> str:
    """A part that failed has failed; any other is over with its query."""
    return state if query_state in LIVE or state == "failed" else OVER


def as_over(info: QueryInfo) -> QueryInfo:
    """The last description of a query that is over; one that is not stays as it is."""
    if info.state in LIVE:
        return info
    operators = tuple(_operator(one, info.state) for one in info.operators)
    return msgspec.structs.replace(info, operators=operators, delivery=info.delivery and _delivery(info.delivery))


def _operator(one: OperatorInfo, query_state: str) -> OperatorInfo:
    """Why it waited does not matter any more; why it failed does, and why nothing is known of it."""
    state = state_of_part(one.state, query_state)
    if one.state == "unreachable":
        return msgspec.structs.replace(one, state=state, reason=f"{one.reason} at its end", stats=None)
    reason = one.reason if state == "failed" or one.stats is None else ""
    return msgspec.structs.replace(one, state=state, reason=reason)


def _delivery(report: SinkReport) -> SinkReport:
    return report if report.state == "finished" else msgspec.structs.replace(report, state=OVER)

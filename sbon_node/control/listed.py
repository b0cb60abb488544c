"""What a list shows of a query: as much as its record's holder knows without asking anybody."""

from __future__ import annotations

from sbon_node.control.context import Context
from sbon_node.control.describe import MAX_REASON
from sbon_node.control.records import LIVE, QueryRecord
from sbon_node.control.report import QueryInfo

LISTED_SQL = 300
"""Characters of a query's text in a list: a list of all records has to fit a message."""


def listed(context: Context, record: QueryRecord, counted: int | None) -> QueryInfo:
    """``counted`` are the rows it had delivered when they were counted last."""
    return QueryInfo(
        id=record.id,
        sql=record.sql if len(record.sql) <= LISTED_SQL else record.sql[: LISTED_SQL - 1] + "…",
        state=record.state,
        reason=record.reason or _missing(context, record),
        submitted_ms=record.submitted_ms,
        node=context.name,
        consumer=record.consumer,
        sink=record.sink.shown(),
        **record.wishes(),
        streams=record.streams,
        rows=record.last.rows if record.last is not None else counted,
    )


def _missing(context: Context, record: QueryRecord) -> str:
    """Nodes it needs that are not there, as far as this one knows."""
    if record.state not in LIVE:
        return ""
    sources = (planned.source.node for planned in record.plan.sources)
    missing = []
    for name in sorted({*sources, *record.hosts.values(), record.consumer} - {context.name}):
        if away := context.away(name):
            missing.append(f"{name} {away}")
    return "; ".join(missing)[:MAX_REASON]

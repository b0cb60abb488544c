"""What a list shows of a query: as much as its record's holder knows without asking anybody."""

from __future__ import annotations

from sbon_node.control.context import Context
from sbon_node.control.records import LIVE, QueryRecord
from sbon_node.control.report import QueryInfo, SinkSpec

LISTED_BYTES = 300
"""Of a query's text, and of its reason, in a list: a list of all records has to fit a message."""


def listed(context: Context, record: QueryRecord, counted: int | None) -> QueryInfo:
    """``counted`` are the rows it had delivered when they were counted last."""
    return QueryInfo(
        id=record.id,
        sql=_cut(record.sql),
        state=record.state,
        reason=_cut(record.reason or _missing(context, record)),
        submitted_ms=record.submitted_ms,
        node=context.name,
        consumer=record.consumer,
        sink=SinkSpec(kind=record.sink.kind),
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
    return "; ".join(missing)


def _cut(text: str) -> str:
    encoded = text.encode()
    return text if len(encoded) <= LISTED_BYTES else encoded[: LISTED_BYTES - 3].decode(errors="ignore") + "…"

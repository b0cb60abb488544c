"""The summary of a query in a list: everything its holder knows without requests."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sbon_node.context import Context
from sbon_node.model.records import QueryRecord
from sbon_protocol.api.queries import QueryInfo, SinkSpec
from sbon_protocol.api.states.query_states import LIVE

SUMMARY_BYTES = 300
"""Most bytes of a query's text, and of its reason, in a list.

A list of all records must fit a message.
"""


def summary_of(context: Context, record: QueryRecord, nodes: Iterable[str], counted: int | None, trouble: str = "") -> QueryInfo:
    """Return the summary; ``nodes`` are its hosts, ``counted`` the rows at the last count, ``trouble`` why it may wait."""
    return QueryInfo(
        id=record.called,
        uid=record.id,
        sql=_cut(record.sql),
        state=record.state,
        reason=_cut(record.reason or _missing(context, record, nodes) or trouble),
        submitted_ms=record.submitted_ms,
        node=context.name,
        consumer=record.consumer,
        sink=SinkSpec(kind=record.sink.kind),
        **record.goal_options(),
        adapt=record.adapt,
        durability=record.durability,
        streams=record.streams,
        rows=record.last.rows if record.last is not None else counted,
    )


def stale(info: QueryInfo, why: str) -> QueryInfo:
    """Return a description that may have changed since, and says so."""
    reason = f"may be stale: {why}"
    return msgspec.structs.replace(info, stale=True, reason=f"{info.reason}; {reason}" if info.reason else reason)


def _missing(context: Context, record: QueryRecord, nodes: Iterable[str]) -> str:
    """Return the nodes that the query needs and that are missing as far as this node knows, and since when."""
    if record.state not in LIVE:
        return ""
    sources = (planned.source.node for planned in record.plan.sources)
    missing = []
    for name in sorted({*sources, *nodes, record.consumer} - {context.name}):
        if why := context.presence.absence(name):
            missing.append(f"{name} {why}")
    return "; ".join(missing)


def _cut(text: str) -> str:
    encoded = text.encode()
    return text if len(encoded) <= SUMMARY_BYTES else encoded[: SUMMARY_BYTES - 3].decode(errors="ignore") + "…"

"""Steps of a query's record for its further sinks, as functions that a compare-and-set may repeat."""

from __future__ import annotations

from typing import Any

import msgspec

from sbon_node.model.records import FurtherSink, QueryRecord
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.queries import QueryInfo, SinkRequest
from sbon_protocol.api.query_ids import MAX_SINKS, further_sinks_of
from sbon_protocol.api.states import further_sink_states, query_states
from sbon_protocol.api.states.further_sink_states import LIFECYCLE, READS, FurtherSinkState
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.api.usage import QueryUsage
from sbon_protocol.errors import SbonError


def by_claim(record: QueryRecord, claim: str) -> FurtherSink | None:
    return next((one for one in record.more_sinks if one.claim == claim), None)


def by_component(record: QueryRecord, component: str) -> FurtherSink | None:
    return next((one for one in record.more_sinks if one.component == component), None)


def named(record: QueryRecord, sink: str) -> FurtherSink:
    """Return the further sink of that id, with or without the query's; raise ``bad-sink``, ``unknown-sink``."""
    if sink in ("sink", record.sink_component):
        message, hint = "the first sink ends with its query", f"stop the query: sbon query stop {record.called}"
        raise SbonError("bad-sink", message, where="sink", hint=hint)
    found = next((one for one in record.more_sinks if sink in (one.part, one.component)), None)
    if found is None:
        known = ", ".join(one.part for one in record.more_sinks)
        hint = f"it has: {known}" if known else f"add one: sbon query sink add {record.called} --to URL"
        raise SbonError("unknown-sink", f"{record.called} has no further sink {sink!r}", where="sink", hint=hint)
    return found


def waits(record: QueryRecord) -> bool:
    """Return whether a further sink has yet to deliver rows."""
    return any(one.state in READS for one in record.more_sinks)


def is_done(record: QueryRecord) -> bool:
    """Return whether all sinks have delivered all rows, or have failed or gone."""
    return record.state == query_states.RUNNING and record.sink_finished and not waits(record)


def added(record: QueryRecord, request: SinkRequest, node: str, claim: str) -> QueryRecord | None:
    """Return the record with one more sink; None if it has that. Raises ``query-over``, ``too-many-sinks``."""
    if by_claim(record, claim) is not None:
        return None
    if record.state != query_states.RUNNING or record.sink_finished:
        state = "all of its rows are delivered" if record.sink_finished else record.state
        raise SbonError("query-over", f"no sink can be added to {record.called}: {state}", where="query")
    used = {one.component for one in record.more_sinks}
    free = next((one for one in further_sinks_of(record.id) if one not in used), None)
    if free is None:
        hint = f"remove one: sbon query sink remove {record.called} SINK"
        raise SbonError("too-many-sinks", f"{record.called} has {MAX_SINKS} sinks", where="query", hint=hint)
    sink = FurtherSink(
        component=free, claim=claim, node=node, spec=request.sink, begin=request.begin, temporary=request.temporary
    )
    return msgspec.structs.replace(record, more_sinks=(*record.more_sinks, sink))


def opened(record: QueryRecord, claim: str, rows: int) -> QueryRecord | None:
    """Return the record with a sink that runs; None if that is so, or it has ended meanwhile."""
    one = by_claim(record, claim)
    if not _runs(record) or one is None or one.opened or one.state == further_sink_states.REMOVING:
        return None
    state = further_sink_states.RUNNING if one.state == further_sink_states.OPENING else one.state
    return _with(record, one, state=state, begins_after=rows, opened=True)


def sink_ended(record: QueryRecord, claim: str, state: FurtherSinkState, reason: str = "") -> QueryRecord | None:
    """Return the record with a further sink that has finished, has failed, or is being removed."""
    one = by_claim(record, claim)
    if not _runs(record) or one is None or one.state in (state, further_sink_states.REMOVING):
        return None
    if state != further_sink_states.REMOVING and one.state not in READS:
        return None
    has_run = one.opened or state in (further_sink_states.FINISHED, further_sink_states.FAILED)
    return _with(record, one, state=state, reason=reason[:MAX_REASON], opened=has_run)


def first_finished(record: QueryRecord) -> QueryRecord | None:
    """Return the record with its first sink finished, while others have yet to; None if that is so, or it is over."""
    if record.state != query_states.RUNNING or record.sink_finished:
        return None
    return msgspec.structs.replace(record, sink_finished=True)


def concluded(record: QueryRecord, last: QueryInfo, query_usage: QueryUsage, *, lost: bool) -> QueryRecord | None:
    """Return the record of a query that ends as its ``last`` description says; None if it is over.

    A query to which a sink was added meanwhile goes on until that has finished, too.
    """
    if record.state not in LIVE:
        return None
    if last.state == query_states.FINISHED and waits(record):
        return first_finished(record)
    end = {"last": last, "query_usage": query_usage, "restart_due": lost and record.submission is not None}
    return msgspec.structs.replace(record, state=last.state, reason=last.reason, **end)


def cleared(record: QueryRecord, claim: str) -> QueryRecord | None:
    """Return the record after a sink is ended: without one that was removed."""
    one = by_claim(record, claim)
    if not _runs(record) or one is None or one.cleared:
        return None
    if one.state == further_sink_states.REMOVING or (one.state == further_sink_states.FAILED and one.temporary):
        return msgspec.structs.replace(record, more_sinks=tuple(other for other in record.more_sinks if other is not one))
    return _with(record, one, cleared=True)


def to_clear(record: QueryRecord) -> list[FurtherSink]:
    """Return the sinks whose hosts have yet to end them."""
    over = (further_sink_states.FAILED, further_sink_states.REMOVING)
    return [one for one in record.more_sinks if one.state in over and not one.cleared]


def _runs(record: QueryRecord) -> bool:
    return record.state == query_states.RUNNING


def _with(record: QueryRecord, one: FurtherSink, **fields: Any) -> QueryRecord:
    changed = msgspec.structs.replace(one, **fields)
    LIFECYCLE.check(one.state, changed.state, one.component)
    sinks = tuple(changed if other is one else other for other in record.more_sinks)
    return msgspec.structs.replace(record, more_sinks=sinks)

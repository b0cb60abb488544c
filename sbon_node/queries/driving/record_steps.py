"""Steps of a query's record: from one state to the next, as functions that a compare-and-set may repeat."""

import re
from functools import partial
from pathlib import PurePath
from typing import Any

import msgspec

from sbon_node.base.events import Bus, OperatorChanged, QueryChanged
from sbon_node.model.records import FurtherSink, QueryRecord
from sbon_node.ownership.acceptors import QUERY_OVER, REFUSED
from sbon_node.queries.describing.describe import as_terminal
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.delivery import FOLLOW
from sbon_protocol.api.queries import QueryInfo, SinkRequest, SinkSpec, Submission
from sbon_protocol.api.query_ids import MAX_SINKS, further_sinks_of
from sbon_protocol.api.states import further_sink_states, query_states
from sbon_protocol.api.states.further_sink_states import LIFECYCLE, READS, FurtherSinkState
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.api.usage import QueryUsage
from sbon_protocol.errors import SbonError


def is_placing(record: QueryRecord) -> bool:
    return record.state == query_states.PLACING


def has_begun(record: QueryRecord) -> bool:
    """Return whether the query runs or has finished, perhaps by an attempt whose answer was lost."""
    return record.state == query_states.FINISHED or (record.accepted and record.state == query_states.RUNNING)


def end_error(record: QueryRecord) -> SbonError | None:
    """Return ``query-over``, with the reason, for a query that has ended while it started."""
    if is_placing(record):
        return None
    reason = f"{record.state}: {record.reason}" if record.reason else record.state
    return SbonError("query-over", f"the query ended while it started, {reason}", where=record.id)


def check_placing(record: QueryRecord) -> None:
    """Raise ``query-over`` if the query has ended while it started."""
    if (ended := end_error(record)) is not None:
        raise ended


def with_last(record: QueryRecord, **fields: Any) -> QueryRecord | None:
    """Return the record with these fields in its last description; None if it has none, or has them already."""
    if record.last is None:
        return None
    last = as_terminal(msgspec.structs.replace(record.last, **fields))
    return None if last == record.last else msgspec.structs.replace(record, last=last)


def cleaned(record: QueryRecord) -> QueryRecord | None:
    return None if record.cleaned else msgspec.structs.replace(record, cleaned=True)


def refused(record: QueryRecord, reason: str) -> QueryRecord | None:
    """Return the record of a query that fails because its submission is refused; None if it is over."""
    failed = {"state": query_states.FAILED, "reason": reason, "accepted": False}
    return msgspec.structs.replace(record, **failed) if record.state in LIVE else None


def withdrawn(record: QueryRecord) -> QueryRecord | None:
    return None if record.withdrawn else msgspec.structs.replace(record, cleaned=True, withdrawn=True)


def in_place_of(record: QueryRecord, submission: Submission, lost: QueryRecord | None) -> QueryRecord:
    """Return a new record with what it may be submitted again with, and the ``lost`` query that it replaces, if any."""
    if not submission.allow_restart_from_sources:
        return record
    decided = {name: getattr(record, name) for name in ("name", "consumer", "adapt", "durability")}
    submission = msgspec.structs.replace(submission, **decided)
    restarts = {"restarted_from": lost.id, "restarts": lost.restarts + 1} if lost is not None else {}
    return msgspec.structs.replace(record, submission=submission, **restarts)


def restarted(record: QueryRecord, uid: str, reason: str = "") -> QueryRecord | None:
    """Return the record of a lost query that has begun anew as ``uid``, or does not for a reason."""
    if not record.restart_due:
        return None
    reason = f"{record.reason}; not restarted: {reason}"[:MAX_REASON] if reason else record.reason
    last = record.last and msgspec.structs.replace(record.last, reason=reason)
    return msgspec.structs.replace(record, restart_due=False, restarted_as=uid, reason=reason, last=last)


def check_live(record: QueryRecord, component: str) -> None:
    """Raise ``query-over`` or ``query-refused`` for a query that is over: none of its components may go on."""
    if record.state not in LIVE:
        raise SbonError(REFUSED if record.refused else QUERY_OVER, f"{record.id} is over", where=component)


# -- Steps for further sinks ------------------------------------------------------------------------------------------


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
    LIFECYCLE.check_transition(one.state, changed.state, one.component)
    sinks = tuple(changed if other is one else other for other in record.more_sinks)
    return msgspec.structs.replace(record, more_sinks=sinks)


# -- Restarts of a query from its sources, and the sink to which its rows go then -------------------------------------

FILE, STREAM = "file", "stream"
MAX_STREAM_NAME = 63
_EARLIER = re.compile(r"\.restart\d+$")
_EARLIER_STREAM = re.compile(r"_restart\d+$")


def restart_text(record: QueryRecord) -> str:
    """Return for users whether the query begins, or has begun, anew; empty if it does neither."""
    if record.restart_due:
        return "begins anew from its sources as soon as it can"
    if record.restarted_as:
        return f"has begun anew from its sources as {record.restarted_as}"
    if record.restarted_from:
        return f"has begun anew from its sources in place of {record.restarted_from}: {_rows(record.sink)}"
    return ""


def _rows(sink: SinkSpec) -> str:
    if sink.kind == FILE:
        return f"all rows are in {sink.options['path']}, a new file; those of before are in the old one, too"
    if sink.kind == STREAM:
        return f"all rows are in the stream {sink.options['stream']}, a new one; those of before are in the old one, too"
    if sink.kind == FOLLOW:
        return "followers get the rows again that they had before"
    return f"the sink ({sink.kind}) gets the rows again that it had before"


def sink_of_restart(sink: SinkSpec, restarts: int) -> SinkSpec:
    """Return the sink of a query that begins anew.

    A file or stream is a new one: ``rows.csv`` is followed by ``rows.restart1.csv``, ``late`` by ``late_restart1``.
    """
    if sink.kind == STREAM:
        suffix = f"_restart{restarts}"
        stream = _EARLIER_STREAM.sub("", sink.options["stream"])[: MAX_STREAM_NAME - len(suffix)] + suffix
        return msgspec.structs.replace(sink, options={**sink.options, "stream": stream})
    if sink.kind != FILE:
        return sink
    path = PurePath(sink.options["path"])
    name = f"{_EARLIER.sub('', path.stem)}.restart{restarts}{path.suffix}"
    return msgspec.structs.replace(sink, options={**sink.options, "path": str(path.with_name(name))})


# -- Events for listeners ---------------------------------------------------------------------------------------------


def notify_of_query(bus: Bus, record: QueryRecord, state: str, was: str = "", reason: str = "") -> None:
    bus.publish(
        "queries", partial(QueryChanged, query=record.called, state=state, was=was, consumer=record.consumer, reason=reason)
    )


def notify_of_placement(bus: Bus, before: QueryRecord, record: QueryRecord) -> None:
    """Announce every operator at the first placement, and later those whose host has changed."""
    for assignment in record.placement.assignments if record.placement is not None else ():
        was = before.hosts.get(assignment.operator, "")
        if was != assignment.node:
            event = partial(
                OperatorChanged,
                query=record.called,
                operator=assignment.operator,
                change="re-placed" if was else "placed",
                host=assignment.node,
                was=was,
                strategy=record.strategy,
                reason=assignment.reason,
            )
            bus.publish("placement", event)

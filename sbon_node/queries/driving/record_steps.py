"""Steps of a query's record: from one state to the next, as functions that a compare-and-set may repeat."""

from __future__ import annotations

from typing import Any

import msgspec

from sbon_node.model.records import QueryRecord
from sbon_node.ownership.acceptors import QUERY_OVER, REFUSED
from sbon_node.queries.describing.terminal_description import as_terminal
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.queries import Submission
from sbon_protocol.api.states import query_states
from sbon_protocol.api.states.query_states import LIVE
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

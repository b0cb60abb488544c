"""Steps of a query's record: from one state to the next, as functions that a compare-and-set may repeat."""

from __future__ import annotations

from typing import Any

import msgspec

from sbon_node.errors import SbonError
from sbon_node.hosting.claims import REFUSED
from sbon_node.model.records import QueryRecord
from sbon_node.model.states import query_states
from sbon_node.model.states.query_states import LIVE
from sbon_node.queries.terminal_description import as_terminal
from sbon_protocol.calls import ClaimComponent


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


def next_epoch(record: QueryRecord, call: ClaimComponent, node: str, instance: str) -> QueryRecord | None:
    """Return the record with the claimed epoch; None if the claim is a repeated one, whose answer was lost."""
    if record.state not in LIVE:
        raise SbonError(REFUSED if record.refused else "query-over", f"{record.id} is over", where=call.component)
    component, known = call.component, record.epochs.get(call.component, 0)
    if call.epoch == known - 1 and record.claimants.get(component) == instance:
        check_owner(record, component, node, known)
        return None
    check_owner(record, component, node, call.epoch)
    epochs, claimants = {**record.epochs, component: known + 1}, {**record.claimants, component: instance}
    return msgspec.structs.replace(record, epochs=epochs, claimants=claimants)


def check_owner(record: QueryRecord, component: str, node: str, epoch: int) -> None:
    """Raise ``not-owner`` unless ``node`` hosts the component, in the record's epoch."""
    owner = record.consumer if component == record.sink_component else record.hosts.get(component)
    known = record.epochs.get(component, 0)
    if (owner, known) != (node, epoch):
        raise SbonError("not-owner", f"{component} belongs to {owner} in epoch {known}", where=component)

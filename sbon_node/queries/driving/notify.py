"""Events of a node's workflows for listeners."""

from __future__ import annotations

from functools import partial

from sbon_node.base.events import Bus, OperatorChanged, QueryChanged
from sbon_node.model.records import QueryRecord


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

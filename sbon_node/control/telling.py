"""What a node's workflows tell those who listen to its events."""

from __future__ import annotations

from functools import partial

from sbon_node.control.records import QueryRecord
from sbon_node.happenings import Bus, OperatorChanged, QueryChanged


def tell_of_query(bus: Bus, record: QueryRecord, state: str, was: str = "", reason: str = "") -> None:
    bus.tell("queries", partial(QueryChanged, query=record.id, state=state, was=was, consumer=record.consumer, reason=reason))


def tell_of_places(bus: Bus, before: QueryRecord, record: QueryRecord) -> None:
    """Every operator when it is placed first; later those whose host is another."""
    for one in record.placement.assignments if record.placement is not None else ():
        was = before.hosts.get(one.operator, "")
        if was != one.node:
            placed = partial(
                OperatorChanged,
                query=record.id,
                operator=one.operator,
                change="re-placed" if was else "placed",
                host=one.node,
                was=was,
                strategy=record.strategy,
                reason=one.reason,
            )
            bus.tell("placement", placed)

"""Validation of a peer's messages and rumours: impossible coordinates and incarnations are refused and counted.

All coordinates of other nodes pass here, before the table, the gossip and the space get them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sbon_node.net.counters import Counters
from sbon_node.net.transport import Address
from sbon_node.overlay.membership.table import MAX_INCARNATION, Table
from sbon_node.overlay.space.coordinate import checked
from sbon_protocol.messages import Ack, CoordinateUpdate, Gossip, Member, Ping, Rumour, StateUpdate


class Validation:
    """One node's validation, in a space of the given dimensions."""

    def __init__(self, table: Table, dimensions: int, counters: Counters) -> None:
        self._table, self._dimensions, self._counters = table, dimensions, counters

    def message(self, message: Gossip, sender: Address) -> Gossip:
        """Return the message, without a coordinate that is impossible or older than the known one."""
        if not isinstance(message, Ping | Ack) or message.coordinate is None:
            return message
        if checked(message.coordinate, self._dimensions) is not None:
            known = self._table.get(message.source)
            if known is None or message.coordinate_version >= known.member.coordinate_version:
                return message
            self._counters.count("coordinate-stale")
        else:
            self._counters.refuse("coordinate-refused", name=message.source, peer=str(sender))
        return msgspec.structs.replace(message, coordinate=None)

    def rumours(self, rumours: Iterable[Rumour]) -> tuple[Rumour, ...]:
        """Return the rumours that may be true and are news; an impossible coordinate is removed from its member."""
        admitted: list[Rumour] = []
        for rumour in rumours:
            if isinstance(rumour, CoordinateUpdate) and self._table.outdated(rumour):
                continue
            if rumour.incarnation > MAX_INCARNATION:
                self._counters.refuse("incarnation-refused", name=rumour.name)
                continue
            if isinstance(rumour, Member) and not rumour.instance:
                self._counters.refuse("name-conflict", name=rumour.name, reason="of no instance")
                continue
            coordinate = None if isinstance(rumour, StateUpdate) else rumour.coordinate
            if coordinate is not None and checked(coordinate, self._dimensions) is None:
                self._counters.refuse("coordinate-refused", name=rumour.name)
                if not isinstance(rumour, Member):
                    continue
                rumour = msgspec.structs.replace(rumour, coordinate=None)
            admitted.append(rumour)
        return tuple(admitted)

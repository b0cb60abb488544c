"""What of a peer's message and rumours is taken in: coordinates and incarnations that no node can have are refused, counted."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sbon_node.membership.table import MAX_INCARNATION, Table
from sbon_node.net.counters import Counters
from sbon_node.net.transport import Address
from sbon_node.space.coordinate import plausible
from sbon_protocol.messages import Ack, Finding, Gossip, Member, Ping, Place, Rumour


class Admission:
    """Of one node, in a space of so many dimensions."""

    def __init__(self, table: Table, dimensions: int, counters: Counters) -> None:
        self._table, self._dimensions, self._counters = table, dimensions, counters

    def message(self, message: Gossip, sender: Address) -> Gossip:
        """The message, without a coordinate that is impossible, or older than the one known."""
        if not isinstance(message, Ping | Ack) or message.coordinate is None:
            return message
        if plausible(message.coordinate, self._dimensions):
            known = self._table.get(message.source)
            if known is None or message.coordinate_version >= known.member.coordinate_version:
                return message
            self._counters.count("coordinate-stale")
        else:
            self._counters.refuse("coordinate-refused", name=message.source, peer=str(sender))
        return msgspec.structs.replace(message, coordinate=None)

    def rumours(self, rumours: Iterable[Rumour]) -> tuple[Rumour, ...]:
        """Those that may be true and news; a member whose coordinate is impossible is taken without it."""
        admitted: list[Rumour] = []
        for rumour in rumours:
            if isinstance(rumour, Place) and self._table.outdated(rumour):
                continue
            if rumour.incarnation > MAX_INCARNATION:
                self._counters.refuse("incarnation-refused", name=rumour.name)
                continue
            coordinate = None if isinstance(rumour, Finding) else rumour.coordinate
            if coordinate is not None and not plausible(coordinate, self._dimensions):
                self._counters.refuse("coordinate-refused", name=rumour.name)
                if not isinstance(rumour, Member):
                    continue
                rumour = msgspec.structs.replace(rumour, coordinate=None)
            admitted.append(rumour)
        return tuple(admitted)

"""Ants on the port of membership: only members send them, from their own addresses, under their own names."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from sbon_node.net.counters import Counters
from sbon_node.net.transport import Address
from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.membership.table import REACHABLE
from sbon_protocol.ants import Ant
from sbon_protocol.messages import Endpoint

AntHandler = Callable[[Ant], None]
"""Takes an ant from the living member that it names as its sender; must not raise."""


class AntPort:
    """Sends ants to members, and hands those of members to ``handler`` until it is closed."""

    def __init__(self, membership: Membership, counters: Counters, handler: AntHandler) -> None:
        self._membership, self._counters = membership, counters
        self._handler: AntHandler | None = handler
        membership.handle(get_args(Ant), self._received)

    def close(self) -> None:
        """Drop all ants that come from now on."""
        self._handler = None

    def _received(self, ant: Ant, sender: Address) -> None:
        table = self._membership.table
        row = table.get(ant.sender)
        if row is None or row.member.state not in REACHABLE or not table.is_from(ant.sender, Endpoint(*sender)):
            # As from a node that has joined, or come back, and of which no rumour has arrived here yet.
            self._counters.note("ant-of-a-stranger", peer=str(sender), name=ant.sender)
        elif self._handler is not None:
            self._handler(ant)

    def send(self, to: str, ant: Ant) -> bool:
        """Send an ant to a member; return whether it could be sent: the member is known and the ant fits."""
        row = self._membership.table.get(to)
        try:
            if row is not None and row.member.state in REACHABLE and self._membership.send(_address(row.member.address), ant):
                return True
        except ValueError:
            self._counters.count("ant-too-long")
            return False
        self._counters.count("ant-nowhere")
        return False


def _address(endpoint: Endpoint) -> Address:
    return Address(endpoint.host, endpoint.port)

"""Ants on the port of membership: only members send them, from their own addresses, under their own names."""

from __future__ import annotations

from collections.abc import Callable

from sbon_node.net.counters import Counters
from sbon_node.net.transport import Address, DatagramEndpoint
from sbon_node.overlay.membership.table import REACHABLE, Table
from sbon_protocol import datagram
from sbon_protocol.ants import Ant
from sbon_protocol.messages import Endpoint

AntHandler = Callable[[Ant], None]
"""Takes an ant from the living member that it names as its sender; must not raise."""


class AntPort:
    """Sends and receives ants once ``endpoint`` is open; without a handler they are dropped."""

    def __init__(self, cluster: str, table: Table, counters: Counters) -> None:
        self._cluster, self._table, self._counters = cluster, table, counters
        self.endpoint: DatagramEndpoint | None = None
        self.handler: AntHandler | None = None

    def received(self, ant: Ant, sender: Address) -> None:
        row = self._table.get(ant.sender)
        if row is None or row.member.state not in REACHABLE or not self._table.is_from(ant.sender, Endpoint(*sender)):
            # As from a node that has joined, or come back, and of which no rumour has arrived here yet.
            self._counters.note("ant-of-a-stranger", peer=str(sender), name=ant.sender)
        elif self.handler is not None:
            self.handler(ant)

    def send(self, to: str, ant: Ant) -> bool:
        """Send an ant to a member; return whether it could be sent: the member is known and the ant fits."""
        row = self._table.get(to)
        if row is None or row.member.state not in REACHABLE or self.endpoint is None:
            self._counters.count("ant-nowhere")
            return False
        try:
            payload, _ = datagram.fill(self._cluster, ant, ())
        except ValueError:
            self._counters.count("ant-too-long")
            return False
        self.endpoint.send(payload, Address(row.member.address.host, row.member.address.port))
        return True

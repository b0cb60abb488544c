"""The packages that every workflow of a node uses."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from sbon_node.base.clock import Clock
from sbon_node.base.drain_mark import Drained
from sbon_node.base.events import Bus
from sbon_node.base.executors import Executor
from sbon_node.base.failpoints import Failpoints
from sbon_node.base.store import RecordStore
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Peers, PeerServer
from sbon_node.overlay.directory.view import Directory
from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.presence import Presence
from sbon_node.planning.process.planner import Planner
from sbon_node.streams.links.publisher import Publisher
from sbon_node.streams.links.shared.reading import SharedConnections
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_node.workflow.settings import ControlSettings
from sbon_protocol.messages import Call

Reply = TypeVar("Reply", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Context:
    """The packages below, wired once by the daemon. ``name`` is this node's."""

    name: str
    data_dir: Path
    clock: Clock
    rng: random.Random
    settings: ControlSettings
    stream_settings: StreamSettings
    store: RecordStore
    outbox: Outbox
    publisher: Publisher
    peers: Peers
    connections: SharedConnections
    server: PeerServer
    membership: Membership
    presence: Presence
    directory: Directory
    counters: Counters
    failpoint: Failpoints
    executor: Executor
    computing: Executor
    planner: Planner
    bus: Bus
    drained: Drained

    async def ask(self, node: str, call: Call, reply: type[Reply], *, timeout_s: float | None = None) -> Reply:
        """Call a member by name; raise :class:`sbon_protocol.errors.SbonError` if it refuses or is unreachable."""
        answer = await self._call(node, call, timeout_s)
        if not isinstance(answer, reply):
            raise TypeError(f"{type(call).__name__} is answered by {type(answer).__name__}, not {reply.__name__}")
        return answer

    async def call(self, node: str, call: Call, *, timeout_s: float | None = None) -> None:
        """Call a member as :meth:`ask` does, for calls whose reply is empty."""
        await self._call(node, call, timeout_s)

    async def _call(self, node: str, call: Call, timeout_s: float | None) -> object:
        limit = self.settings.call_timeout_s if timeout_s is None else timeout_s
        self.failpoint("ask")
        try:
            address, expected = self.membership.address_of(node), self.membership.expected(node)
            return await self.peers.call(address, call, timeout_s=limit, expected=expected)
        finally:
            self.failpoint("answer")

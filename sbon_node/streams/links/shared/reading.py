"""The reader's end of shared connections: the links of a node that read one stream share one (SPEC.md, section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from sbon_node.net.peers import ANYONE, Expected
from sbon_node.net.transport import Address, ConnectionLostError
from sbon_node.streams.links.channel import FrameChannel
from sbon_node.streams.links.credit import weight
from sbon_node.streams.links.shared.connection import MAX_OPEN, Inner, SharedConnection, SubscriptionChannel
from sbon_node.streams.links.shared.window import Window
from sbon_node.streams.outbox.signals import Signal
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Closed, Data, Hello, OpenShared, Repeated, Subscribed, Welcome
from sbon_protocol.version import SHARED_STREAMS

WINDOW_FRAMES = 4096
"""Most frames of a window. Frames are small where there are so many of them within its bytes."""


class PeerChannel(FrameChannel, Protocol):
    """A connection that knows the other side's handshake message."""

    @property
    def peer(self) -> Hello | Welcome | None: ...


class Connector(Protocol):
    """Opens connections for streams."""

    async def open_stream(self, address: Address, expected: Expected = ANYONE) -> PeerChannel: ...


class _Key(NamedTuple):
    address: Address
    expected: Expected
    stream: str


class SharedConnections:
    """Opens the channels of a node's links. Those to one stream of one host share a connection, if the host can do that.

    A link that is closed before it was answered may have met a dead connection: the next one opens another.
    """

    def __init__(self, peers: Connector, settings: StreamSettings) -> None:
        self._peers, self._settings = peers, settings
        self._shared: dict[_Key, _SharedReading] = {}
        self._opening: dict[_Key, Signal] = {}
        self._running: dict[asyncio.Task[None], _SharedReading] = {}

    async def open_stream(self, address: Address, expected: Expected = ANYONE, *, stream: str) -> FrameChannel:
        """Return a channel for a subscription to ``stream``. Raises as :meth:`sbon_node.net.peers.Peers.open_stream`."""
        key = _Key(address, expected, stream)
        if not self._settings.shared_window_bytes:
            return await self._peers.open_stream(address, expected)
        while (opening := self._opening.get(key)) is not None:
            await opening.wait()
        if (shared := self._shared.get(key)) is not None and not shared.is_full:
            return shared.subscription()
        opening = self._opening[key] = Signal()
        try:
            return await self._open(key)
        finally:
            del self._opening[key]
            opening.notify()

    async def close(self) -> None:
        """Wait until the connections have ended, once their links are closed."""
        for shared in self._running.values():
            shared.channel.close()
        while self._running:
            await asyncio.wait(list(self._running))

    async def _open(self, key: _Key) -> FrameChannel:
        channel = await self._peers.open_stream(key.address, key.expected)
        if channel.peer is None or SHARED_STREAMS not in channel.peer.capabilities:
            return channel
        window_bytes = self._settings.shared_window_bytes
        try:
            await channel.send(OpenShared(window_bytes=window_bytes, window_frames=WINDOW_FRAMES))
        except BaseException:
            channel.close()
            raise
        shared = _SharedReading(channel, Window(window_bytes, WINDOW_FRAMES), lambda: self._retire(key, shared))
        self._shared[key] = shared
        task = asyncio.get_running_loop().create_task(_carry(shared), name=f"shared {key.stream} of {key.address}")
        self._running[task] = shared
        task.add_done_callback(lambda done: self._ended(key, done))
        return shared.subscription()

    def _retire(self, key: _Key, shared: _SharedReading) -> None:
        if self._shared.get(key) is shared:
            del self._shared[key]

    def _ended(self, key: _Key, task: asyncio.Task[None]) -> None:
        self._retire(key, self._running.pop(task))
        if not task.cancelled():
            task.result()


async def _carry(shared: _SharedReading) -> None:
    with suppress(ConnectionLostError, ProtocolError):  # Each link says so for itself, and connects again.
        await shared.run()


class _SharedReading(SharedConnection):
    """The subscriptions of one connection; ``retire`` is called when no further one may use it."""

    def __init__(self, channel: FrameChannel, window: Window, retire: Callable[[], None]) -> None:
        super().__init__(channel, window)
        self._retire = retire
        self._newest = 0
        self._live: dict[int, None] = {}
        """The subscriptions that the host has not closed."""

    @property
    def is_full(self) -> bool:
        return len(self._live) >= MAX_OPEN

    def subscription(self) -> SubscriptionChannel:
        self._newest += 1
        self._live[self._newest] = None
        channel = self.open[self._newest] = SubscriptionChannel(self, self._newest)
        return channel

    def closed_here(self, channel: SubscriptionChannel) -> None:
        super().closed_here(channel)
        if not channel.answered:
            self._retire()
        if not self.open:
            self._retire()
            self.channel.close()

    def translate(self, number: int, message: Inner) -> Inner:
        return message

    def take(self, number: int, message: Inner) -> None:
        if number not in self._live:
            raise ProtocolError("unexpected", f"{type(message).__name__} came for subscription {number}, which is closed")
        channel = self.open.get(number)
        if isinstance(message, Closed):
            self._live.pop(number)
            self.window.close(number)
            if channel is not None:
                channel.end(ConnectionLostError("the host closed the subscription"))
            return
        if isinstance(message, Subscribed):
            self.window.open(number, message.lineage, message.next - 1)
        elif isinstance(message, Repeated):
            message = self._repeated(number, message)
        if isinstance(message, Data):
            self.window.sent(number, message, weight(message.payload))
        self.put(channel, message)

    def _repeated(self, number: int, message: Repeated) -> Data:
        data = self.window.find(number, message.number)
        if data is None:
            raise ProtocolError("not-in-window", f"frame {message.number} was sent as a number, and is not kept")
        return replace(data, epoch=message.epoch)

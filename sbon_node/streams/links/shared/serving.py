"""The host's end of shared connections: each frame crosses once for all subscriptions of a node (SPEC.md, section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from msgspec.structs import replace

from sbon_node.base.clock import Clock
from sbon_node.net.transport import ConnectionLostError
from sbon_node.streams.links.channel import FrameChannel, race
from sbon_node.streams.links.credit import weight
from sbon_node.streams.links.shared.connection import MAX_OPEN, Inner, SharedConnection, SubscriptionChannel
from sbon_node.streams.links.shared.window import Window
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Closed, Data, OpenShared, Repeated, Subscribe, Subscribed

log = structlog.get_logger()

MAX_WINDOW_FRAMES = 65_536
"""Most frames that a reader may have this node remember for one connection."""

Sharers = Callable[[], tuple[str, ...]]
"""Returns the subscribers for which the payload of the last frame had been sent before."""

ServeOne = Callable[[FrameChannel, Subscribe, Sharers], Awaitable[None]]
"""Serves one subscription until it ends, and closes the channel."""


def alone() -> tuple[str, ...]:
    """Share no frame."""
    return ()


class SharedServing(SharedConnection):
    """Serves the subscriptions of one connection, each by ``serve_one`` in a task of its own."""

    def __init__(self, channel: FrameChannel, opened: OpenShared, serve_one: ServeOne, clock: Clock, idle_s: float) -> None:
        """Create it; a connection without subscriptions is closed after ``idle_s`` seconds, or twice that.

        Raises :class:`ProtocolError` ``bad-number`` for a window that takes too much memory.
        """
        if opened.window_frames > MAX_WINDOW_FRAMES:
            raise ProtocolError("bad-number", f"a window of {opened.window_frames} frames, the limit is {MAX_WINDOW_FRAMES}")
        super().__init__(channel, Window(opened.window_bytes, opened.window_frames))
        self._serve_one, self._clock, self._idle_s = serve_one, clock, idle_s
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._subscribers: dict[int, str] = {}
        self._sharers: dict[int, tuple[str, ...]] = {}
        self._newest = 0
        self._broken: BaseException | None = None

    async def serve(self) -> None:
        """Serve until the connection ends. Raises as :meth:`run`."""
        try:
            await race(self.run(), self._idle())
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._broken is not None:
                raise self._broken

    def translate(self, number: int, message: Inner) -> Inner:
        if isinstance(message, Subscribed):
            self.window.open(number, message.lineage, message.next - 1, self._subscribers.get(number, ""))
        elif isinstance(message, Closed):
            self.window.close(number)
            self._subscribers.pop(number, None)
            self._sharers.pop(number, None)
        elif isinstance(message, Data):
            self._sharers[number] = self.window.subscribers(number, message.number)
            is_there = self.window.find(number, message.number) is not None
            self.window.sent(number, replace(message, payload=b""), weight(message.payload))
            return Repeated(number=message.number, epoch=message.epoch) if is_there else message
        return message

    def take(self, number: int, message: Inner) -> None:
        channel = self.open.get(number)
        if channel is not None and isinstance(message, Closed):
            channel.end(ConnectionLostError("the subscriber closed the subscription"))
        elif channel is not None:
            self.put(channel, message)
        elif number > self._newest:
            self._begin(number, message)

    async def _idle(self) -> None:
        """Return once the connection has been without subscriptions for a while."""
        newest = -1
        while self._tasks or self._newest != newest:
            newest = self._newest
            await self._clock.sleep(self._idle_s)

    def _begin(self, number: int, message: Inner) -> None:
        if not isinstance(message, Subscribe):
            raise ProtocolError("unexpected", f"subscription {number} opened with {type(message).__name__}")
        if len(self._subscribers) >= MAX_OPEN:
            raise ProtocolError("flood", f"more than {MAX_OPEN} subscriptions on one connection")
        self._newest, self._subscribers[number] = number, message.subscriber
        channel = self.open[number] = SubscriptionChannel(self, number)
        task = asyncio.get_running_loop().create_task(self._serve(channel, message), name=f"subscription {number}")
        self._tasks[task] = None
        task.add_done_callback(self._served)

    async def _serve(self, channel: SubscriptionChannel, message: Subscribe) -> None:
        try:
            await self._serve_one(channel, message, lambda: self._sharers.get(channel.number, ()))
        except ProtocolError as error:  # Its siblings go on.
            log.info("subscription_rejected", subscriber=message.subscriber, reason=str(error))
        finally:
            channel.close()

    def _served(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = self._broken or error
            self.channel.close()

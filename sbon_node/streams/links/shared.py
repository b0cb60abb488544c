"""One connection that carries several subscriptions, each over a channel of its own: both its ends (SPEC.md, section 6).

All links of a node that read one stream share one, and each frame crosses once for all of them. Both ends keep the same window of
frames: it changes with the host's messages alone, in their order. So the host knows which frames the reader still has, and sends
these again as a number.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from sbon_node.base.clock import Clock
from sbon_node.net.peers import ANYONE, Expected, Peers
from sbon_node.net.transport import Address, ConnectionLostError
from sbon_node.streams.links.channel import FrameChannel, race
from sbon_node.streams.links.credit import weight
from sbon_node.streams.outbox.signals import Signal
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import (
    Closed,
    Data,
    Ended,
    Frame,
    OpenShared,
    Progress,
    Refused,
    Repeated,
    Shared,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from sbon_protocol.version import SHARED_STREAMS


@dataclass(slots=True)
class _Place:
    """The last frame ``sent`` to a subscription of a stream of this ``lineage``."""

    lineage: int
    sent: int
    subscriber: str


@dataclass(slots=True)
class _SharedFrame:
    """A frame for which some subscriptions are ``waiting``; ``subscribers`` have it."""

    data: Data
    size: int
    waiting: int
    subscribers: list[str] = field(default_factory=list)


class Window:
    """Keeps at most ``max_frames`` frames of ``max_bytes``, the newest; the host keeps them without their payload."""

    def __init__(self, max_bytes: int, max_frames: int) -> None:
        self._max_bytes, self._max_frames = max_bytes, max_frames
        self._places: dict[int, _Place] = {}
        self._kept: dict[tuple[int, int], _SharedFrame] = {}
        """Frames by lineage and number, the oldest first."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def open_subscription(self, subscription: int, lineage: int, sent: int, subscriber: str = "") -> None:
        """A subscription begins after frame ``sent``. Raises :class:`ProtocolError` ``unexpected`` if it is there already."""
        if subscription in self._places:
            raise ProtocolError("unexpected", f"subscription {subscription} was accepted twice")
        self._places[subscription] = _Place(lineage, sent, subscriber)
        for (of, number), kept in self._kept.items():
            kept.waiting += of == lineage and number > sent

    def close_subscription(self, subscription: int) -> None:
        """A subscription ends; ignore one that has not begun."""
        place = self._places.pop(subscription, None)
        if place is not None:
            for of, number in [key for key in self._kept if key[0] == place.lineage and key[1] > place.sent]:
                self._get(of, number)

    def find(self, subscription: int, number: int) -> Data | None:
        """Return the frame if it is kept for the subscription."""
        kept = self._find(subscription, number)
        return None if kept is None else kept.data

    def subscribers(self, subscription: int, number: int) -> tuple[str, ...]:
        """Return the subscribers that have the frame already, if it is kept for the subscription."""
        kept = self._find(subscription, number)
        return () if kept is None else tuple(kept.subscribers)

    def sent(self, subscription: int, data: Data, size: int) -> None:
        """A subscription gets its next frame, of weight ``size``. Raises :class:`ProtocolError` ``gap`` for another one."""
        place = self._places.get(subscription)
        if place is None or data.number != place.sent + 1:
            raise ProtocolError("gap", f"frame {data.number} came for subscription {subscription}")
        place.sent = data.number
        key = (place.lineage, data.number)
        if (kept := self._kept.get(key)) is None:
            waiting = sum(one.lineage == place.lineage and one.sent < data.number for one in self._places.values())
            if waiting:
                self._kept[key] = _SharedFrame(data, size, waiting, [place.subscriber])
                self.bytes += size
                self._evict()
        else:
            kept.subscribers.append(place.subscriber)
            self._get(*key)

    def _find(self, subscription: int, number: int) -> _SharedFrame | None:
        place = self._places.get(subscription)
        return None if place is None else self._kept.get((place.lineage, number))

    def _get(self, lineage: int, number: int) -> None:
        """One subscription less waits for the frame."""
        kept = self._kept[lineage, number]
        kept.waiting -= 1
        if not kept.waiting:
            self._forget((lineage, number))

    def _evict(self) -> None:
        while self.bytes > self._max_bytes or len(self._kept) > self._max_frames:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: tuple[int, int]) -> None:
        self.bytes -= self._kept.pop(key).size


Inner = Subscribe | Subscribed | Refused | Data | Repeated | Progress | Unsubscribe | Ended | Closed

MAX_OPEN = 256
"""Most subscriptions of one connection at a time (SPEC.md, section 6)."""
MAX_WAITING = 4
"""Most messages beside Data that wait for one subscription; each side sends one at a time, but for the last Progress."""


class SubscriptionChannel:
    """The messages of one subscription, as on a connection of its own.

    Messages that wait to be taken are bounded by the credit of the subscriber; one that breaks this bound fails alone.
    """

    def __init__(self, connection: SharedConnection, number: int) -> None:
        self.number = number
        self._connection = connection
        self._waiting: deque[Inner] = deque()
        self._news = Signal()
        self._end: Exception | None = None
        self._others = 0
        self._granted = self._initial = self._spent = 0
        self.answered = False
        """Whether the other side has sent anything."""

    async def receive(self) -> Frame:
        """Return the next message; after the last, raise the error that has ended the subscription or the connection."""
        while not self._waiting:
            if self._end is not None:
                raise _again(self._end)
            await self._news.wait()
        message = self._waiting.popleft()
        self._others -= not isinstance(message, Data)
        return message

    async def send(self, frame: Frame) -> None:
        if self._end is not None:
            raise _again(self._end)
        if isinstance(frame, Subscribe):
            self._granted = self._initial = frame.credit_bytes
        elif isinstance(frame, Progress):
            self._granted = self._initial + frame.credit_bytes
        await self._connection.write(self.number, frame)

    def close(self) -> None:
        self.end(ConnectionLostError("this node closed the subscription"))
        self._waiting.clear()
        self._connection.closed_here(self)

    # -- for the connection -------------------------------------------------------------------------------------------

    def put(self, message: Inner) -> None:
        """Add a message that has come. Raises :class:`ProtocolError` for more than the subscriber has allowed."""
        self.answered = True
        if isinstance(message, Data):
            self._spent += weight(message.payload)
            if self._spent > self._granted:
                raise ProtocolError("over-credit", f"frame {message.number} is over the credit")
        elif self._waiting and isinstance(message, Progress) and isinstance(self._waiting[-1], Progress):
            self._waiting[-1] = message  # It says all that the earlier one says.
            return
        elif self._others >= MAX_WAITING:
            raise ProtocolError("flood", f"more than {MAX_WAITING} messages wait for one subscription")
        else:
            self._others += 1
        self._waiting.append(message)
        self._news.notify()

    def end(self, error: Exception) -> None:
        """End the channel once all that has come is taken; the first error counts."""
        self._end = self._end or error
        self._news.notify()


class SharedConnection(ABC):
    """One end. ``channel`` is the connection itself, which queues a message whole before it waits."""

    def __init__(self, channel: FrameChannel, window: Window) -> None:
        self.channel, self.window = channel, window
        self.open: dict[int, SubscriptionChannel] = {}
        self._closing: list[int] = []
        self._due, self._turn = Signal(), asyncio.Lock()

    async def run(self) -> None:
        """Carry messages until the connection ends, then end all its subscriptions. Raises what has ended it."""
        error: Exception = ConnectionLostError("the shared connection is closed")
        try:
            await race(self._receive(), self._announce())
        except (ConnectionLostError, ProtocolError) as reason:
            error = reason
            raise
        finally:
            for one in list(self.open.values()):
                one.end(error)
            self.channel.close()

    async def write(self, number: int, frame: Frame) -> None:
        """Send a message of a subscription. The window and the connection take it in one step.

        Subscriptions take turns: otherwise the first one, which sends whole frames, would leave the others behind.
        """
        if not isinstance(frame, Inner):
            raise ValueError(f"{type(frame).__name__} is no message of a subscription")
        async with self._turn:
            await self.channel.send(Shared(subscription=number, message=self.translate(number, frame)))

    def closed_here(self, channel: SubscriptionChannel) -> None:
        """Tell the other side that this side has closed a subscription."""
        if self.open.get(channel.number) is channel:
            del self.open[channel.number]
            self._closing.append(channel.number)
            self._due.notify()

    @abstractmethod
    def translate(self, number: int, message: Inner) -> Inner:
        """Return the message to send, and note it in the window."""

    @abstractmethod
    def take_message(self, number: int, message: Inner) -> None:
        """Take a message that has come. Raises :class:`ProtocolError` if the connection must end."""

    def put(self, channel: SubscriptionChannel | None, message: Inner) -> None:
        """Pass a message on; a subscription that gets more than it may ends alone."""
        if channel is not None:
            try:
                channel.put(message)
            except ProtocolError as error:
                channel.end(error)

    async def _receive(self) -> None:
        while True:
            shared = await self.channel.receive()
            if not isinstance(shared, Shared):
                raise ProtocolError("unexpected", f"{type(shared).__name__} came on a shared connection")
            self.take_message(shared.subscription, shared.message)
            await asyncio.sleep(0)  # The subscription takes the message before the next one, however many have come.

    async def _announce(self) -> None:
        while True:
            while self._closing:
                await self.write(self._closing.pop(0), Closed())
            await self._due.wait()


def _again(error: Exception) -> Exception:
    """Return the error for one more subscription."""
    return ProtocolError(error.reason, error.message) if isinstance(error, ProtocolError) else ConnectionLostError(str(error))


WINDOW_FRAMES = 4096
"""Most frames of a window. Frames are small where there are so many of them within its bytes."""


class _Key(NamedTuple):
    address: Address
    expected: Expected
    stream: str


class SharedConnections:
    """Opens the channels of a node's links. Those to one stream of one host share a connection, if the host can do that.

    A link that is closed before it was answered may have met a dead connection: the next one opens another.
    """

    def __init__(self, peers: Peers, settings: StreamSettings) -> None:
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

    def take_message(self, number: int, message: Inner) -> None:
        if number not in self._live:
            raise ProtocolError("unexpected", f"{type(message).__name__} came for subscription {number}, which is closed")
        channel = self.open.get(number)
        if isinstance(message, Closed):
            self._live.pop(number)
            self.window.close_subscription(number)
            if channel is not None:
                channel.end(ConnectionLostError("the host closed the subscription"))
            return
        if isinstance(message, Subscribed):
            self.window.open_subscription(number, message.lineage, message.next - 1)
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
            self.window.open_subscription(number, message.lineage, message.next - 1, self._subscribers.get(number, ""))
        elif isinstance(message, Closed):
            self.window.close_subscription(number)
            self._subscribers.pop(number, None)
            self._sharers.pop(number, None)
        elif isinstance(message, Data):
            self._sharers[number] = self.window.subscribers(number, message.number)
            is_there = self.window.find(number, message.number) is not None
            self.window.sent(number, replace(message, payload=b""), weight(message.payload))
            return Repeated(number=message.number, epoch=message.epoch) if is_there else message
        return message

    def take_message(self, number: int, message: Inner) -> None:
        channel = self.open.get(number)
        if channel is not None and isinstance(message, Closed):
            channel.end(ConnectionLostError("the subscriber closed the subscription"))
        elif channel is not None:
            self.put(channel, message)
        elif number > self._newest:
            self._begin_subscription(number, message)

    async def _idle(self) -> None:
        """Return once the connection has been without subscriptions for a while."""
        newest = -1
        while self._tasks or self._newest != newest:
            newest = self._newest
            await self._clock.sleep(self._idle_s)

    def _begin_subscription(self, number: int, message: Inner) -> None:
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

"""One connection that carries several subscriptions, each over a channel of its own (SPEC.md, section 6)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque

from sbon_node.net.transport import ConnectionLostError
from sbon_node.streams.links.channel import FrameChannel, race
from sbon_node.streams.links.credit import weight
from sbon_node.streams.links.shared.window import Window
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import (
    Closed,
    Data,
    Ended,
    Frame,
    Progress,
    Refused,
    Repeated,
    Shared,
    Subscribe,
    Subscribed,
    Unsubscribe,
)

Inner = Subscribe | Subscribed | Refused | Data | Repeated | Progress | Unsubscribe | Ended | Closed

MAX_OPEN = 256
"""Most subscriptions of one connection at a time (SPEC.md, section 6)."""
MAX_WAITING = 4
"""Most messages beside Data that wait for one subscription; each side sends one at a time, but for the last Progress."""


class SubscriptionChannel:
    """The messages of one subscription, as on a connection of its own.

    Messages that wait to be taken are bounded by the credit that the subscriber has given. A subscription that breaks this bound
    fails alone.
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
    def take(self, number: int, message: Inner) -> None:
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
            self.take(shared.subscription, shared.message)
            await asyncio.sleep(0)  # The subscription takes the message before the next one, however many have come.

    async def _announce(self) -> None:
        while True:
            while self._closing:
                await self.write(self._closing.pop(0), Closed())
            await self._due.wait()


def _again(error: Exception) -> Exception:
    """Return the error for one more subscription."""
    return ProtocolError(error.reason, error.message) if isinstance(error, ProtocolError) else ConnectionLostError(str(error))

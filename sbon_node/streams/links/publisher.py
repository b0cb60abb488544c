"""The host's side of links: sends streams to subscribers (docs/design.md, section 8)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import NamedTuple

import structlog

from sbon_node.base.clock import Clock
from sbon_node.base.failpoints import Failpoints, unobserved
from sbon_node.model.frames import Frame
from sbon_node.net.transport import ConnectionLostError
from sbon_node.streams.links.channel import FrameChannel, race
from sbon_node.streams.links.credit import Credit, weight
from sbon_node.streams.links.shared import SharedServing, Sharers, alone
from sbon_node.streams.outbox.ledger import Reader
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.outbox.signals import Signal
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.bounded import MAX_EPOCH_LEAP
from sbon_protocol.api.query_ids import is_further_sink
from sbon_protocol.api.subscribers import component_of, is_follower
from sbon_protocol.base import Message
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.messages import Data, Ended, Hello, OpenShared, Progress, Refused, Subscribe, Subscribed, Unsubscribe

log = structlog.get_logger()


class ReaderChecks(NamedTuple):
    """Checks of the nodes that read. Both raise :class:`SbonError` for a node that may not.

    ``admit`` is asked for followers alone: a stream has few places for them, and they may hold up its other readers.
    ``check_host`` is asked for a reader that could end, or acknowledge for, another one: unless it reads as it did before, or is
    new to a stream that is in its first epoch, as the reader is.
    """

    admit: Callable[[str, Hello], Awaitable[None]]
    """Whether the node may follow an operator under the name of this subscriber."""
    check_host: Callable[[str, int, Hello], Awaitable[None]]
    """Whether the node hosts this operator or sink in this epoch."""


class _Process(NamedTuple):
    """A process that reads for an operator or sink."""

    node: str
    instance: str
    reader_epoch: int


@dataclass(slots=True, eq=False)
class _Serving:
    """One subscription being served on a channel; ``sharers`` had the last frame already, if it was not sent again."""

    number: int
    stream: str
    subscriber: str
    channel: FrameChannel
    sharers: Sharers
    answer: Subscribed
    credit: Credit
    sent: int
    changed: Signal = field(default_factory=Signal)
    ending: SbonError | None = None

    def end(self, error: SbonError) -> None:
        self.ending = self.ending or error
        self.changed.notify()


class Publisher:
    """Serves every subscription to the streams of one outbox."""

    def __init__(self, outbox: Outbox, clock: Clock, settings: StreamSettings, failpoint: Failpoints = unobserved) -> None:
        self._outbox, self._clock, self._settings, self._failpoint = outbox, clock, settings, failpoint
        self._serving: dict[tuple[str, str], _Serving] = {}
        self._admitted: dict[tuple[str, str], _Process] = {}
        """The reader of each subscription, as long as that lasts."""
        self._numbers = count(1)
        outbox.watch(self._gone)

    @property
    def connections(self) -> int:
        return len(self._serving)

    @property
    def outstanding_bytes(self) -> int:
        """Credit in use: bytes sent that subscribers still hold."""
        return sum(serving.credit.outstanding for serving in self._serving.values())

    def readers(self, stream: str) -> list[tuple[str, str]]:
        """Return the operators and sinks that read a stream, followers excepted, each with the node that it has last read at."""
        found = ((component_of(subscriber), process.node) for (of, subscriber), process in self._admitted.items() if of == stream)
        return sorted(set(found))

    def connection(self, stream: str, subscriber: str) -> int | None:
        """Return the number of the connection that serves a subscription; None if there is none. A new one has a new number."""
        serving = self._serving.get((stream, subscriber))
        return None if serving is None else serving.number

    async def serve(self, channel: FrameChannel, hello: Hello, checks: ReaderChecks) -> None:
        """Serve the subscription of one connection, or all of a shared one, until the connection ends, then close it.

        A new subscription of the same subscriber replaces the old one. Raises :class:`ProtocolError`, after closing, for a peer
        that breaks the protocol, and :class:`ConnectionLostError`.
        """
        try:
            async with self._clock.timeout(self._settings.handshake_s):
                first = await channel.receive()
            if isinstance(first, OpenShared):
                one = partial(self._serve_one, hello, checks)
                await SharedServing(channel, first, one, self._clock, self._settings.handshake_s).serve()
            else:
                await self._serve_one(hello, checks, channel, first, alone)
        except TimeoutError as error:
            log.debug("subscriber_lost", peer=hello.node, reason=str(error))
        finally:
            channel.close()

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _serve_one(
        self, hello: Hello, checks: ReaderChecks, channel: FrameChannel, first: Message, sharers: Sharers
    ) -> None:
        """Serve one subscription from its Subscribe, which has come ``first``, until it ends, then close its channel."""
        peer = hello.node
        serving: _Serving | None = None
        try:
            async with self._clock.timeout(self._settings.handshake_s):
                serving = await self._accept(channel, hello, checks, first, sharers)
            if serving is not None:
                await race(self._ended(serving), self._send(serving), self._receive(serving))
        except ProtocolError as error:
            log.info("subscriber_rejected", peer=peer, reason=str(error))
            raise
        except SbonError as error:
            await self._tell(channel, Ended(code=error.code, reason=error.message[:500]))
        except (ConnectionLostError, TimeoutError) as error:
            log.debug("subscriber_lost", peer=peer, reason=str(error))
        finally:
            if serving is not None and self._serving.get((serving.stream, serving.subscriber)) is serving:
                del self._serving[serving.stream, serving.subscriber]
                if is_follower(serving.subscriber):
                    self._outbox.unsubscribe(serving.stream, serving.subscriber)
            channel.close()

    async def _accept(
        self, channel: FrameChannel, hello: Hello, checks: ReaderChecks, message: Message, sharers: Sharers
    ) -> _Serving | None:
        if not isinstance(message, Subscribe):
            raise ProtocolError("unexpected", f"a stream's connection opened with {type(message).__name__}")
        stream, subscriber = message.stream, message.subscriber
        try:
            self._outbox.epoch(stream)  # A register is read for streams of this node alone.
            _check_leap(message.reader_epoch, self._outbox.reader_epoch(stream, subscriber), "of its own")
            await self._check_in_time(message, hello, checks)
            epoch = self._outbox.epoch(stream)
            _check_leap(message.epoch, epoch, "of the host")
            reader = Reader(message.lineage, message.acknowledged, message.reader_epoch)
            first = self._outbox.subscribe(stream, subscriber, message.next, message.epoch, reader)
        except SbonError as error:
            await self._tell(channel, Refused(code=error.code, reason=error.message[:500]))
            return None
        if not is_follower(subscriber):
            self._admitted[stream, subscriber] = _Process(hello.node, hello.instance, message.reader_epoch)
        lineage, reader_epoch = self._outbox.lineage(stream), self._outbox.reader_epoch(stream, subscriber)
        answer = Subscribed(epoch=epoch, next=first, lineage=lineage, reader_epoch=reader_epoch)
        credit = Credit(message.credit_bytes)
        serving = _Serving(next(self._numbers), stream, subscriber, channel, sharers, answer, credit, sent=first - 1)
        replaced = self._serving.get((stream, subscriber))
        self._serving[stream, subscriber] = serving
        if replaced is not None:
            replaced.end(SbonError("replaced", "the subscriber has connected anew"))
        return serving

    async def _check_in_time(self, message: Subscribe, hello: Hello, checks: ReaderChecks) -> None:
        """Check the reader or follower; raise ``no-majority`` before it stops waiting for an answer."""
        subscriber = message.subscriber
        try:
            async with self._clock.timeout(self._settings.handshake_s / 2):
                if is_follower(subscriber):
                    await checks.admit(subscriber, hello)
                else:
                    await self._check_reader(message, hello, checks)
        except TimeoutError as error:
            component = component_of(subscriber)
            reason = f"too few of the nodes that keep the register of {component} answer"
            raise SbonError("no-majority", reason, where=message.stream, hint="start them again") from error

    async def _check_reader(self, message: Subscribe, hello: Hello, checks: ReaderChecks) -> None:
        """Raise unless the reader was admitted before, or hosts its operator or sink by the register of that.

        What is stored of readers may be older than their present epoch: this node may be the successor of the stream's host, or
        have been restarted with a full disk. So the epoch that is stored does not vouch for the first reader that connects.
        """
        stream, subscriber, epoch = message.stream, message.subscriber, message.reader_epoch
        if self._admitted.get((stream, subscriber)) == _Process(hello.node, hello.instance, epoch):
            return
        is_first = epoch <= 1 and self._outbox.epoch(stream) <= 1 and self._outbox.reader_epoch(stream, subscriber) == 0
        if not is_first or is_further_sink(subscriber):  # One that was removed reads no more.
            await checks.check_host(component_of(subscriber), epoch, hello)

    def _gone(self, stream: str, subscriber: str, error: SbonError) -> None:
        self._admitted.pop((stream, subscriber), None)
        serving = self._serving.get((stream, subscriber))
        if serving is not None:
            serving.end(error)

    async def _tell(self, channel: FrameChannel, message: Ended | Refused) -> None:
        try:
            async with self._clock.timeout(self._settings.handshake_s):
                await channel.send(message)
        except (ConnectionLostError, TimeoutError) as error:
            log.debug("subscriber_lost", reason=str(error))

    async def _ended(self, serving: _Serving) -> None:
        while serving.ending is None:
            await serving.changed.wait()
        raise serving.ending

    async def _send(self, serving: _Serving) -> None:
        """Send frames until the connection is lost, then leave it to :meth:`_receive`: an Unsubscribe may have come before."""
        try:
            await self._send_all(serving)
        except ConnectionLostError as error:
            log.debug("subscriber_lost", reason=str(error))
            await asyncio.get_running_loop().create_future()

    async def _send_all(self, serving: _Serving) -> None:
        await serving.channel.send(serving.answer)
        while True:
            await self._outbox.wait_visible(serving.stream, serving.sent)
            for frame in self._outbox.read(serving.stream, serving.sent, self._settings.read_bytes):
                await self._send_frame(serving, frame)

    async def _send_frame(self, serving: _Serving, frame: Frame) -> None:
        size = weight(frame.payload)
        while not serving.credit.allows(size):
            await serving.changed.wait()
        serving.credit.spend(size)
        serving.sent = frame.number
        await serving.channel.send(
            Data(
                number=frame.number,
                epoch=self._outbox.epoch(serving.stream),
                rows=frame.rows,
                watermark_ms=frame.watermark_ms,
                ended=frame.ended,
                born_ms=frame.born_ms,
                payload=frame.payload,
            )
        )
        self._outbox.count_sent(serving.stream, serving.subscriber, frame, serving.sharers())
        self._failpoint("send")

    async def _receive(self, serving: _Serving) -> None:
        stream, subscriber = serving.stream, serving.subscriber
        while True:
            message = await serving.channel.receive()
            if serving.ending is not None:
                return
            if isinstance(message, Unsubscribe):
                self._outbox.unsubscribe(stream, subscriber)
                raise SbonError("unsubscribed", "the subscription is over", where=stream)
            if not isinstance(message, Progress):
                raise ProtocolError("unexpected", f"{type(message).__name__} came from a subscriber")
            known = self._outbox.epoch(stream)
            _check_leap(message.epoch, known, "of the host")
            if message.epoch > known:
                raise SbonError("fenced", f"the subscriber has seen epoch {message.epoch}", where=stream)
            if not message.acknowledged <= message.received <= serving.sent:
                reported = f"{message.acknowledged} and {message.received} are reported"
                raise ProtocolError("bad-number", f"{reported}, {serving.sent} is sent")
            self._outbox.check_reader(stream, subscriber, Reader(message.lineage, epoch=message.reader_epoch))
            self._outbox.received(stream, subscriber, message.received)
            self._outbox.acknowledge(stream, subscriber, message.acknowledged)
            serving.credit.returned(message.credit_bytes)
            serving.changed.notify()


def _check_leap(epoch: int, known: int, whose: str) -> None:
    """Reject an epoch too far above the known one."""
    if epoch > known + MAX_EPOCH_LEAP:
        raise ProtocolError("epoch-leap", f"a subscriber says epoch {epoch} {whose}, epoch {known} is known")

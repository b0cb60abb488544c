"""The subscriber's side of a link (docs/design.md, section 8).

A link stays connected to the host of its stream, takes frames in order into its inbox, and reports which frames it has received
and finished with. It recovers only by asking for frames from a number again. It drops duplicates. After a gap, a stale epoch or
any other breach it closes the connection and asks for the next frame again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Literal

import structlog

from sbon_node.base.backoff import Backoff
from sbon_node.base.clock import Clock
from sbon_node.base.failpoints import Failpoints, unobserved
from sbon_node.model.frames import Frame
from sbon_node.net.peers import ANYONE, Expected
from sbon_node.net.transport import Address, ConnectionLostError
from sbon_node.streams.links.channel import FrameChannel, StreamOpener, race
from sbon_node.streams.links.credit import weight
from sbon_node.streams.links.inbox import Inbox, Spill
from sbon_node.streams.outbox.signals import Signal
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.bounded import MAX_EPOCH_LEAP
from sbon_protocol.api.usage import LinkCount
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.messages import Data, Ended, Progress, Refused, Subscribe, Subscribed, Unsubscribe

log = structlog.get_logger()

Locate = Callable[[], Address]
"""Returns the address of the stream's host; raises :class:`SbonError` while it is unknown or away."""

Expect = Callable[[], Expected]
"""Returns the node that must answer at that address."""

OwnTime = Callable[[int], int]
"""Translates a wall-clock time of the stream's host to this node's; 0 where the host's clock is unknown."""

Search = Callable[[str], Awaitable[bool]]
"""Looks for the stream's present host after a failure with that code, "" for a lost connection; returns whether it is another."""

LinkState = Literal["connecting", "connected", "failed", "closed"]


def anyone() -> Expected:
    """Accept whichever node answers."""
    return ANYONE


SOURCE_LOST = "source-lost"
UNSUBSCRIBED = "unsubscribed"
LASTING = frozenset(
    {"quota", "not-retained", "stream-behind", "stream-dropped", "source-lost", "reader-fenced", "follower-behind"}
)
"""Refusals that a retry cannot cure; the link waits and retries after all others."""


class Link:
    """One subscription to ``stream`` under the name ``subscriber``.

    ``start_after`` is the last frame the subscriber has durably finished with: the link first asks for the frame after it; 0
    asks for the first frame, of a live source for the earliest retained one unless ``whole``. ``epoch`` is the greatest epoch of
    the stream's host it has seen. ``news`` is notified of every frame and of failure; links of one operator share one. ``expect``
    returns the node that must answer at the address; ``search`` looks for another host. ``own_time`` translates the frames'
    wall-clock times, and ``arrived`` is called with each new frame. ``spill`` stores frames that are held back.

    ``lineage`` identifies the stream that the subscriber has read; 0 accepts any and passes it to ``learn``, which stores it
    before the first frame is taken. ``reader_epoch`` is the subscriber's own epoch. The columns of the frames are given the names
    ``columns``, if there are any, in their order.
    """

    def __init__(
        self,
        stream: str,
        subscriber: str,
        *,
        locate: Locate,
        expect: Expect = anyone,
        search: Search | None = None,
        own_time: OwnTime = int,
        arrived: Callable[[Frame], None] | None = None,
        peers: StreamOpener,
        clock: Clock,
        settings: StreamSettings,
        rng: random.Random,
        start_after: int = 0,
        whole: bool = False,
        epoch: int = 0,
        lineage: int = 0,
        learn: Callable[[int], None] | None = None,
        reader_epoch: int = 0,
        failpoint: Failpoints = unobserved,
        news: Signal | None = None,
        spill: Spill | None = None,
        columns: tuple[str, ...] = (),
    ) -> None:
        self.stream, self.subscriber, self.epoch = stream, subscriber, epoch
        capacity_bytes = settings.inbox_credit_bytes
        self.inbox = Inbox(stream, capacity_bytes=capacity_bytes, released=start_after, news=news, spill=spill, columns=columns)
        self.state: LinkState = "connecting"
        self.reason, self.rejected = "", 0
        self._locate, self._peers, self._clock, self._settings = locate, peers, clock, settings
        self._rng, self._failpoint = rng, failpoint
        self._expect, self._search = expect, search
        self._own_time, self._arrived = own_time, arrived
        self.lineage, self._learn, self._reader_epoch = lineage, learn, reader_epoch
        self.failure: SbonError | None = None
        """The reason for which it has ended for good."""
        self._acknowledged, self._first = start_after, int(whole)
        self._pins: dict[str, None] = {}
        self._pinned: int | None = None
        self._successor: tuple[str, int] | None = None
        """The name and epoch under which the link goes on."""
        self._returned = 0
        self._due = Signal()
        self._channel: FrameChannel | None = None
        self._task: asyncio.Task[None] | None = None
        self._frames = self._rows = self._bytes = 0

    # -- for the subscriber -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect; call once, on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"link {self.stream} > {self.subscriber}")
        self._task.add_done_callback(lambda _: self.inbox.news.notify())

    def check(self) -> None:
        """Raise the error that ended the link, such as ``quota``, ``not-retained``, ``stream-behind``, ``stream-dropped``."""
        if self.failure is not None:
            raise self.failure
        if self.state == "closed":
            raise SbonError("link-closed", "the link was closed", where=self.stream)
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    async def wait(self, after: int) -> None:
        """Wait until a frame after number ``after`` has been received; raises as :meth:`check`."""
        while True:
            self.check()
            if self.inbox.received > after:
                return
            await self.inbox.news.wait()

    def acknowledge(self, number: int) -> None:
        """Release the memory of frames up to ``number``, which are durably processed, and tell the host."""
        if number <= self._acknowledged:
            return
        self._acknowledged = number
        self._returned += self.inbox.release(number)
        self._due.notify()

    def hold(self, holding: bool) -> None:
        """Set whether the next frame must wait for other inputs: it costs no credit then, where it can be spilled."""
        freed = self.inbox.hold(holding)
        if freed:
            self._returned += freed
            self._due.notify()

    def pin(self, pinned: bool, why: str) -> None:
        """Keep the host from deleting frames after those acknowledged so far, as long as it is ``pinned`` for any reason."""
        self._pins = {one: None for one in (*self._pins, *((why,) if pinned else ())) if pinned or one != why}
        self._pinned = (self._acknowledged if self._pinned is None else self._pinned) if self._pins else None
        self._due.notify()

    def continue_as(self, subscriber: str, reader_epoch: int) -> None:
        """Go on under another name with the frame after the last received, instead of this subscription."""
        self._successor = (subscriber, reader_epoch)
        self._due.notify()

    @property
    def counts(self) -> LinkCount:
        """Return the counts of received frames, duplicates included."""
        return LinkCount(
            frames=self._frames,
            rows=self._rows,
            bytes=self._bytes,
            received=self.inbox.received,
            acknowledged=self._acknowledged,
            failed=self.failure.code if self.failure else "",
        )

    async def close(self, *, unsubscribe: bool = False) -> None:
        """End the link; with ``unsubscribe``, tell a connected host that the subscriber needs nothing more."""
        if unsubscribe and self._channel is not None:
            try:
                async with self._clock.timeout(self._settings.handshake_s):
                    await self._channel.send(Unsubscribe())
            except (TimeoutError, ConnectionLostError) as error:
                log.info("unsubscribe_lost", stream=self.stream, subscriber=self.subscriber, reason=str(error))
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self.state = "closed"
        self.inbox.news.notify()
        if self.inbox.spill is not None:
            self.inbox.spill.clear()
        if task is not None and not task.cancelled():
            task.result()

    # -- the connection -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = Backoff(self._settings.reconnect_s, self._settings.reconnect_max_s, self._rng)
        while True:
            if self._successor is not None:  # Its host deletes the subscription of a follower that it has lost.
                (self.subscriber, self._reader_epoch), self._successor = self._successor, None
            try:
                await self._connect()
            except (ConnectionLostError, ProtocolError, TimeoutError, SbonError) as error:
                if isinstance(error, SbonError) and error.code == UNSUBSCRIBED and self._successor is not None:
                    continue
                if isinstance(error, SbonError) and error.code in LASTING and self._successor is None:
                    self._fail(error)
                    return
                if isinstance(error, ProtocolError):
                    self.rejected += 1
                if self.state == "connected":
                    backoff.reset()
                self._lost(error)
                code = error.code if isinstance(error, SbonError) else ""
                if self._search is not None and await self._search(code):
                    continue
            if await paused(self._clock, self._locate, backoff.next_s()):
                backoff.reset()  # Its host was lost, and another may have the stream at once; or it is back.

    def _fail(self, error: SbonError) -> None:
        self.failure = error
        self.state, self.reason = "failed", str(error)
        log.warning("link_failed", stream=self.stream, subscriber=self.subscriber, code=error.code, reason=error.message)

    def _lost(self, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        if self.state == "connected" or reason != self.reason:
            log.info("link_lost", stream=self.stream, subscriber=self.subscriber, reason=reason)
        self.state, self.reason = "connecting", reason

    async def _connect(self) -> None:
        address = self._locate()
        channel: FrameChannel | None = None
        try:
            async with self._clock.timeout(self._settings.handshake_s):
                # Set at once: a link that is closed before the answer may have subscribed already.
                channel = self._channel = await self._peers.open_stream(address, self._expect(), stream=self.stream)
                await self._subscribe(channel)
            self.state, self.reason = "connected", ""
            await race(self._receive(channel), self._report(channel), self._watch())
        finally:
            self._channel = None
            if channel is not None:
                channel.close()

    async def _watch(self) -> None:
        """Raise once membership misses the host: while that is paused, its connections stay open."""
        while True:
            await self._clock.sleep(self._settings.reconnect_max_s)
            self._locate()

    async def _subscribe(self, channel: FrameChannel) -> None:
        first, self._returned = self.inbox.received + 1 if self.inbox.received else self._first, 0
        await channel.send(
            Subscribe(
                stream=self.stream,
                subscriber=self.subscriber,
                next=first,
                epoch=self.epoch,
                credit_bytes=self.inbox.room_bytes,
                lineage=self.lineage,
                acknowledged=self._finished,
                reader_epoch=self._reader_epoch,
            )
        )
        answer = await channel.receive()
        if isinstance(answer, Refused):
            if answer.code == SOURCE_LOST:
                raise self._source_lost(answer.reason)
            raise SbonError(answer.code, answer.reason, where=self.stream)
        if not isinstance(answer, Subscribed):
            raise ProtocolError("unexpected", f"a subscription was answered by {type(answer).__name__}")
        self._identify(answer)
        self._see(answer.epoch)
        if first == 0:
            if answer.next < 1:
                raise ProtocolError("bad-number", "a stream's first frame is numbered 1")
            self.inbox.begin_at(answer.next)
        elif answer.next != first:
            raise ProtocolError("bad-number", f"frame {first} was asked for, {answer.next} is offered")

    def _identify(self, answer: Subscribed) -> None:
        """Check that the host serves the stream that was read so far, and no later epoch of this subscriber."""
        if answer.reader_epoch > self._reader_epoch:
            reason = f"epoch {self._reader_epoch} of this reader is over: it has connected in epoch {answer.reader_epoch}"
            raise SbonError("reader-fenced", reason, where=self.stream)
        if self.lineage and answer.lineage != self.lineage:
            raise self._source_lost("the stream has begun anew")
        if not self.lineage and answer.lineage:
            if self._learn is not None:
                self._learn(answer.lineage)
            self.lineage = answer.lineage

    def _source_lost(self, reason: str) -> SbonError:
        """Return the lasting error, with what is known of the loss."""
        read = f"{self.subscriber} has read the earlier one up to frame {self.inbox.received}"
        kept = f"{read}, and is done up to frame {self._acknowledged}; the later frames are lost"
        hint = "its node has lost its data, or the stream was declared anew: stop the query and submit it again"
        # A query that fails of it shows its users the text alone.
        return SbonError(SOURCE_LOST, f"{SOURCE_LOST}, {reason}; {kept}", where=self.stream, hint=hint)

    def _see(self, epoch: int) -> None:
        if epoch > self.epoch + MAX_EPOCH_LEAP:
            raise ProtocolError("epoch-leap", f"the host says epoch {epoch}, {self.epoch} is known")
        if epoch < self.epoch:
            raise SbonError("fenced", f"the host is in epoch {epoch}, epoch {self.epoch} has begun", where=self.stream)
        self.epoch = epoch

    async def _receive(self, channel: FrameChannel) -> None:
        while True:
            message = await channel.receive()
            if isinstance(message, Ended):
                raise SbonError(message.code, message.reason, where=self.stream)
            if not isinstance(message, Data):
                raise ProtocolError("unexpected", f"{type(message).__name__} came on a stream's connection")
            self._see(message.epoch)
            self._take_frame(message)

    def _take_frame(self, message: Data) -> None:
        size = weight(message.payload)
        self._frames += 1
        self._rows += message.rows
        self._bytes += len(message.payload)
        if message.number <= self.inbox.received:
            self._returned += size
        elif message.number != self.inbox.received + 1:
            raise ProtocolError("gap", f"frame {message.number} came, {self.inbox.received + 1} is next")
        elif size > self.inbox.room_bytes:
            raise ProtocolError("over-credit", f"frame {message.number} is over the credit")
        else:
            frame = Frame(
                stream=self.stream,
                number=message.number,
                payload=message.payload,
                rows=message.rows,
                watermark_ms=message.watermark_ms,
                ended=message.ended,
                born_ms=self._own_time(message.born_ms),
            )
            self._returned += self.inbox.add(frame)
            if self._arrived is not None:
                self._arrived(frame)
        self._failpoint("receive")
        self._due.notify()

    async def _report(self, channel: FrameChannel) -> None:
        """Report progress to the host whenever it has changed; later changes go with the next report."""
        reported = (0, 0, 0)
        while self._successor is None:
            position = (self.inbox.received, self._finished, self._returned)
            if position == reported:
                await self._due.wait()
                continue
            received, acknowledged, returned = position
            await channel.send(
                Progress(
                    received=received,
                    acknowledged=acknowledged,
                    credit_bytes=returned,
                    epoch=self.epoch,
                    lineage=self.lineage,
                    reader_epoch=self._reader_epoch,
                )
            )
            if acknowledged > reported[1]:
                self._failpoint("acknowledge")
            reported = position
        await channel.send(Unsubscribe())
        await asyncio.get_running_loop().create_future()  # until the host has answered

    @property
    def _finished(self) -> int:
        """The last frame that the host may know to be acknowledged."""
        finished = self._acknowledged if self._pinned is None else self._pinned
        return min(finished, self.inbox.received)


# -- Pauses between a link's attempts to reach the host of its stream -------------------------------------------------

GLANCE_S = 0.1
"""Seconds between two looks, which send nothing, at where the host is."""


async def paused(clock: Clock, locate: Callable[[], Address], seconds: float) -> bool:
    """Wait so long; return True as soon as membership says something else of the host than before: it is lost, or back."""
    before, until = _whereabouts(locate), clock.now() + seconds
    while (left := until - clock.now()) > 0:
        await clock.sleep(min(left, GLANCE_S))
        if _whereabouts(locate) != before:
            return True
    return False


def _whereabouts(locate: Callable[[], Address]) -> Address | str:
    try:
        return locate()
    except SbonError as error:
        return str(error)

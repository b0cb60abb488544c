"""The outbox: this node's produced frames until subscribers acknowledge them (docs/design.md, section 8).

Rules that hold whenever a process dies:

- the frames of batch b of a stream are stored in one transaction, keyed by (stream, b);
- a re-run of b is dropped where b is visible and replaces it where not, so that a number once seen never changes its frame;
- nothing is seen before it is published, and a source's frames are stored together with its position;
- frames go when every subscriber has acknowledged them, and not before; of a source they stay for later subscribers, as long as
  there is room.

Calls are synchronous and belong to one event loop; waits are for conditions, never by polling.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import structlog

from sbon_node.base.clock import Clock
from sbon_node.base.failpoints import Failpoints, unobserved
from sbon_node.model.frames import Frame, FrameDraft, InputOffset
from sbon_node.streams.outbox import statements
from sbon_node.streams.outbox.copies import BackupStreams, Handover, SourceStreams
from sbon_node.streams.outbox.ledger import ANY_READER, NO_BATCH, Kind, Reader, Stream, Tail, batch_output, grown, named
from sbon_node.streams.outbox.retention import FurtherReaders, OnGone, Retention
from sbon_node.streams.outbox.signals import Signal
from sbon_node.streams.outbox.store import PAGE_BYTES, FrameStore, check_sizes
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.usage import LinkCount, OutboxBytes, OutboxCount, StreamCount
from sbon_protocol.errors import BrokenInvariantError, SbonError

log = structlog.get_logger()

Written = Literal["written", "replaced", "dropped"]

MOVED = "moved"
"""Code of the end of subscriptions to a stream that goes on at another node."""


class Outbox:
    """All streams produced on this node, in one database file; ``rng`` draws their lineages.

    Any call may raise :class:`SbonError` ``disk-full`` (nothing is changed, and the call may be repeated later), ``disk-error``
    or ``outbox-corrupt``; any call with a stream's name may raise ``stream-unknown``.
    """

    def __init__(
        self, path: Path, settings: StreamSettings, failpoint: Failpoints = unobserved, rng: random.Random | None = None
    ) -> None:
        self._settings, self._failpoint = settings, failpoint
        max_bytes, rng = settings.outbox_max_bytes, rng or random.SystemRandom()
        self._store = FrameStore(path, fsync=settings.fsync, max_bytes=max_bytes, rng=rng)
        self._streams = statements.load(self._store)
        self._retention = Retention(self._store, settings, failpoint)
        self._shrinking = Shrinking(self._store)
        self.handover = Handover(self._store, self._streams)
        self.backups = BackupStreams(self._store, self._streams, self.handover)
        self.sources = SourceStreams(self._store, self._streams, self.handover)
        self.further = FurtherReaders(self._store, self._streams, self._retention)
        self.changed = Signal()
        """Notified when frames or acknowledgements are stored: :meth:`shrink` may have work then."""
        self._shown, self._sent = [0, 0, 0], [0, 0, 0]
        """Frames, rows and bytes of payload since the process started."""

    def close(self) -> None:
        """Store the progress that is only in memory, and close the file."""
        try:
            for stream in self._streams.values():
                self._retention.save(stream)
        finally:
            self._store.close()

    # -- streams ------------------------------------------------------------------------------------------------------

    def open_stream(self, stream: str, kind: Kind, *, finite: bool = False, epoch: int = 1) -> None:
        """Create the stream, or reopen it as it was left. Raises ``fenced`` for an epoch below the stored one."""
        known = self._streams.get(stream)
        if known is None:
            self._streams[stream] = statements.create(self._store, stream, kind, finite, epoch, self._store.new_lineage())
            return
        if (known.kind, known.finite) != (kind, finite):
            message = "the stream is there already, and of another kind"
            raise SbonError("stream-exists", message, where=stream, hint="drop it first")
        if epoch < known.epoch:
            raise SbonError("fenced", f"epoch {epoch} is over: the stream is in epoch {known.epoch}", where=stream)
        if epoch > known.epoch:
            statements.set_epoch(self._store, known, epoch)

    def drop_stream(self, stream: str, *, moved: bool = False) -> None:
        """Delete the stream with all its frames and subscriptions; ignore an unknown one. ``moved``: it goes on elsewhere."""
        known = self._streams.get(stream)
        if known is None:
            return
        statements.delete(self._store, known)
        del self._streams[stream]
        known.dropped, known.moved = True, moved
        self.changed.notify()
        known.news.notify()
        known.room.notify()
        for subscriber in known.subscriptions:
            self._retention.on_gone(stream, subscriber, _gone(known))

    def streams(self) -> list[str]:
        return sorted(self._streams)

    def epoch(self, stream: str) -> int:
        return self._named(stream).epoch

    def lineage(self, stream: str) -> int:
        """Return the stream's random identity, above 0: a stream that begins anew under the same name has another."""
        return self._named(stream).lineage

    # -- output of an operator ----------------------------------------------------------------------------------------

    def write_batch(self, stream: str, batch: int, offsets: tuple[InputOffset, ...], drafts: Sequence[FrameDraft]) -> Written:
        """Store the output of ``batch``, invisible until :meth:`publish`.

        Only the last frame carries the batch's watermark and end; earlier ones repeat the previous ones. A watermark never goes
        back: a lower one is replaced by the last. Frames without news are left out. Raises ``frame-too-large``.
        """
        known = self._operator(stream)
        if not drafts:
            raise BrokenInvariantError(f"batch {batch} of {stream} has no frame: it hands over one, if need be without rows")
        check_sizes(drafts, stream)
        if batch <= known.visible.batch:
            if batch == known.visible.batch and offsets != known.visible.offsets:
                raise BrokenInvariantError(f"visible batch {batch} of {stream} was run again over other input")
            return "dropped"
        earlier = [tail for tail in known.pending if tail.batch < batch]
        replaces = len(earlier) < len(known.pending)
        before = earlier[-1] if earlier else known.visible
        frames, tail = batch_output(stream, drafts, before, batch, offsets)

        def store() -> None:
            with self._store.transaction() as connection:
                if replaces:
                    statements.delete_pending(connection, known, batch, after=before.last)
                statements.insert_frames(connection, known, frames, before.upto)
                statements.insert_pending(connection, known, tail)

        self._with_room(store)
        known.pending = [*earlier, tail]
        self._failpoint("outbox-write")
        return "replaced" if replaces else "written"

    def publish(self, stream: str, batch: int) -> tuple[InputOffset, ...]:
        """Make everything up to ``batch`` visible; return the input offsets of the newest visible batch.

        A batch that is visible already is ignored. The engine's commit of a batch that was never written is a broken invariant.
        """
        known = self._operator(stream)
        if batch > known.newest.batch:
            raise BrokenInvariantError(f"batch {batch} of {stream} was committed and never written")
        if batch > known.visible.batch:
            tail = next(tail for tail in known.pending if tail.batch == batch)
            with self._store.transaction() as connection:
                statements.update_tail(connection, known, tail)
                statements.forget_pending(connection, known, upto=batch)
            self._show(known, tail)
            self._retention.grew(known)
        return known.visible.offsets

    def newest(self, stream: str) -> int:
        """Return the newest batch written, visible or not; -1 before the first."""
        return self._named(stream).newest.batch

    def visible_batch(self, stream: str) -> int:
        """Return the newest visible batch; -1 before the first."""
        return self._named(stream).visible.batch

    def has_batch(self, stream: str, batch: int) -> bool:
        """Return whether the output of ``batch`` is, or was, stored; the repair of a checkpoint asks for its newest commit."""
        return NO_BATCH < batch <= self._named(stream).newest.batch

    def batch_offsets(self, stream: str, batch: int) -> tuple[InputOffset, ...]:
        """Return the input offsets of a batch: the newest visible batch or a later one."""
        known = self._named(stream)
        for tail in (known.visible, *known.pending):
            if tail.batch == batch:
                return tail.offsets
        raise SbonError("batch-unknown", f"nothing is kept of batch {batch}", where=stream)

    # -- writes of a source -----------------------------------------------------------------------------------------

    def write_source(self, stream: str, drafts: Sequence[FrameDraft], position: bytes) -> None:
        """Store frames, visible at once, and the connector's position in one transaction.

        Without frames only the position moves. Each draft carries its own watermark. Raises ``frame-too-large``.
        """
        known = self._named(stream)
        if known.kind != "source":
            raise BrokenInvariantError(f"{stream} is an operator's: its frames belong to batches")
        frames, tail = grown(known, drafts)

        def store() -> None:
            if frames:
                self._store.check_room_of_sources()
            with self._store.transaction() as connection:
                statements.insert_frames(connection, known, frames, known.visible.upto)
                statements.update_tail(connection, known, tail, position)

        self._with_room(store)
        known.position = position
        known.newest_born_ms = max([known.newest_born_ms, *(frame.born_ms for frame in frames)])
        if frames:
            self._failpoint("outbox-write")
        self._failpoint("position-write")
        if frames:
            self._show(known, tail)
            self._retention.grew(known)

    def position(self, stream: str) -> bytes | None:
        """Return the position of a source's connector, as stored; ``None`` before its first write."""
        return self._named(stream).position

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, stream: str, after: int, max_bytes: int) -> list[Frame]:
        """Return visible frames after number ``after``: at most ``max_bytes`` of them, but at least one if there is one.

        Raises ``not-retained`` if the next one has been deleted.
        """
        known = self._named(stream)
        if after < known.trimmed:
            raise SbonError("not-retained", f"frames up to {known.trimmed} are gone, {after + 1} was asked for", where=stream)
        return statements.read(self._store, known, after, max_bytes)

    def earliest(self, stream: str) -> int:
        """Return the number of the first retained frame, or of the next frame if none is retained."""
        return self._named(stream).trimmed + 1

    def latest(self, stream: str) -> int:
        """Return the number of the newest visible frame; 0 before the first."""
        return self._named(stream).visible.last

    def watermark_ms(self, stream: str) -> int:
        return self._named(stream).visible.watermark_ms

    def ended(self, stream: str) -> bool:
        """Return whether the newest visible frame says that no row will follow."""
        return self._named(stream).visible.ended

    async def wait_visible(self, stream: str, after: int) -> None:
        """Wait until a frame after number ``after`` is visible; raises ``stream-dropped`` when the stream is."""
        known = self._named(stream)
        await _until(lambda: known.visible.last > after, known.news, known)

    def pressure(self, stream: str) -> bool:
        """Return whether the producer must pause: more bytes wait to be received than ``outbox_quota_bytes``."""
        return self._named(stream).unreceived() > self._settings.outbox_quota_bytes

    async def wait_room(self, stream: str) -> None:
        """Wait until there is no pressure; raises ``stream-dropped`` when the stream is."""
        known = self._named(stream)
        await _until(lambda: known.unreceived() <= self._settings.outbox_quota_bytes, known.room, known)

    async def wait_subscribed(self, stream: str) -> None:
        """Wait until the stream has, or had before a restart, a subscription; raises ``stream-dropped`` when it is dropped."""
        known = self._named(stream)
        await _until(lambda: bool(known.subscriptions), known.room, known)

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def subscribe(self, stream: str, subscriber: str, next_number: int, epoch: int = 0, reader: Reader = ANY_READER) -> int:
        """Register the subscriber, or resume its subscription, and return the number of its first frame.

        ``next_number`` 0 asks for the earliest frame: the first retained of a live source, frame 1 of any other stream. Raises
        ``stream-unknown``, ``source-lost`` (it has read a stream of another lineage), ``fenced`` (it has seen a greater epoch
        than ours), ``reader-fenced`` (a later epoch of the subscriber has connected), ``not-retained``, ``stream-behind`` (it
        has seen frames we have not), ``quota`` (it failed before), ``too-many-subscribers``.
        """
        return self._retention.subscribe(self._named(stream), subscriber, next_number, epoch, reader)

    def check_reader(self, stream: str, subscriber: str, reader: Reader) -> None:
        """Raise ``source-lost`` or ``reader-fenced`` as :meth:`subscribe` does."""
        known = self._named(stream)
        self._retention.check_reader(known, known.subscriptions.get(subscriber), reader)

    def fence(self, stream: str, subscriber: str, reader_epoch: int) -> tuple[int, bool]:
        """End readers below ``reader_epoch``; return the last acknowledged frame, and whether the stream ends with it.

        A subscriber that has never connected begins at the first frame. Raises ``reader-fenced``, and ``not-retained`` or
        ``too-many-subscribers`` for such a one.
        """
        return self._retention.fence(self._named(stream), subscriber, reader_epoch)

    def reader_epoch(self, stream: str, subscriber: str) -> int:
        """Return the greatest epoch in which the subscriber has connected; 0 for an unknown one."""
        known = self._named(stream).subscriptions.get(subscriber)
        return known.reader_epoch if known is not None else 0

    def unsubscribe(self, stream: str, subscriber: str) -> None:
        """Delete the subscription, failed or not: the subscriber needs nothing more. Ignore an unknown one."""
        known = self._streams.get(stream)
        if known is not None:
            self._retention.unsubscribe(known, subscriber)
            self.changed.notify()

    def received(self, stream: str, subscriber: str, number: int) -> None:
        """Note that the subscriber's process holds everything up to ``number``."""
        self._retention.received(self._named(stream), subscriber, number)

    def acknowledge(self, stream: str, subscriber: str, number: int) -> None:
        """Note that the subscriber will never ask for frames up to ``number`` again.

        Trims the frames that all subscribers have acknowledged; on a full disk it does so later.
        """
        self._retention.acknowledge(self._named(stream), subscriber, number)
        self.changed.notify()

    def watch(self, on_gone: OnGone) -> None:
        """Call ``on_gone`` for every subscription that ends on this side: ``quota``, ``unsubscribed``, ``stream-dropped``."""
        self._retention.on_gone = on_gone

    def count_sent(self, stream: str, subscriber: str, frame: Frame, sharers: Sequence[str] = ()) -> None:
        """Count a frame sent to the subscriber, for network usage; its payload was sent before if there are ``sharers``."""
        self._retention.count_sent(self._named(stream), subscriber, frame, sharers)
        size = 0 if sharers else len(frame.payload)
        self._sent = [self._sent[0] + 1, self._sent[1] + frame.rows, self._sent[2] + size]

    def counts(self) -> OutboxCount:
        """Return the counts of all streams together."""
        streams = list(self._streams.values())
        unreceived = [stream.unreceived() for stream in streams]
        subscriptions = [subscription for stream in streams for subscription in stream.subscriptions.values()]
        return OutboxCount(
            **dict(zip(("shown_frames", "shown_rows", "shown_bytes"), self._shown, strict=True)),
            **dict(zip(("sent_frames", "sent_rows", "sent_bytes"), self._sent, strict=True)),
            sources=sum(stream.kind == "source" for stream in streams),
            operators=sum(stream.kind == "operator" for stream in streams),
            paused=sum(waiting > self._settings.outbox_quota_bytes for waiting in unreceived),
            unreceived_bytes=sum(unreceived),
            subscriptions=len(subscriptions),
            failed_subscriptions=sum(bool(subscription.failed) for subscription in subscriptions),
        )

    def stored(self) -> OutboxBytes:
        """Return what fills the file: the stored frames of each stream, visible or not, and free pages."""
        stored = {name: stream.newest.upto - stream.trimmed_upto for name, stream in self._streams.items()}
        return OutboxBytes(streams=stored, free_bytes=self._store.free_bytes())

    def shrink(self) -> float | None:
        """Return some unused disk to the file system; return the seconds until the next call, None until ``changed`` notifies."""
        return self._shrinking.step()

    def link_counts(self, stream: str) -> StreamCount:
        """Return the traffic of the stream and of each of its subscriptions, resent frames included."""
        known = self._named(stream)
        links = {
            name: LinkCount(
                frames=subscription.frames,
                rows=subscription.rows,
                bytes=subscription.bytes,
                saved_bytes=subscription.saved,
                received=subscription.received,
                acknowledged=subscription.acknowledged,
                failed=subscription.failed,
                dropped=subscription.dropped,
                frames_behind=0 if subscription.failed else max(0, known.visible.last - subscription.acknowledged),
                bytes_behind=0 if subscription.failed else max(0, known.visible.upto - subscription.acknowledged_upto),
            )
            for name, subscription in sorted(known.subscriptions.items())
        }
        tail = known.visible
        return StreamCount(frames=tail.frames, rows=tail.rows, bytes=tail.bytes, dropped=known.dropped_rows, links=links)

    def oldest_waiting_ms(self) -> dict[str, int]:
        """Return by subscriber when the oldest of its waiting rows entered the overlay, by this node's clock."""
        oldest: dict[str, int] = {}
        for stream in self._streams.values():
            for one in stream.active():
                if one.acknowledged < stream.visible.last:
                    born_ms = statements.born_after_ms(self._store, stream, one.acknowledged)
                    if born_ms is not None:
                        oldest[one.subscriber] = min(born_ms, oldest.get(one.subscriber, born_ms))
        return oldest

    # -- inside -------------------------------------------------------------------------------------------------------

    def _with_room(self, store: Callable[[], None]) -> None:
        """Store, and where the disk is full, again after each deletion of frames that nobody needs now."""
        while True:
            try:
                return store()
            except SbonError as error:
                if error.code != "disk-full" or not self._retention.make_room(self._streams.values()):
                    raise

    def _named(self, stream: str) -> Stream:
        return named(self._streams, stream)

    def _operator(self, stream: str) -> Stream:
        known = self._named(stream)
        if known.kind != "operator":
            raise BrokenInvariantError(f"{stream} is a source's: it has no batches")
        return known

    def _show(self, known: Stream, tail: Tail) -> None:
        known.pending = [later for later in known.pending if later.batch > tail.batch]
        before, known.visible = known.visible, tail
        news = (tail.frames - before.frames, tail.rows - before.rows, tail.bytes - before.bytes)
        self._shown = [total + new for total, new in zip(self._shown, news, strict=True)]
        self._failpoint("publish")
        known.news.notify()
        self.changed.notify()


async def _until(condition: Callable[[], bool], signal: Signal, stream: Stream) -> None:
    while not condition() and not stream.dropped:
        await signal.wait()
    if stream.dropped:
        raise _gone(stream)


def _gone(stream: Stream) -> SbonError:
    if stream.moved:
        return SbonError(MOVED, "another node hosts the stream", where=stream.name)
    return SbonError("stream-dropped", "the stream was dropped", where=stream.name)


# -- Returns the outbox's free pages and its journal to the file system once nothing has reused them for some seconds --

# A stream that flows reuses the pages of its deleted frames, and pays nothing here.

LOOK_S = 1.0
"""Interval of the looks at the file after a change, in seconds."""
LOOKS = 5
"""Looks at which pages must have been free to be returned."""
STEP_PAGES = 128
STEP_S = 0.05
"""Pages returned at once, and seconds between two steps: at most 20 MB a second, while other work goes on."""
KEPT_BYTES = 2 * 1024 * 1024
"""Free bytes that stay in the file."""


class Shrinking:
    """Shrinks one outbox's file in steps, at the times that :meth:`step` returns."""

    def __init__(self, store: FrameStore) -> None:
        self._store = store
        self._free: deque[int] = deque(maxlen=LOOKS)
        """Free bytes at the last looks."""
        self._changes = -1
        self._quiet = 0

    def step(self) -> float | None:
        """Return the seconds until the next step; None if there is nothing to do before the next change.

        Raises :class:`SbonError` ``disk-error`` or ``outbox-corrupt``.
        """
        free, changes = self._store.free_bytes(), self._store.changes()
        self._quiet = self._quiet + 1 if changes == self._changes else 0
        self._changes = changes
        if self._spare(free) > 0:
            return self._shrink(free)
        self._free.append(free)
        if self._quiet < LOOKS or self._spare(free) > 0:
            return LOOK_S
        self._store.empty_journal()
        self._free.clear()
        return None

    def _spare(self, free: int) -> int:
        """Return the bytes that may go: free now, and at all of the last looks."""
        return min(free, *self._free) - KEPT_BYTES if len(self._free) == LOOKS else 0

    def _shrink(self, free: int) -> float | None:
        try:
            self._store.shrink(min(STEP_PAGES, -(-self._spare(free) // PAGE_BYTES)))
        except SbonError as error:
            if error.code != "disk-full":
                raise
            return LOOK_S  # Moving pages needs a little space itself.
        returned = free - self._store.free_bytes()
        if returned <= 0:  # An outbox of an earlier version cannot shrink.
            self._free.clear()
            return None
        self._free = deque((before - returned for before in self._free), LOOKS)
        return STEP_S


async def return_disk(outbox: Outbox, clock: Clock) -> None:
    """Shrink the outbox after changes, in small steps, without end."""
    while True:
        try:
            while (pause_s := outbox.shrink()) is not None:
                await clock.sleep(pause_s)
        except SbonError as error:
            log.warning("outbox-not-shrunk", reason=str(error))
        await outbox.changed.wait()

"""Subscriptions of a stream, their progress, and the frames that may be deleted (docs/design.md, section 8)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import structlog

from sbon_node.base.failpoints import Failpoints
from sbon_node.model.frames import Frame
from sbon_node.streams.outbox import statements
from sbon_node.streams.outbox.ledger import Reader, Stream, Subscription, named, saved_bytes
from sbon_node.streams.outbox.store import FrameStore
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.query_ids import is_further_sink
from sbon_protocol.api.subscribers import is_follower
from sbon_protocol.errors import BrokenInvariantError, SbonError

log = structlog.get_logger()

OnGone = Callable[[str, str, SbonError], None]
"""Called with the stream, the subscriber and the reason for which the subscription has ended."""


AGAIN = "attach the source again, and raise streams.outbox_max_bytes or free space where it lives"


def _nobody(stream: str, subscriber: str, error: SbonError) -> None:
    """Ignore the end of a subscription: no publisher listens yet."""


def _overdrawn(stream: Stream, subscription: Subscription) -> SbonError:
    reason = f"{subscription.subscriber} fell behind its retained frames, and {subscription.dropped:,} rows were dropped"
    hint = "raise streams.subscription_quota_bytes where the source lives"
    if is_further_sink(subscription.subscriber):
        hint = "raise streams.sink_quota_bytes where the operator runs"
    elif stream.kind == "operator":
        hint = "submit the query without reuse (--no-reuse, reuse=never), or raise streams.subscription_quota_bytes"
        hint += " where the shared operator runs"
    return SbonError(subscription.failed, reason, where=stream.name, hint=hint)


def _behind(stream: Stream, follower: Subscription) -> SbonError:
    reason = f"{follower.subscriber}, or the operator that it follows, fell too far behind"
    hint = "raise streams.follower_quota_bytes where the source lives"
    return SbonError("follower-behind", reason, where=stream.name, hint=hint)


class Retention:
    """Subscriptions and trimming over the streams of one outbox."""

    def __init__(self, store: FrameStore, settings: StreamSettings, failpoint: Failpoints) -> None:
        self._store, self._settings, self._failpoint = store, settings, failpoint
        self.on_gone: OnGone = _nobody
        self._shortened: set[str] = set()

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def subscribe(self, stream: Stream, subscriber: str, next_number: int, epoch: int, reader: Reader) -> int:
        """See :meth:`sbon_node.streams.outbox.outbox.Outbox.subscribe`."""
        known = stream.subscriptions.get(subscriber)
        self.check_reader(stream, known, reader)
        if epoch > stream.epoch:
            raise SbonError("fenced", f"epoch {stream.epoch} is over: the subscriber has seen {epoch}", where=stream.name)
        if known is not None and known.failed:
            raise _overdrawn(stream, known)
        if known is None:
            self._check_room(stream)
        if known is None and is_follower(subscriber) and len(stream.followers()) >= self._settings.max_followers:
            reason, hint = f"{len(stream.followers())} followers subscribe already", "raise streams.max_followers"
            raise SbonError("too-many-subscribers", reason, where=stream.name, hint=hint)
        first = self._first(stream, next_number)
        upto = statements.weighed_upto(self._store, stream, first - 1)
        if known is None:
            known = self._add(stream, self._new_subscription(stream, subscriber, first, next_number, reader))
        elif reader.epoch is not None and reader.epoch > known.reader_epoch:
            known.reader_epoch, stream.unsaved = reader.epoch, True
            # A full disk must not refuse the reader whose acknowledgements free it: the epoch is stored with these then.
            self._settle(stream, stream.trimmed)
        self._end_followers(stream, known)
        self._count_read(stream, known, first - 1)
        known.received, known.received_upto = first - 1, upto
        stream.room.notify()
        return first

    def _check_room(self, stream: Stream) -> None:
        if len(stream.subscriptions) >= self._settings.max_subscribers:
            raise SbonError("too-many-subscribers", f"{len(stream.subscriptions)} subscribe already", where=stream.name)

    def _add(self, stream: Stream, subscription: Subscription) -> Subscription:
        with self._store.transaction() as connection:
            statements.save_subscription(connection, stream, subscription)
        stream.subscriptions[subscription.subscriber] = subscription
        return subscription

    def replace(self, stream: Stream, subscription: Subscription) -> None:
        """Store a subscription in place of an earlier one of that name, whose reader is ended."""
        before = stream.subscriptions.get(subscription.subscriber)
        if before is None:
            self._check_room(stream)
        self._add(stream, subscription)
        if before is not None:
            self._end_reader(stream, subscription)

    def _end_reader(self, stream: Stream, successor: Subscription) -> None:
        reason = f"epoch {successor.reader_epoch} of this reader has begun"
        self.on_gone(stream.name, successor.subscriber, SbonError("reader-fenced", reason, where=stream.name))

    def _end_followers(self, stream: Stream, reader: Subscription) -> None:
        """Delete the subscriptions of followers of earlier epochs: their attempts are over, whether committed or not."""
        for one in stream.followers(reader.subscriber):
            if one.reader_epoch < reader.reader_epoch:
                self.unsubscribe(stream, one.subscriber)

    def _new_subscription(self, stream: Stream, subscriber: str, first: int, next_number: int, reader: Reader) -> Subscription:
        """Return a subscription that keeps all frames after those the reader has durably finished with, as far as they exist.

        A reader that comes back has frames in memory that it may ask for again after a restart.
        """
        acknowledged = first - 1
        if next_number and reader.acknowledged is not None:
            acknowledged = min(acknowledged, max(reader.acknowledged, stream.trimmed))
        upto = statements.weighed_upto(self._store, stream, acknowledged)
        counted = stream.trimmed if reader.lineage else first - 1  # It has read what is retained, if not here.
        return Subscription(subscriber, acknowledged, upto, acknowledged, upto, counted=counted, reader_epoch=reader.epoch or 0)

    def _count_read(self, stream: Stream, known: Subscription, upto: int) -> None:
        """Count the rows of frames up to number ``upto`` that a reader has from an earlier host of the stream."""
        if known.counted is not None and known.counted < upto:
            known.rows += statements.rows_after(self._store, stream, known.counted)
            known.rows -= statements.rows_after(self._store, stream, upto)
            stream.unsaved = True
        known.counted = max(known.counted or 0, upto)

    def check_reader(self, stream: Stream, known: Subscription | None, reader: Reader) -> None:
        """See :meth:`sbon_node.streams.outbox.outbox.Outbox.check_reader`."""
        if reader.lineage and reader.lineage != stream.lineage:
            kept = f"and now has frames {stream.trimmed + 1} to {stream.visible.last}"
            raise SbonError("source-lost", f"the stream has begun anew, {kept}", where=stream.name)
        if known is not None and reader.epoch is not None and reader.epoch < known.reader_epoch:
            reason = f"epoch {reader.epoch} of the reader is over: it has connected in epoch {known.reader_epoch}"
            raise SbonError("reader-fenced", reason, where=stream.name)

    def fence(self, stream: Stream, subscriber: str, reader_epoch: int) -> tuple[int, bool]:
        """See :meth:`sbon_node.streams.outbox.outbox.Outbox.fence`."""
        known = stream.subscriptions.get(subscriber)
        self.check_reader(stream, known, Reader(epoch=reader_epoch))
        if known is None:  # Its earlier readers may have yet to connect: they are refused then.
            self._check_room(stream)
            first = self._first(stream, 0)
            known = self._add(stream, self._new_subscription(stream, subscriber, first, 0, Reader(epoch=reader_epoch)))
        if reader_epoch > known.reader_epoch:
            known.reader_epoch, stream.unsaved = reader_epoch, True
            self._settle(stream, stream.trimmed)
            self._end_reader(stream, known)
        return known.acknowledged, stream.visible.ended and known.acknowledged >= stream.visible.last

    def _first(self, stream: Stream, next_number: int) -> int:
        earliest = stream.trimmed + 1
        first = next_number or (earliest if stream.live else 1)
        if first < earliest:
            why, hint = (" since the disk was full", AGAIN) if stream.finite else ("", "")
            reason = f"frames before {earliest} are gone{why}, {first} was asked for"
            raise SbonError("not-retained", reason, where=stream.name, hint=hint)
        if first > stream.visible.last + 1:
            reason = f"frame {first} was asked for, the newest is {stream.visible.last}"
            raise SbonError("stream-behind", reason, where=stream.name)
        return first

    def unsubscribe(self, stream: Stream, subscriber: str, why: SbonError | None = None) -> None:
        if subscriber not in stream.subscriptions:
            return
        try:
            with self._store.transaction() as connection:
                statements.delete_subscription(connection, stream, subscriber)
        except SbonError as error:
            if error.code != "disk-full" or not is_follower(subscriber):
                raise  # One of a follower is not loaded at the next start.
        del stream.subscriptions[subscriber]
        stream.room.notify()
        self.on_gone(stream.name, subscriber, why or SbonError("unsubscribed", "the subscription is over", where=stream.name))
        if stream.subscriptions:
            self._trim(stream)

    def received(self, stream: Stream, subscriber: str, number: int) -> None:
        known = self._counted(stream, subscriber, number)
        if known is not None and number > known.received:
            known.received, known.received_upto = number, statements.weighed_upto(self._store, stream, number)
            stream.room.notify()

    def acknowledge(self, stream: Stream, subscriber: str, number: int) -> None:
        known = self._counted(stream, subscriber, number)
        if known is None or number <= known.acknowledged:
            return
        known.acknowledged, known.acknowledged_upto = number, statements.weighed_upto(self._store, stream, number)
        if number > known.received:
            known.received, known.received_upto = number, known.acknowledged_upto
        stream.unsaved = True
        self._trim(stream)
        stream.room.notify()

    def _counted(self, stream: Stream, subscriber: str, number: int) -> Subscription | None:
        if number > stream.visible.last:
            seen = stream.visible.last
            raise BrokenInvariantError(f"frame {number} of {stream.name} was reported, and only {seen} was ever seen")
        known = stream.subscriptions.get(subscriber)
        return None if known is None or known.failed else known

    def count_sent(self, stream: Stream, subscriber: str, frame: Frame, sharers: Sequence[str]) -> None:
        known = stream.subscriptions.get(subscriber)
        if known is not None:
            known.frames += 1
            known.rows += frame.rows if frame.number > (known.counted or 0) else 0
            known.counted = max(known.counted or 0, frame.number)
            known.bytes += len(frame.payload)
            stream.unsaved = True
        for name, saved in saved_bytes(len(frame.payload), (*sharers, subscriber)):
            if (one := stream.subscriptions.get(name)) is not None:
                one.saved += saved

    # -- trimming -----------------------------------------------------------------------------------------------------

    def grew(self, stream: Stream) -> None:
        """Fail subscriptions that are over quota, count their losses, and delete frames that nobody needs.

        Call after new frames of a source, or of an operator.
        """
        for follower in stream.followers_behind(self._settings):
            log.warning("follower_dropped", stream=stream.name, subscriber=follower.subscriber)
            self.unsubscribe(stream, follower.subscriber, _behind(stream, follower))
        self._fail(stream, stream.overdrawn(self._settings))

    def _fail(self, stream: Stream, failed: list[Subscription]) -> None:
        """Mark subscriptions as failed, count their losses, and delete the frames that nobody needs."""
        for subscription in failed:
            subscription.failed = "quota"
            rows = subscription.dropped = statements.rows_after(self._store, stream, subscription.acknowledged)
            stream.dropped_rows += rows
            stream.unsaved = True
            log.warning("subscription_gone", stream=stream.name, subscriber=subscription.subscriber, reason="quota", rows=rows)
        if stream.live or failed:
            self._trim(stream)
        if failed:
            stream.room.notify()
        for subscription in failed:
            self.on_gone(stream.name, subscription.subscriber, _overdrawn(stream, subscription))

    def save(self, stream: Stream) -> None:
        """Store the progress that is only in memory, while the disk has space."""
        if stream.unsaved:
            self._settle(stream, stream.trimmed)

    def make_room(self, streams: Iterable[Stream]) -> bool:
        """Delete frames kept for later subscribers, the oldest of the stream with most bytes of them; False if there are none.

        Whoever subscribes to the stream later gets less history of a live source, and ``not-retained`` of a finite one. Without
        such frames a query fails that is far behind another with which it shares an operator.
        """
        known = list(streams)
        spare = [stream for stream in known if stream.spare() > stream.trimmed]
        if not spare:
            behind = [(one, stream) for stream in known for one in stream.laggards(self._settings.outbox_quota_bytes)]
            for one, stream in behind[:1]:
                self._fail(stream, [one])
            return bool(behind)
        largest = max(spare, key=lambda stream: stream.visible.upto - stream.trimmed_upto)
        before = largest.trimmed
        if largest.name not in self._shortened:
            self._shortened.add(largest.name)
            log.warning("history_shortened", stream=largest.name, reason="no space for more frames")
        return self._settle(largest, min(largest.spare(), before + self._settings.trim_frames)) and largest.trimmed > before

    def _trim(self, stream: Stream) -> None:
        upto = self._due(stream)
        while self._settle(stream, upto):
            upto = self._due(stream)
            if upto <= stream.trimmed:
                return

    def _settle(self, stream: Stream, upto: int) -> bool:
        """Store the subscriptions and delete frames up to ``upto`` in one transaction; False where the disk is full."""
        trims = upto > stream.trimmed
        if not trims and not stream.unsaved:
            return True
        weighed = statements.weighed_upto(self._store, stream, upto) if trims else stream.trimmed_upto
        try:
            with self._store.transaction(promised=False) as connection:
                for subscription in stream.subscriptions.values():
                    statements.save_subscription(connection, stream, subscription)
                statements.save_dropped(connection, stream)
                if trims:
                    statements.delete_frames(connection, stream, upto)
        except SbonError as error:
            if error.code != "disk-full":
                raise
            # A lost acknowledgement only means sending again: it is stored with the next one.
            return False
        stream.unsaved = False
        if trims:
            stream.trimmed, stream.trimmed_upto = upto, weighed
            self._failpoint("trim")
        return True

    def _due(self, stream: Stream) -> int:
        """Return the last frame to delete now, at most ``trim_frames`` from the first."""
        upto = min(stream.floor(), stream.trimmed + self._settings.trim_frames)
        if upto <= stream.trimmed:
            return stream.trimmed
        if stream.kind == "operator" and not stream.trimmed and stream.visible.upto <= self._settings.operator_history_bytes:
            return 0  # A later query may read it from its first frame on.
        if not stream.live:
            return upto
        full = stream.visible.upto - self._settings.live_retention_bytes
        old_ms = stream.newest_born_ms - self._settings.live_retention_s * 1000
        return statements.last_overdue(self._store, stream, upto, full, int(old_ms))


Begin = Literal["earliest", "now"]
"""Where a further sink begins: at the first row of all, or after the newest."""


class Beginning(NamedTuple):
    """The last frame that the reader does not get, the ``rows`` up to there, and whether the stream has ended with it."""

    frame: int
    rows: int
    ended: bool


class FurtherReaders:
    """Further sinks over the streams of one outbox: readers that are added to a stream that has flowed before."""

    def __init__(self, store: FrameStore, streams: Mapping[str, Stream], retention: Retention) -> None:
        self._store, self._streams, self._retention = store, streams, retention

    def subscribe(self, stream: str, subscriber: str, reader_epoch: int, begin: Begin) -> Beginning:
        """Subscribe a further sink, which has yet to connect: its frames are kept from now on.

        A repeated call returns the same beginning, once that is behind the first frame. Raises ``stream-unknown``,
        ``reader-fenced``, ``not-retained`` (the first frames are gone), ``too-many-subscribers``.
        """
        known = named(self._streams, stream)
        before = known.subscriptions.get(subscriber)
        self._retention.check_reader(known, before, Reader(epoch=reader_epoch))
        repeats = before is not None and before.reader_epoch == reader_epoch and not before.failed
        if before is None or not repeats or (begin == "now" and before.acknowledged == 0):
            before = self._subscribe(known, subscriber, reader_epoch, begin)
        after = statements.rows_after(self._store, known, before.acknowledged)
        return Beginning(
            frame=before.acknowledged,
            rows=known.visible.rows - after,
            ended=known.visible.ended and before.acknowledged >= known.visible.last,
        )

    def _subscribe(self, stream: Stream, subscriber: str, reader_epoch: int, begin: Begin) -> Subscription:
        if begin == "earliest" and stream.trimmed:
            reason = f"the first {stream.trimmed:,} frames of the result are delivered and gone"
            raise SbonError(
                "not-retained", reason, where=stream.name, hint="begin with the rows from now on (--from now, begin=now)"
            )
        after = stream.visible.last if begin == "now" else 0
        upto = stream.visible.upto if begin == "now" else stream.trimmed_upto
        new = Subscription(subscriber, after, upto, after, upto, counted=after, reader_epoch=reader_epoch)
        self._retention.replace(stream, new)
        return new

    def names(self, stream: str) -> list[str]:
        """Return the further sinks that subscribe to a stream of this node."""
        known = self._streams.get(stream)
        return [] if known is None else sorted(one for one in known.subscriptions if is_further_sink(one))

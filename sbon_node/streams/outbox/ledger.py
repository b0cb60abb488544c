"""The outbox's in-memory state of streams and subscribers; the database holds the same.

Pure: it decides which subscribers hold a stream back and which frames may be deleted, and reads no file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sbon_node.model.frames import NO_WATERMARK_MS, Frame, FrameDraft, InputOffset
from sbon_node.streams.links.credit import weight
from sbon_node.streams.outbox.signals import Signal
from sbon_node.streams.outbox.store import NUMBER_BITS, check_sizes
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.query_ids import is_further_sink
from sbon_protocol.api.subscribers import followed_by, is_follower, query_of
from sbon_protocol.errors import BrokenInvariantError, SbonError

Kind = Literal["source", "operator"]

NO_BATCH = -1


@dataclass(frozen=True, slots=True)
class Tail:
    """A stream's state after ``batch``: last frame ``last``, ``upto`` bytes weighed in all, and totals since frame 1.

    A source has no batches; its tail moves with every write.
    """

    batch: int = NO_BATCH
    last: int = 0
    upto: int = 0
    watermark_ms: int = NO_WATERMARK_MS
    ended: bool = False
    offsets: tuple[InputOffset, ...] = ()
    frames: int = 0
    rows: int = 0
    bytes: int = 0


class Reader(NamedTuple):
    """A subscriber's claims: the ``lineage`` that it has read (0: none yet), its last ``acknowledged`` frame, its ``epoch``.

    None means that nothing is claimed.
    """

    lineage: int = 0
    acknowledged: int | None = None
    epoch: int | None = None


ANY_READER = Reader()


@dataclass(slots=True)
class Subscription:
    """One subscription: ``received`` frames are in the subscriber's process; it never asks for ``acknowledged`` ones again."""

    subscriber: str
    received: int
    received_upto: int
    acknowledged: int
    acknowledged_upto: int
    failed: str = ""
    frames: int = 0
    rows: int = 0
    """Unlike ``frames`` and ``bytes`` without those that were sent again, as after a move or a restart of the reader."""
    bytes: int = 0
    saved: int = 0
    """Bytes of these that others bear, as one payload was sent for all."""
    counted: int | None = 0
    """The last frame whose rows are counted; not stored, so that frames under way count twice after a restart of this node. None
    until the reader connects again then."""
    dropped: int = 0
    reader_epoch: int = 0
    """The greatest epoch in which the subscriber has connected."""
    excused_upto: int = 0
    """Bytes weighed up to here do not count for the quota: the subscriber may have been frozen in a move."""


@dataclass(slots=True)
class Stream:
    """One stream: subscribers see ``visible``; ``pending`` lists the batches after it in order.

    ``lineage`` is random and made with the stream, so that a stream that begins anew under the same name differs.
    """

    id: int
    name: str
    kind: Kind
    finite: bool
    epoch: int
    lineage: int
    visible: Tail
    trimmed: int = 0
    trimmed_upto: int = 0
    newest_born_ms: int = 0
    position: bytes | None = None
    dropped_rows: int = 0
    pending: list[Tail] = field(default_factory=list)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    unsaved: bool = False
    dropped: bool = False
    moved: bool = False
    """Whether it was dropped because another node hosts it."""
    news: Signal = field(default_factory=Signal)
    room: Signal = field(default_factory=Signal)

    @property
    def newest(self) -> Tail:
        return self.pending[-1] if self.pending else self.visible

    @property
    def base(self) -> int:
        """A frame's id is this plus its number."""
        return self.id << NUMBER_BITS

    @property
    def live(self) -> bool:
        return self.kind == "source" and not self.finite

    def active(self) -> list[Subscription]:
        return [subscription for subscription in self.subscriptions.values() if not subscription.failed]

    def unreceived(self) -> int:
        """Bytes that hold the producer back.

        An operator waits for the slowest subscriber of a query, but not for further sinks, which a quota bounds; of several
        queries that share it for the fastest, so that none harms another. A source waits for its fastest subscriber: it retains
        the frames that others have not read anyway, and an absent subscriber must not harm the others. Before anyone subscribes a
        finite stream counts in full, while a live one continues within its retention. A follower reads what its host has
        received, so it is not the fastest.
        """
        if self.kind == "operator":
            lags = list(self._unreceived_by_query().values())
        else:
            active = self.active()
            active = [one for one in active if not is_follower(one.subscriber)] or active
            lags = [self.newest.upto - subscription.received_upto for subscription in active]
        if not lags:
            return 0 if self.live else self.newest.upto - self.trimmed_upto
        return min(lags)

    def _unreceived_by_query(self) -> dict[str, int]:
        """Return the bytes that each query's slowest subscriber has not received."""
        lags: dict[str, int] = {}
        for one in [one for one in self.active() if not is_further_sink(one.subscriber)] or self.active():
            query = query_of(one.subscriber)
            lags[query] = max(lags.get(query, 0), self.newest.upto - one.received_upto)
        return lags

    def laggards(self, quota_bytes: int) -> list[Subscription]:
        """Return subscriptions of an operator that leave more unacknowledged, of other queries than the fastest that share it."""
        lags = self._unreceived_by_query() if self.kind == "operator" else {}
        if len(lags) < 2:
            return []
        fastest = min(lags, key=lags.__getitem__)
        return [one for one in self.active() if query_of(one.subscriber) != fastest and self._lag(one) > quota_bytes]

    def floor(self) -> int:
        """The last frame that every subscriber has acknowledged; retention does not count."""
        acknowledged = [subscription.acknowledged for subscription in self.active()]
        if self.kind == "source":
            return 0 if self.finite else self._before_newest(acknowledged)
        return min(acknowledged, default=0)

    def spare(self) -> int:
        """The last frame that may go if room is short, beyond :meth:`floor`: kept only for subscribers that may come later."""
        acknowledged = [subscription.acknowledged for subscription in self.active()]
        if self.kind == "operator" or (self.finite and not acknowledged):
            return self.floor()
        return self._before_newest(acknowledged)

    def _before_newest(self, acknowledged: Sequence[int]) -> int:
        """The last acknowledged frame before the newest, from which a late subscriber learns the stream's position and end."""
        return min([self.visible.last - 1, *acknowledged])

    def followers(self, of: str = "") -> list[Subscription]:
        """Return the subscriptions of followers, or those of the followers ``of`` a subscriber."""
        known = self.subscriptions.values()
        return [one for one in known if is_follower(one.subscriber) and of in ("", followed_by(one.subscriber))]

    def followers_behind(self, settings: StreamSettings) -> list[Subscription]:
        """Return followers of a live source that are too far behind, or whose operators are."""
        if not self.live:
            return []
        quota = max(settings.follower_quota_bytes, _quota(settings))
        far = {one.subscriber for one in self.active() if self._lag(one) > quota}
        return [one for one in self.followers() if one.subscriber in far or followed_by(one.subscriber) in far]

    def overdrawn(self, settings: StreamSettings) -> list[Subscription]:
        """Return the subscriptions of a live source that have fallen behind its retention, or those of an operator: further
        sinks, and readers of queries that are far behind another with which they share it.

        A subscriber that is followed may be frozen: what it leaves unread meanwhile does not count. Beyond the followers' quota
        it is not followed any more (:meth:`followers_behind`).
        """
        if self.kind == "operator":
            behind = {one.subscriber for one in self.laggards(settings.subscription_quota_bytes)}
            quota = settings.sink_quota_bytes
            further = {one.subscriber for one in self.active() if is_further_sink(one.subscriber) and self._lag(one) > quota}
            return [one for one in self.active() if one.subscriber in behind | further]
        if not self.live:
            return []
        over: list[Subscription] = []
        followed = {followed_by(one.subscriber) for one in self.followers()}
        for one in self.active():
            if one.subscriber in followed:
                one.excused_upto = self.visible.upto
            if not is_follower(one.subscriber) and self._lag(one, one.excused_upto) > _quota(settings):
                over.append(one)
        return over

    def _lag(self, one: Subscription, excused_upto: int = 0) -> int:
        """Bytes that a subscriber leaves unacknowledged, beyond what is excused."""
        return self.visible.upto - max(one.acknowledged_upto, excused_upto)


def named(streams: Mapping[str, Stream], stream: str) -> Stream:
    """Return a stream of this node. Raises ``stream-unknown``."""
    known = streams.get(stream)
    if known is None:
        raise SbonError("stream-unknown", "no such stream on this node", where=stream)
    return known


def _quota(settings: StreamSettings) -> int:
    return max(settings.subscription_quota_bytes, settings.live_retention_bytes)


def number_frames(stream: str, drafts: Sequence[FrameDraft], before: Tail, *, each_carries: bool) -> list[Frame]:
    """Number the drafts as the frames after ``before``; watermarks never go back, and no rows follow the end.

    Each draft of a source carries a watermark. In a batch only the last does; the others repeat the previous one.
    """
    frames = []
    watermark_ms, ended = before.watermark_ms, before.ended
    for index, draft in enumerate(drafts):
        if ended and draft.rows:
            raise BrokenInvariantError(f"{stream} has ended, and {draft.rows} rows follow")
        if each_carries or index == len(drafts) - 1:
            watermark_ms, ended = max(watermark_ms, draft.watermark_ms), ended or draft.ended
        frames.append(
            Frame(
                stream=stream,
                number=before.last + 1 + index,
                payload=draft.payload,
                rows=draft.rows,
                watermark_ms=watermark_ms,
                ended=ended,
                born_ms=draft.born_ms,
            )
        )
    return frames


def grown(source: Stream, drafts: Sequence[FrameDraft]) -> tuple[list[Frame], Tail]:
    """Return the drafts as the next frames of a source's stream, and its tail after them. Raises ``frame-too-large``."""
    check_sizes(drafts, source.name)
    frames = number_frames(source.name, drafts, source.visible, each_carries=True)
    return frames, _advance(source.visible, frames, NO_BATCH, ())


def batch_output(
    stream: str, drafts: Sequence[FrameDraft], before: Tail, batch: int, offsets: tuple[InputOffset, ...]
) -> tuple[list[Frame], Tail]:
    """Return the frames of the ``batch`` that follows ``before``, and the tail after them.

    There are none if it has no rows and neither watermark nor end is new: each reader would run an idle batch for one.
    """
    if batch != before.batch + 1:
        raise BrokenInvariantError(f"batch {batch} of {stream} follows batch {before.batch}")
    frames = number_frames(stream, drafts, before, each_carries=False)
    last = frames[-1]
    if not any(frame.rows for frame in frames) and (last.watermark_ms, last.ended) == (before.watermark_ms, before.ended):
        frames = []
    return frames, _advance(before, frames, batch, offsets)


def _advance(before: Tail, frames: Sequence[Frame], batch: int, offsets: tuple[InputOffset, ...]) -> Tail:
    """Return the tail after ``frames`` follow ``before``."""
    newest = frames[-1] if frames else None
    return Tail(
        batch=batch,
        last=before.last + len(frames),
        upto=before.upto + sum(weight(frame.payload) for frame in frames),
        watermark_ms=newest.watermark_ms if newest else before.watermark_ms,
        ended=newest.ended if newest else before.ended,
        offsets=offsets,
        frames=before.frames + len(frames),
        rows=before.rows + sum(frame.rows for frame in frames),
        bytes=before.bytes + sum(len(frame.payload) for frame in frames),
    )


def saved_bytes(size: int, sharers: Sequence[str]) -> list[tuple[str, int]]:
    """Return the bytes that each reader of a payload bears less now that the last of the ``sharers`` has it, too.

    Each bears an equal part, and all together bear the ``size``.
    """
    count = len(sharers)
    before = [*_parts(size, count - 1), size]
    return [(name, was - now) for name, was, now in zip(sharers, before, _parts(size, count), strict=True)]


def _parts(size: int, count: int) -> list[int]:
    return [size * (index + 1) // count - size * index // count for index in range(count)]

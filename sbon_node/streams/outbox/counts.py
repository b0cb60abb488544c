"""Counts of an outbox and of its streams, for people and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sbon_node.model.stream_counts import LinkCount, OutboxBytes, OutboxCount, StreamCount
from sbon_node.streams.outbox import statements
from sbon_node.streams.outbox.ledger import Stream
from sbon_node.streams.outbox.store import FrameStore


def outbox_count(streams: Sequence[Stream], shown: Sequence[int], sent: Sequence[int], quota_bytes: int) -> OutboxCount:
    """Return the counts of all streams together; ``shown`` and ``sent`` are frames, rows and bytes."""
    unreceived = [stream.unreceived() for stream in streams]
    subscriptions = [subscription for stream in streams for subscription in stream.subscriptions.values()]
    return OutboxCount(
        **dict(zip(("shown_frames", "shown_rows", "shown_bytes"), shown, strict=True)),
        **dict(zip(("sent_frames", "sent_rows", "sent_bytes"), sent, strict=True)),
        sources=sum(stream.kind == "source" for stream in streams),
        operators=sum(stream.kind == "operator" for stream in streams),
        paused=sum(waiting > quota_bytes for waiting in unreceived),
        unreceived_bytes=sum(unreceived),
        subscriptions=len(subscriptions),
        failed_subscriptions=sum(bool(subscription.failed) for subscription in subscriptions),
    )


def outbox_bytes(streams: Iterable[Stream], free_bytes: int) -> OutboxBytes:
    """Return the bytes of each stream's stored frames, visible or not."""
    return OutboxBytes(
        streams={stream.name: stream.newest.upto - stream.trimmed_upto for stream in streams}, free_bytes=free_bytes
    )


def stream_count(stream: Stream) -> StreamCount:
    """Return the traffic of the stream and of each of its subscriptions, resent frames included."""
    return StreamCount(
        frames=stream.visible.frames,
        rows=stream.visible.rows,
        bytes=stream.visible.bytes,
        dropped=stream.dropped_rows,
        links={
            name: LinkCount(
                frames=subscription.frames,
                rows=subscription.rows,
                bytes=subscription.bytes,
                saved_bytes=subscription.saved,
                received=subscription.received,
                acknowledged=subscription.acknowledged,
                failed=subscription.failed,
                dropped=subscription.dropped,
                frames_behind=0 if subscription.failed else max(0, stream.visible.last - subscription.acknowledged),
                bytes_behind=0 if subscription.failed else max(0, stream.visible.upto - subscription.acknowledged_upto),
            )
            for name, subscription in sorted(stream.subscriptions.items())
        },
    )


class Backlogs:
    """The rows that subscribers have yet to finish with."""

    def __init__(self, store: FrameStore, streams: Mapping[str, Stream]) -> None:
        self._store, self._streams = store, streams

    def oldest_ms(self) -> dict[str, int]:
        """Return by subscriber when the oldest of its waiting rows entered the overlay, by this node's clock."""
        oldest: dict[str, int] = {}
        for stream in self._streams.values():
            for one in stream.active():
                if one.acknowledged < stream.visible.last:
                    born_ms = statements.born_after_ms(self._store, stream, one.acknowledged)
                    if born_ms is not None:
                        oldest[one.subscriber] = min(born_ms, oldest.get(one.subscriber, born_ms))
        return oldest

"""Counts of an outbox and of its streams, for people and metrics."""

from __future__ import annotations

from collections.abc import Sequence

from sbon_node.model.stream_counts import LinkCount, OutboxCount, StreamCount
from sbon_node.streams.outbox.ledger import Stream


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

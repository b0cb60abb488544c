"""A stream that goes on at another host: exported by the old one, adopted by the new one under the same lineage.

Readers notice nothing but a later epoch: frames keep their numbers, and those that some reader has not acknowledged come along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sbon_node.errors import BrokenInvariantError, SbonError
from sbon_node.model.frames import Frame, InputOffset
from sbon_node.streams.followers import is_follower
from sbon_node.streams.links.credit import weight
from sbon_node.streams.outbox import statements
from sbon_node.streams.outbox.ledger import Stream, Subscription, Tail
from sbon_node.streams.outbox.store import FrameStore


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream of an operator without its frames: those after number ``trimmed`` are retained.

    ``trimmed_upto`` are the bytes weighed up to there. Each subscription has its name, the last frame that it has acknowledged,
    its reader's epoch, and the code of its failure, if any. Those of followers are left out.
    """

    lineage: int
    tail: Tail
    trimmed: int
    trimmed_upto: int
    subscriptions: tuple[tuple[str, int, int, str], ...]


class Handover:
    """Export and adoption over the streams of one outbox."""

    def __init__(self, store: FrameStore, streams: dict[str, Stream]) -> None:
        self._store, self._streams = store, streams

    def tail(self, stream: str) -> Tail:
        """Return the state of an operator's stream after its newest visible batch. Raises ``stream-unknown``."""
        return self._operator(stream).visible

    def export(self, stream: str, *, cut_off: bool = False) -> StreamState:
        """Return the state of a stream that grows no more: all its batches are visible. Raises ``stream-unknown``.

        With ``cut_off`` its host has no say any more: later batches, as of a restart without further input, are left out.
        """
        known = self._operator(stream)
        if known.pending and not cut_off:
            raise BrokenInvariantError(
                f"batch {known.newest.batch} of {stream} is not visible, so the stream cannot go on elsewhere"
            )
        subscriptions = tuple(
            (name, subscription.acknowledged, subscription.reader_epoch, subscription.failed)
            for name, subscription in sorted(known.subscriptions.items())
            if not is_follower(name)
        )
        return StreamState(
            lineage=known.lineage,
            tail=known.visible,
            trimmed=known.trimmed,
            trimmed_upto=known.trimmed_upto,
            subscriptions=subscriptions,
        )

    def adopt(
        self,
        stream: str,
        state: StreamState,
        frames: Sequence[Frame],
        *,
        batch: int,
        offsets: tuple[InputOffset, ...],
        epoch: int,
    ) -> None:
        """Create the stream as another host has left it, with the retained ``frames``, in one transaction.

        ``batch`` and ``offsets`` are those of the checkpoint here: ``batch + 1`` must follow. Raises ``stream-exists``.
        """
        if stream in self._streams:
            raise SbonError("stream-exists", "the stream is here already", where=stream, hint="drop it first")
        numbers = [frame.number for frame in frames]
        weighed = state.trimmed_upto + sum(weight(frame.payload) for frame in frames)
        if numbers != list(range(state.trimmed + 1, state.tail.last + 1)) or weighed != state.tail.upto:
            raise BrokenInvariantError(
                f"{len(frames)} frames of {stream} are not those after {state.trimmed} upto {state.tail.last}"
            )
        tail = replace(state.tail, batch=batch, offsets=offsets)
        with self._store.transaction() as connection:
            number = statements.insert_stream(connection, stream, "operator", False, epoch, state.lineage)
            adopted = Stream(
                id=number,
                name=stream,
                kind="operator",
                finite=False,
                epoch=epoch,
                lineage=state.lineage,
                visible=tail,
                trimmed=state.trimmed,
                trimmed_upto=state.trimmed_upto,
                newest_born_ms=max((frame.born_ms for frame in frames), default=0),
            )
            statements.update_tail(connection, adopted, tail)
            statements.insert_frames(connection, adopted, frames, state.trimmed_upto)
            for subscription in _subscriptions(state, frames):
                adopted.subscriptions[subscription.subscriber] = subscription
                statements.save_subscription(connection, adopted, subscription)
        self._streams[stream] = adopted

    def _operator(self, stream: str) -> Stream:
        known = self._streams.get(stream)
        if known is None:
            raise SbonError("stream-unknown", "no such stream on this node", where=stream)
        if known.kind != "operator":
            raise BrokenInvariantError(f"{stream} is a source's, which does not move")
        return known


def _subscriptions(state: StreamState, frames: Sequence[Frame]) -> list[Subscription]:
    """Return the subscriptions; their readers have received what they have acknowledged, until they connect."""
    upto, weighed = state.trimmed_upto, {state.trimmed: state.trimmed_upto}
    for frame in frames:
        upto += weight(frame.payload)
        weighed[frame.number] = upto
    return [
        Subscription(
            name,
            received=acknowledged,
            received_upto=weighed.get(acknowledged, state.trimmed_upto),
            acknowledged=acknowledged,
            acknowledged_upto=weighed.get(acknowledged, state.trimmed_upto),
            failed=failed,
            reader_epoch=reader_epoch,
        )
        for name, acknowledged, reader_epoch, failed in state.subscriptions
    ]

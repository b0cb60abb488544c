"""A stream that goes on at another host: exported by the old one, adopted by the new one under the same lineage.

Readers notice nothing but a later epoch: frames keep their numbers, and those that some reader has not acknowledged come along.
They come in pieces, each stored by itself, so that a large stream holds up nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from sbon_node.model.frames import Frame, InputOffset
from sbon_node.streams.outbox import copies, statements
from sbon_node.streams.outbox.copies import StreamState, state_of
from sbon_node.streams.outbox.ledger import Stream, Subscription, Tail
from sbon_node.streams.outbox.store import FrameStore
from sbon_protocol.errors import BrokenInvariantError, SbonError

ARRIVING = "arriving/"
"""Prefix of the names of streams of which not all has come."""


class Handover:
    """Export and adoption over the streams of one outbox."""

    def __init__(self, store: FrameStore, streams: dict[str, Stream]) -> None:
        self._store, self._streams = store, streams
        self._arriving: dict[str, Stream] = {}
        """Streams of which not all has come; those of an earlier run are deleted, and begin anew."""
        for name in [name for name in streams if name.startswith(ARRIVING)]:
            with suppress(SbonError):  # The disk may be full.
                statements.delete(store, streams[name])
            del streams[name]

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
        return state_of(known, known.visible)

    def unshown(self, stream: str, batch: int, after: int, max_bytes: int) -> tuple[StreamState, list[Frame]]:
        """Return the state as it is once ``batch`` is visible, and its retained frames after number ``after``.

        There are at most ``max_bytes`` of frames, but at least one if there is one. Raises ``batch-unknown`` for another batch
        than the newest visible one and those after it.
        """
        known = self._operator(stream)
        tail = next((tail for tail in (known.visible, *known.pending) if tail.batch == batch), None)
        if tail is None:
            raise SbonError("batch-unknown", f"nothing is kept of batch {batch}", where=stream)
        return state_of(known, tail), statements.read(self._store, known, after, max_bytes, tail.last)

    def take(self, stream: str, state: StreamState, frames: Sequence[Frame]) -> None:
        """Store the next retained frames of a stream that comes here; nobody sees them before :meth:`adopt`.

        The stream begins anew with the first retained frame. Frames that are here already are ignored. Raises ``stream-exists``,
        ``frames-missing`` if others should have come before.
        """
        if stream in self._streams:
            raise SbonError("stream-exists", "the stream is here already", where=stream, hint="drop it first")
        arriving = self._arriving.get(stream)
        if arriving is None or not frames or frames[0].number == state.trimmed + 1:
            self.discard(stream)
            arriving = self._begin(stream, state)
        before = arriving.visible
        new = [frame for frame in frames if frame.number > before.last]
        if [frame.number for frame in new] != list(range(before.last + 1, before.last + 1 + len(new))):
            raise SbonError("frames-missing", f"frame {new[0].number} does not follow {before.last}", where=stream)
        copies.append(self._store, arriving, new, after=before.last, trimmed=arriving.trimmed)

    def _begin(self, stream: str, state: StreamState) -> Stream:
        arriving = self._arriving[stream] = copies.begin(self._store, ARRIVING + stream, state)
        return arriving

    def arrived(self, stream: str, kept: Stream) -> None:
        """Take a stream that was kept here under another name; nobody sees it before :meth:`adopt`."""
        self.discard(stream)
        self._arriving[stream] = kept

    def become_source(self, stream: str, position: bytes, *, finite: bool) -> None:
        """Let a stream that has arrived be a source's, with the position of its connector; ignore an unknown one."""
        arriving = self._arriving.get(stream)
        if arriving is not None:
            arriving.kind, arriving.finite, arriving.position = "source", finite, position
            with self._store.transaction() as connection:
                statements.become_source(connection, arriving)

    def has_come(self, stream: str, state: StreamState) -> bool:
        """Return whether all that :meth:`adopt` needs of a stream in this state is here."""
        came = self._arriving.get(stream)
        needed = (state.lineage, state.tail.last, state.tail.upto)
        return came is not None and (came.lineage, came.visible.last, came.visible.upto) == needed

    def discard(self, stream: str) -> None:
        """Delete what has come of a stream; ignore an unknown one."""
        arriving = self._arriving.pop(stream, None)
        if arriving is not None:
            statements.delete(self._store, arriving)

    def adopt(self, stream: str, state: StreamState, *, batch: int, offsets: tuple[InputOffset, ...], epoch: int) -> None:
        """Go on with a stream as another host has left it, all of whose retained frames were taken.

        ``batch`` and ``offsets`` are those of the checkpoint here: ``batch + 1`` must follow. Until a batch follows, it may be
        adopted again, perhaps as of a later batch without rows. Raises ``stream-exists``, ``frames-missing``.
        """
        if stream in self._streams:
            self._adopt_again(self._streams[stream], state, batch, offsets, epoch)
            return
        arriving = self._arriving.get(stream)
        if arriving is None:
            raise SbonError("frames-missing", "no frames of it have come", where=stream)
        came = arriving.visible
        if arriving.lineage != state.lineage or (came.last, came.upto) != (state.tail.last, state.tail.upto):
            raise SbonError(
                "frames-missing", f"frames upto {came.last} have come, and {state.tail.last} is the last", where=stream
            )
        tail = replace(state.tail, batch=batch, offsets=offsets)
        adopted = replace(arriving, name=stream, epoch=epoch, visible=tail, subscriptions={})
        with self._store.transaction() as connection:
            statements.rename(connection, adopted)
            statements.update_tail(connection, adopted, tail)
            for name, acknowledged, reader_epoch, failed in state.subscriptions:
                upto = statements.weighed_upto(self._store, adopted, acknowledged)
                rows, counted = state.carried.get(name, (0, acknowledged))
                adopted.subscriptions[name] = Subscription(
                    name,
                    received=acknowledged,
                    received_upto=upto,
                    acknowledged=acknowledged,
                    acknowledged_upto=upto,
                    failed=failed,
                    rows=rows,
                    counted=counted,
                    reader_epoch=reader_epoch,
                )
                statements.save_subscription(connection, adopted, adopted.subscriptions[name])
        self._streams[stream] = adopted
        del self._arriving[stream]

    def _adopt_again(self, known: Stream, state: StreamState, batch: int, offsets: tuple[InputOffset, ...], epoch: int) -> None:
        is_same = (known.lineage, known.epoch) == (state.lineage, epoch)
        if not is_same or known.pending or known.visible.frames != state.tail.frames or batch < known.visible.batch:
            raise SbonError("stream-exists", "the stream is here already", where=known.name, hint="drop it first")
        tail = replace(known.visible, batch=batch, offsets=offsets)
        with self._store.transaction() as connection:
            statements.update_tail(connection, known, tail)
        known.visible = tail

    def _operator(self, stream: str) -> Stream:
        known = self._streams.get(stream)
        if known is None:
            raise SbonError("stream-unknown", "no such stream on this node", where=stream)
        if known.kind != "operator":
            raise BrokenInvariantError(f"{stream} is a source's, which does not move")
        return known

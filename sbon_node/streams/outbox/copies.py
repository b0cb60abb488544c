"""Streams that go on at another node, and the copies that are kept until they do.

Readers notice nothing but a later epoch: frames keep their numbers, and those that some reader has not acknowledged come along.
They come in pieces, each stored by itself under another name, so that a large stream holds up nothing else."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from sbon_node.model.frames import Frame, FrameDraft, InputOffset
from sbon_node.streams.links.credit import weight
from sbon_node.streams.outbox import statements
from sbon_node.streams.outbox.ledger import NO_BATCH, Stream, Subscription, Tail, grown, named
from sbon_node.streams.outbox.store import FrameStore
from sbon_protocol.api.subscribers import is_follower
from sbon_protocol.errors import BrokenInvariantError, SbonError


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream without its frames: those after number ``trimmed`` are retained.

    ``trimmed_upto`` are the bytes weighed up to there. Each subscription has its name, the last frame that it has acknowledged,
    its reader's epoch, and the code of its failure, if any. Those of followers are left out. ``carried`` are the rows that each
    has been sent, and the last frame of these.
    """

    lineage: int
    tail: Tail
    trimmed: int
    trimmed_upto: int
    subscriptions: tuple[tuple[str, int, int, str], ...]
    carried: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def state_of(known: Stream, tail: Tail) -> StreamState:
    """Return the state of a stream once it has come to that tail."""
    readers = [(name, one) for name, one in sorted(known.subscriptions.items()) if not is_follower(name)]
    return StreamState(
        lineage=known.lineage,
        tail=tail,
        trimmed=known.trimmed,
        trimmed_upto=known.trimmed_upto,
        subscriptions=tuple((name, one.acknowledged, one.reader_epoch, one.failed) for name, one in readers),
        carried={name: (one.rows, max(one.counted or 0, one.acknowledged)) for name, one in readers},
    )


def _begin(store: FrameStore, name: str, state: StreamState) -> Stream:
    """Create the stream ``name``, without frames, of which those up to ``state.trimmed`` are retained nowhere."""
    stream = statements.create(store, name, "operator", False, 0, state.lineage)
    stream.trimmed, stream.trimmed_upto = state.trimmed, state.trimmed_upto
    stream.visible = replace(stream.visible, last=state.trimmed, upto=state.trimmed_upto)
    return stream


def _append(store: FrameStore, stream: Stream, frames: Sequence[Frame], *, after: int, trimmed: int) -> None:
    """Store the ``frames`` that follow number ``after`` in place of others there, and delete those up to ``trimmed``."""
    upto = statements.weighed_upto(store, stream, after)
    weighed = upto + sum(weight(frame.payload) for frame in frames)
    trimmed_upto = statements.weighed_upto(store, stream, trimmed)
    tail = replace(stream.visible, last=after + len(frames), upto=weighed)
    with store.transaction() as connection:
        statements.delete_after(connection, stream, after)
        statements.insert_frames(connection, stream, frames, upto)
        statements.update_tail(connection, stream, tail)
        statements.delete_frames(connection, stream, trimmed)
    stream.visible, stream.trimmed, stream.trimmed_upto = tail, trimmed, trimmed_upto
    stream.newest_born_ms = max([stream.newest_born_ms, *(frame.born_ms for frame in frames)])


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
            batch = known.newest.batch
            raise BrokenInvariantError(f"batch {batch} of {stream} is not visible, so the stream cannot go on elsewhere")
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
            arriving = self._arriving[stream] = _begin(self._store, ARRIVING + stream, state)
        before = arriving.visible
        new = [frame for frame in frames if frame.number > before.last]
        if [frame.number for frame in new] != list(range(before.last + 1, before.last + 1 + len(new))):
            raise SbonError("frames-missing", f"frame {new[0].number} does not follow {before.last}", where=stream)
        _append(self._store, arriving, new, after=before.last, trimmed=arriving.trimmed)

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
        if not self.has_come(stream, state):
            message = f"frames upto {arriving.visible.last} have come, and {state.tail.last} is the last"
            raise SbonError("frames-missing", message, where=stream)
        tail = replace(state.tail, batch=batch, offsets=offsets)
        adopted = replace(arriving, name=stream, epoch=epoch, visible=tail, subscriptions={})
        with self._store.transaction() as connection:
            statements.rename(connection, adopted)
            statements.update_tail(connection, adopted, tail)
            for name, acknowledged, reader_epoch, failed in state.subscriptions:
                upto = statements.weighed_upto(self._store, adopted, acknowledged)
                rows, counted = state.carried.get(name, (0, acknowledged))
                reader = Subscription(
                    name, acknowledged, upto, acknowledged, upto, failed, rows=rows, counted=counted, reader_epoch=reader_epoch
                )
                adopted.subscriptions[name] = reader
                statements.save_subscription(connection, adopted, reader)
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
        known = named(self._streams, stream)
        if known.kind != "operator":
            raise BrokenInvariantError(f"{stream} is a source's, which does not move")
        return known


@dataclass(frozen=True, slots=True)
class Growth:
    """The ``state`` of a source's stream once ``frames`` follow those after number ``after``, which it shows already."""

    state: StreamState
    after: int
    frames: tuple[Frame, ...]


class SourceStreams:
    """The sources' streams of one outbox, for their backups."""

    def __init__(self, store: FrameStore, streams: dict[str, Stream], handover: Handover) -> None:
        self._store, self._streams, self._handover = store, streams, handover

    def growth(self, stream: str, drafts: Sequence[FrameDraft]) -> Growth:
        """Return what :meth:`Outbox.write_source` would make of the drafts. Raises ``frame-too-large``, ``stream-unknown``."""
        known = self._named(stream)
        frames, tail = grown(known, drafts)
        return Growth(state_of(known, tail), known.visible.last, tuple(frames))

    def retained(self, stream: str, after: int, max_bytes: int) -> list[Frame]:
        """Return shown frames after number ``after``, or after the deleted ones: at most ``max_bytes``, but at least one."""
        known = self._named(stream)
        return statements.read(self._store, known, max(after, known.trimmed), max_bytes)

    def trimmed(self, stream: str) -> int:
        """Return the number of the last deleted frame."""
        return self._named(stream).trimmed

    def adopt(self, stream: str, state: StreamState, position: bytes, *, finite: bool, epoch: int) -> None:
        """Go on with a source's stream that was kept and handed over here. Raises ``stream-exists``, ``frames-missing``."""
        self._handover.become_source(stream, position, finite=finite)
        self._handover.adopt(stream, state, batch=NO_BATCH, offsets=(), epoch=epoch)

    def _named(self, stream: str) -> Stream:
        known = named(self._streams, stream)
        if known.kind != "source":
            raise BrokenInvariantError(f"{stream} is an operator's")
        return known


BACKUP = "backup/"
"""Prefix of the names of these streams in the database."""


class BackupStreams:
    """Streams of other nodes' operators and sources, kept in one outbox: nobody reads them before they go on here.

    A stored batch counts once its record is written, beside the frames. So the frames of a batch may come before its record, and
    are cut off again if that never comes.
    """

    def __init__(self, store: FrameStore, streams: dict[str, Stream], handover: Handover) -> None:
        self._store, self._handover = store, handover
        self._kept = {name.removeprefix(BACKUP): streams.pop(name) for name in list(streams) if name.startswith(BACKUP)}

    def last(self, stream: str, lineage: int) -> int:
        """Return the number of the last frame that is kept; 0 if there is none of that lineage."""
        kept = self._kept.get(stream)
        return kept.visible.last if kept is not None and kept.lineage == lineage else 0

    def keep(
        self, stream: str, state: StreamState, frames: Sequence[Frame], after: int, *, settled: int, most_bytes: int
    ) -> None:
        """Store the ``frames`` after number ``after``, and delete those that all readers have acknowledged.

        Other frames after ``after`` belonged to a batch that was run again: they are deleted. A stream of another lineage, or of
        which no frame is retained at its host, begins anew. Raises ``frames-missing`` if others should have come before, and
        ``backup-too-large`` where they would be more than ``most_bytes``: all after number ``settled``, the last one of a stored
        batch, are deleted then.
        """
        kept = self._kept.get(stream)
        if kept is None or kept.lineage != state.lineage or (kept.visible.last < state.trimmed == after):
            self.discard(stream)
            kept = self._kept[stream] = _begin(self._store, BACKUP + stream, state)
        numbers = [frame.number for frame in frames]
        if not kept.trimmed <= after <= kept.visible.last or numbers != list(range(after + 1, after + 1 + len(frames))):
            message = f"frames {numbers[:1]} do not follow {kept.visible.last}"
            raise SbonError("frames-missing", message, where=stream)
        trimmed = max(kept.trimmed, min(state.trimmed, after))
        size = sum(weight(frame.payload) for frame in frames)
        if self._weighed(kept, trimmed, after) + size > most_bytes:
            self._cut(kept, max(settled, kept.trimmed))
            message = f"its host sends more than {most_bytes:,} bytes of frames"
            raise SbonError("backup-too-large", message, where=stream, hint="raise backups.stream_bytes at this node")
        _append(self._store, kept, frames, after=after, trimmed=trimmed)

    def release(self, stream: str, state: StreamState) -> None:
        """Hand the stream over to :meth:`Handover.adopt` as of ``state``; frames after its last one never counted.

        It may be repeated until the stream is adopted. Raises ``frames-missing`` if not all of its frames are kept.
        """
        kept = self._kept.get(stream)
        if kept is None and self._handover.has_come(stream, state):
            return
        if kept is None:
            kept = self._kept[stream] = _begin(self._store, BACKUP + stream, state)
        if kept.lineage != state.lineage or kept.visible.last < state.tail.last:
            message = f"frames up to {kept.visible.last} of {state.tail.last} are kept"
            raise SbonError("frames-missing", message, where=stream, hint="its node has them, if it returns")
        self._cut(kept, state.tail.last, state.tail.upto)
        del self._kept[stream]
        self._handover.arrived(stream, kept)

    def _weighed(self, kept: Stream, after: int, last: int) -> int:
        """Return the bytes of the frames after number ``after``, up to ``last``."""
        return statements.weighed_upto(self._store, kept, last) - statements.weighed_upto(self._store, kept, after)

    def _cut(self, kept: Stream, last: int, upto: int | None = None) -> None:
        """Delete the frames after number ``last``, up to which ``upto`` bytes are weighed."""
        if last > kept.visible.last:
            return
        cut = replace(kept.visible, last=last, upto=statements.weighed_upto(self._store, kept, last) if upto is None else upto)
        with self._store.transaction() as connection:
            statements.delete_after(connection, kept, last)
            statements.update_tail(connection, kept, cut)
        kept.visible = cut

    def discard(self, stream: str) -> None:
        """Delete what is kept of a stream; ignore an unknown one."""
        kept = self._kept.pop(stream, None)
        if kept is not None:
            statements.delete(self._store, kept)

    def names(self) -> list[str]:
        return sorted(self._kept)

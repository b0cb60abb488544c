"""Streams of other nodes' operators and sources, written here under another name, frame by frame, until they go on here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sbon_node.model.frames import Frame
from sbon_node.streams.links.credit import weight
from sbon_node.streams.outbox import statements
from sbon_node.streams.outbox.ledger import Stream, Tail
from sbon_node.streams.outbox.store import FrameStore
from sbon_protocol.api.subscribers import is_follower


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


def begin(store: FrameStore, name: str, state: StreamState) -> Stream:
    """Create the stream ``name``, without frames, of which those up to ``state.trimmed`` are retained nowhere."""
    stream = statements.create(store, name, "operator", False, 0, state.lineage)
    stream.trimmed, stream.trimmed_upto = state.trimmed, state.trimmed_upto
    stream.visible = replace(stream.visible, last=state.trimmed, upto=state.trimmed_upto)
    return stream


def append(store: FrameStore, stream: Stream, frames: Sequence[Frame], *, after: int, trimmed: int) -> None:
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

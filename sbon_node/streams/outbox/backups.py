"""Streams of operators at other nodes, kept here as their hosts have them: nobody reads them before they go on here.

A stored batch counts once its record is written, beside the frames. So the frames of a batch may come before its record, and are
cut off again if that never comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sbon_node.model.frames import Frame
from sbon_node.streams.links.credit import weight
from sbon_node.streams.outbox import copies, statements
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.handover import Handover
from sbon_node.streams.outbox.ledger import Stream
from sbon_node.streams.outbox.store import FrameStore
from sbon_protocol.errors import SbonError

BACKUP = "backup/"
"""Prefix of the names of these streams in the database."""


class BackupStreams:
    """The streams that are kept in one outbox for operators of other nodes."""

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
            kept = self._begin(stream, state)
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
        copies.append(self._store, kept, frames, after=after, trimmed=trimmed)

    def _begin(self, stream: str, state: StreamState) -> Stream:
        kept = self._kept[stream] = copies.begin(self._store, BACKUP + stream, state)
        return kept

    def release(self, stream: str, state: StreamState) -> None:
        """Hand the stream over to :meth:`Handover.adopt` as of ``state``; frames after its last one never counted.

        It may be repeated until the stream is adopted. Raises ``frames-missing`` if not all of its frames are kept.
        """
        kept = self._kept.get(stream)
        if kept is None and self._handover.has_come(stream, state):
            return
        if kept is None:
            kept = self._begin(stream, state)
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

"""The stream of a replicated source: what its backup must have before it grows, and its adoption by the backup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sbon_node.model.frames import Frame, FrameDraft
from sbon_node.streams.outbox import statements
from sbon_node.streams.outbox.copies import StreamState, state_of
from sbon_node.streams.outbox.handover import Handover
from sbon_node.streams.outbox.ledger import NO_BATCH, Stream, advance, number_frames
from sbon_node.streams.outbox.store import FrameStore, check_size
from sbon_protocol.errors import BrokenInvariantError, SbonError


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
        for draft in drafts:
            check_size(draft.payload, stream)
        frames = number_frames(known.name, drafts, known.visible, each_carries=True)
        tail = advance(known.visible, frames, NO_BATCH, ())
        return Growth(state_of(known, tail), known.visible.last, tuple(frames))

    def retained(self, stream: str, after: int, max_bytes: int) -> list[Frame]:
        """Return shown frames after number ``after``, or after the deleted ones: at most ``max_bytes``, but at least one."""
        known = self._named(stream)
        return statements.read(self._store, known, max(after, known.trimmed), max_bytes)

    def trimmed(self, stream: str) -> int:
        """Return the number of the last deleted frame."""
        return self._named(stream).trimmed

    def adopt(self, stream: str, state: StreamState, position: bytes, *, finite: bool, epoch: int) -> None:
        """Go on with a source's stream of which this node was the backup, and handed over what it kept.

        Raises ``stream-exists``, ``frames-missing``.
        """
        self._handover.become_source(stream, position, finite=finite)
        self._handover.adopt(stream, state, batch=NO_BATCH, offsets=(), epoch=epoch)

    def _named(self, stream: str) -> Stream:
        known = self._streams.get(stream)
        if known is None:
            raise SbonError("stream-unknown", "no such stream on this node", where=stream)
        if known.kind != "source":
            raise BrokenInvariantError(f"{stream} is an operator's")
        return known

"""Frames on their way into a backup, of an operator or a source: they count once the record of their batch is written.

The record is synced, frames only with ``streams.fsync``. So a loss of power may leave a record whose last frames are missing. The
host sends all frames anew then. Until it has stored the next batch, nothing goes on from the record: its end could be of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from sbon_node.model.frames import Frame
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.workflow.context import Context
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError


class SentFrames(NamedTuple):
    """The ``frames`` of a call, undecoded, after number ``after`` of the stream of the operator or source ``backed``.

    ``state`` is the stream as its host sends it, ``stored`` that of the newest batch or transaction here, None if there is
    none, or frames of it are missing.
    """

    backed: str
    state: StreamState
    stored: StreamState | None
    after: int
    frames: Sequence[Any]


def keep_frames(context: Context, sent: SentFrames, sender: str, most_bytes: int) -> None:
    """Store the frames, whose times are of the clock of the node ``sender``.

    Raises :class:`SbonError`: ``frames-missing`` for those that would replace stored ones; ``backup-too-large`` where the stream
    would have more than ``most_bytes`` here; then the frames sent since the stored batch are deleted.
    """
    stored = sent.stored if sent.stored is not None and sent.stored.lineage == sent.state.lineage else None
    if stored is not None and sent.after < stored.tail.last:
        raise SbonError("frames-missing", f"frame {stored.tail.last} is stored for good", where=sent.backed)
    frames: list[Frame] = [decode_record(frame, Frame) for frame in sent.frames]
    own_ms = context.membership.clocks.own_ms
    dated = [msgspec.structs.replace(frame, born_ms=own_ms(frame.born_ms, name=sender)) for frame in frames]
    settled = 0 if stored is None else stored.tail.last
    try:
        context.outbox.backups.keep(sent.backed, sent.state, dated, sent.after, settled=settled, most_bytes=most_bytes)
    except SbonError as error:
        if error.code == "backup-too-large":
            context.counters.refuse("backup-too-large", peer=sender, backed=sent.backed, reason=str(error))
        raise


def lacks_frames(context: Context, backed: str, stored: StreamState | None) -> bool:
    """Return whether frames of the stored batch or transaction are missing here."""
    return stored is not None and context.outbox.backups.last(backed, stored.lineage) < stored.tail.last


def check_frames(context: Context, backed: str, stored: StreamState | None, *, lacking: bool) -> None:
    """Raise ``frames-missing`` where frames are missing, or were until the host began to send them anew: ``lacking``."""
    if lacking or lacks_frames(context, backed, stored):
        message, hint = f"frames that {context.name} has stored are missing", "its node has them, if it returns"
        raise SbonError("frames-missing", message, where=backed, hint=hint)


def check_end(sent: SentFrames) -> None:
    """Raise ``frames-missing`` unless the stream ends with the frames of this call, the last one of its batch."""
    if sent.state.tail.last != sent.after + len(sent.frames):
        raise SbonError("frames-missing", f"the stream goes on to {sent.state.tail.last}", where=sent.backed)

"""Backups that this node keeps, as it stores them. Frames on their way into one count once the record of their batch is written.

The record is synced, frames only with ``streams.fsync``. So a loss of power may leave a record whose last frames are missing. The
host sends all frames anew then. Until it has stored the next batch, nothing goes on from the record: its end could be of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from sbon_node.context import Context
from sbon_node.engine.alignment import Cut
from sbon_node.engine.manifest import CopiedFile
from sbon_node.hosting.operators.hosted_operator import HostedOperator
from sbon_node.model.frames import Frame
from sbon_node.net.peers import Expected
from sbon_node.streams.links.channel import race
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.ledger import Tail
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.durability import HOT
from sbon_protocol.api.measures import MeasureSums
from sbon_protocol.api.nodes import BACKUP, FOLLOWER, CapacityUse
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.api.states import operator_states
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError


class StoredBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Record of a batch: the stream once it is visible, and all files of the checkpoint. The frames are in the outbox."""

    batch: int
    cut: Cut
    stream: StreamState
    files: tuple[CopiedFile, ...]
    measures: MeasureSums | None = None


class StoredBackup(msgspec.Struct, frozen=True, kw_only=True):
    """The backup of an operator that ``host`` runs, and its newest batch, None before the first.

    ``lineages`` are those of the streams that it reads, ``lineage`` that of its own. Requests in an epoch below ``sealed`` are
    refused: their caller is not the host any more. ``lacks_frames`` once frames of the newest batch
    are missing, until the next one.
    """

    hosted: HostedOperator
    host: str
    instance: str
    lineages: dict[str, int]
    lineage: int
    sealed: int
    newest: StoredBatch | None = None
    lacks_frames: bool = False

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def spec(self) -> OperatorSpec:
        return self.hosted.spec

    @property
    def is_hot(self) -> bool:
        return self.spec.durability == HOT

    @property
    def settled(self) -> StreamState | None:
        """The stream up to the newest batch if all of its frames are here."""
        return None if self.newest is None or self.lacks_frames else self.newest.stream

    @property
    def stream(self) -> StreamState:
        """The stream as the operator goes on with it; readers may know its lineage before the first batch."""
        return self.newest.stream if self.newest is not None else StreamState(self.lineage, Tail(), 0, 0, ())

    @property
    def expected(self) -> Expected:
        return Expected(self.host, self.instance)


class StoredSource(msgspec.Struct, frozen=True, kw_only=True):
    """The backup of a source that ``host`` runs in ``epoch``, and its stream and position; None before the first transaction.

    Requests in an epoch below ``sealed`` are refused: their caller is not the host any more. The frames are in the outbox.
    ``lacks_frames`` once frames of the newest transaction are missing, until the next one.
    """

    source: SourceDeclaration
    host: str
    instance: str
    epoch: int
    sealed: int
    stream: StreamState | None = None
    position: bytes = b""
    lacks_frames: bool = False

    @property
    def id(self) -> str:
        return self.source.id

    @property
    def is_hot(self) -> bool:
        return False

    @property
    def settled(self) -> StreamState | None:
        """The stream up to the newest transaction if all of its frames are here."""
        return None if self.lacks_frames else self.stream

    @property
    def expected(self) -> Expected:
        return Expected(self.host, self.instance)


S = TypeVar("S", bound=StoredBackup | StoredSource)


class Kept(Generic[S]):
    """A backup of this node while it runs. ``heard_s`` is the time of the host's last request."""

    def __init__(self, stored: S, now_s: float) -> None:
        self.stored, self.heard_s = stored, now_s
        self.lock = asyncio.Lock()
        self.lost_since_s: float | None = None
        self.is_ending = self.goes_on = False
        """Whether it is deleted; whether an operator belongs to this node, and is to go on here."""
        self.is_yielded = False
        """Whether the host has asked this node to go on with an operator."""
        self._end_of_copy: asyncio.Future[str] | None = None

    @property
    def id(self) -> str:
        return self.stored.id

    async def copy(self, fetch: Coroutine[Any, Any, None]) -> None:
        """Fetch files of a batch under the lock, until :meth:`interrupt`: then raise :class:`SbonError` ``copy-stalled``."""
        self._end_of_copy = asyncio.get_running_loop().create_future()
        try:
            await race(fetch, _ended(self._end_of_copy, self.id))
        finally:
            self._end_of_copy = None

    def interrupt(self, reason: str) -> None:
        """End a copy under way, whose host has no right to it any more: others wait for the lock."""
        if self._end_of_copy is not None and not self._end_of_copy.done():
            self._end_of_copy.set_result(reason)


def use_of(spec: OperatorSpec) -> CapacityUse:
    """Return what the backup of an operator holds capacity for: a hot one runs here, too."""
    return FOLLOWER if spec.durability == HOT else BACKUP


async def _ended(end: asyncio.Future[str], operator: str) -> None:
    raise SbonError("copy-stalled", f"the copy is given up: {await end}", where=operator)


def files_of(context: Context, operator: str) -> Path:
    """Return the folder of the files of a backup, each under its digest."""
    return context.data_dir / "backups" / operator


def described(stored: StoredBackup, node: str) -> OperatorInfo:
    """Return the operator as users see it once the register names ``node``, which keeps the backup, as its host."""
    return OperatorInfo(
        id=stored.id,
        node=node,
        fragment=stored.spec.fragment,
        state=operator_states.STARTING,
        reason=f"goes on here after {stored.host}",
        epoch=stored.spec.epoch,
        durability=stored.spec.durability,
        stats=None,
    )


# -- frames on their way ------------------------------------------------------------------------------------------------


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

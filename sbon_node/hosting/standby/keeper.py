"""The keeper of backups: the side that stores what the hosts of operators or sources show, and goes on if a host is lost.

Adapters know what is stored of an operator (:mod:`sbon_node.hosting.standby.operator`) or of a source
(:mod:`sbon_node.hosting.standby.source`), and how it goes on here.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import msgspec
import structlog

from sbon_node.base.tasks import Tasks, check_cancelled
from sbon_node.context import Context, until_passed
from sbon_node.engine.alignment import Cut
from sbon_node.engine.manifest import CopiedFile
from sbon_node.hosting.components import HostedOperator
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.model.frames import Frame
from sbon_node.model.records import OperatorRegister, SourceRegister
from sbon_node.net.peers import Caller, Expected
from sbon_node.overlay.presence import AS_HOST
from sbon_node.ownership.acceptors import OVER
from sbon_node.streams.links.channel import race
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.ledger import Tail
from sbon_protocol.api.catalogue import SourceDeclaration, is_source
from sbon_protocol.api.durability import HOT
from sbon_protocol.api.measures import MeasureSums
from sbon_protocol.api.nodes import BACKUP, FOLLOWER, CapacityUse
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.states.kept_backup_states import (
    ADOPTING,
    ENDED,
    ENDING,
    LIFECYCLE,
    YIELDED,
    KeptBackupEvent,
    KeptBackupInstruction,
    KeptBackupState,
)
from sbon_protocol.calls import StoreBackup, StoreSource
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import BrokenInvariantError, SbonError

log = structlog.get_logger()

# -- Backups as they are stored ----------------------------------------------------------------------------------------

# Frames on their way into one count once the record of their batch is written. The record is synced, frames only with
# `streams.fsync`. So a loss of power may leave a record whose last frames are missing. The host sends all frames anew then.
# Until it has stored the next batch, nothing goes on from the record: its end could be of others.


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
    refused: their caller is not the host any more. ``lacks_frames``: some of the newest batch are missing, until the next.
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


R = TypeVar("R", bound=OperatorRegister | SourceRegister)


class Kept(Generic[S, R]):
    """A backup of this node while it runs. ``heard_s`` is the time of the host's last request."""

    def __init__(self, stored: S, now_s: float) -> None:
        self.stored, self.heard_s = stored, now_s
        self.lock = asyncio.Lock()
        self.state: KeptBackupState = LIFECYCLE.initial
        self.was_yielded = False
        """Whether the host had asked this node to go on, before that has begun."""
        self.lost_since_s: float | None = None
        self.register: R | None = None
        """The register as it was read last."""
        self._end_of_copy: asyncio.Future[str] | None = None

    @property
    def id(self) -> str:
        return self.stored.id

    def receive(self, event: KeptBackupEvent, kind: str) -> tuple[StrEnum, ...]:
        """Go to the state that the event chooses for a backup of this kind; return the next instructions."""
        row = LIFECYCLE.on(self.state, event, self.id, kind)
        if row.after != ADOPTING:
            self.was_yielded = row.after == YIELDED
        self.state = row.after
        return row.instructions

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


KeptOperator = Kept[StoredBackup, OperatorRegister]
KeptSource = Kept[StoredSource, SourceRegister]


def use_of(spec: OperatorSpec) -> CapacityUse:
    """Return what the backup of an operator holds capacity for: a hot one runs here, too."""
    return FOLLOWER if spec.durability == HOT else BACKUP


async def _ended(end: asyncio.Future[str], operator: str) -> None:
    raise SbonError("copy-stalled", f"the copy is given up: {await end}", where=operator)


def files_of(context: Context, operator: str) -> Path:
    """Return the folder of the files of a backup, each under its digest."""
    return context.data_dir / "backups" / operator


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


# -- The keeper --------------------------------------------------------------------------------------------------------

HOT_LOOKS = 10  # A backup of hot operators looks so many times as often.


class BackupKeeper(ABC, Generic[S, R]):
    """The backups of this node, by operator or source; ``known`` is filled with them.

    :data:`~sbon_protocol.api.states.kept_backup_states.LIFECYCLE` says what it does next with each.
    """

    noun: ClassVar[str]
    """The key of the operator or source in logs."""
    table: ClassVar[Literal["backup", "source-backup"]]
    """The table of backups in the store."""
    progress: ClassVar[tuple[str, ...]]
    """Fields of a stored backup that stay when its host asks for it again."""

    def __init__(self, context: Context, settings: BackupSettings, stored: type[S], known: dict[str, Kept[S, R]]) -> None:
        self._context, self._settings, self._tasks = context, settings, Tasks()
        self._known, now_s = known, context.clock.now()
        self._known.update((one, Kept(record, now_s)) for one, record in context.store.all(self.table, stored).items())

    def start(self) -> None:
        """Delete what no backup needs, and look after the hosts."""
        backups = self._context.outbox.backups
        for stream in backups.names():
            if is_source(stream) == (self.noun == "source") and stream not in self._known:
                backups.discard(stream)
        self._tasks.start("watch", self._run())

    async def close(self) -> None:
        await self._tasks.close()

    def stored(self, backed: str) -> S:
        """Return the backup of an operator or source, as it was stored last."""
        return self._known[backed].stored

    @property
    def me(self) -> Expected:
        return self._context.membership.expected(self._context.name)

    # -- what an adapter adds -----------------------------------------------------------------------------------------

    @abstractmethod
    async def _read(self, kept: Kept[S, R]) -> R:
        """Return the register."""

    @abstractmethod
    async def _not_read(self, kept: Kept[S, R], error: SbonError) -> None:
        """Judge a backup whose register could not be read."""

    @abstractmethod
    async def _claim(self, kept: Kept[S, R], register: R) -> R:
        """Make this node the host, in the next epoch."""

    @abstractmethod
    async def _go_on(self, kept: Kept[S, R], register: R) -> None:
        """Host it from what is stored on; repeated after a failure or a restart."""

    def _check_successor(self, kept: Kept[S, R], register: R) -> None:
        """Raise ``not-owner`` unless the register lets this node go on."""

    async def _release(self, kept: Kept[S, R]) -> None:
        """Release what the backup holds, before it is deleted."""

    # -- requests of hosts --------------------------------------------------------------------------------------------

    def _hosted_by(self, backed: str, caller: Caller) -> Kept[S, R]:
        """Return the backup of what the caller hosts; raise :class:`SbonError` ``backup-unknown`` or ``fenced``."""
        kept = self._known.get(backed)
        if kept is None:
            raise self._unknown(backed)
        if (caller.node, caller.instance) != kept.stored.expected:
            raise SbonError("fenced", f"{kept.stored.host} hosts it", where=backed)
        return kept

    def _check_open(self, kept: Kept[S, R], epoch: int) -> None:
        """Raise :class:`SbonError` ``backup-unknown`` for a deleted backup, and ``fenced`` for an epoch that is over."""
        if kept.state == ENDING or self._known.get(kept.id) is not kept:
            raise self._unknown(kept.id)
        if epoch < kept.stored.sealed:
            message = f"epoch {epoch} is over: {self._context.name} has heard of epoch {kept.stored.sealed}"
            raise SbonError("fenced", message, where=kept.id)

    def _unknown(self, backed: str) -> SbonError:
        return SbonError("backup-unknown", f"{self._context.name} keeps no backup of it", where=backed)

    async def _renew(self, kept: Kept[S, R], asked: S) -> S:
        """Store what the host says now, with what has come so far; return that."""
        async with kept.lock:
            self._check_open(kept, asked.sealed)
            stored, fields = kept.stored, {name: getattr(kept.stored, name) for name in self.progress}
            lacking = stored.lacks_frames or lacks_frames(self._context, kept.id, stored.settled)
            opened = msgspec.structs.replace(asked, sealed=max(stored.sealed, asked.sealed), lacks_frames=lacking, **fields)
            if opened != stored:
                self._put(kept, opened)
            kept.heard_s, kept.lost_since_s = self._context.clock.now(), None
            kept.receive(KeptBackupEvent.ASKED, self.noun)
            return kept.stored

    def _keep_frames(self, kept: Kept[S, R], call: StoreBackup | StoreSource, stream: StreamState, caller: Caller) -> None:
        """Store the frames of a call, which count once the record of their batch or transaction is stored."""
        sent = SentFrames(kept.id, stream, kept.stored.settled, call.after, call.frames)
        keep_frames(self._context, sent, caller.node, self._settings.stream_bytes)
        kept.receive(KeptBackupEvent.FED, self.noun)
        if not call.more:
            check_end(sent)

    def _put(self, kept: Kept[S, R], stored: S) -> None:
        self._context.store.put(self.table, kept.id, stored, sync=True)
        kept.stored = stored

    # -- hosts that are lost ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Look after the hosts, for ever."""
        clock, settings = self._context.clock, self._settings
        while True:
            for kept in list(self._known.values()):
                if self._known.get(kept.id) is kept:
                    await self._look(kept, clock.now())
            looks = HOT_LOOKS if any(kept.stored.is_hot for kept in self._known.values()) else 1
            await clock.sleep(settings.watch_s / looks * self._context.rng.uniform(0.5, 1.0))

    async def _look(self, kept: Kept[S, R], now_s: float) -> None:
        await self._drive(kept, self._seen(kept, now_s))

    def _seen(self, kept: Kept[S, R], now_s: float) -> KeptBackupEvent:
        if self._is_lost(kept):
            kept.lost_since_s = now_s if kept.lost_since_s is None else kept.lost_since_s
            is_over = now_s - kept.lost_since_s >= self._settings.recover_after_s
            return KeptBackupEvent.OVERDUE if is_over else KeptBackupEvent.MISSED
        kept.lost_since_s = None
        if now_s - kept.heard_s <= self._settings.check_s:
            return KeptBackupEvent.PRESENT
        kept.heard_s = now_s
        return KeptBackupEvent.SILENT

    def _is_lost(self, kept: Kept[S, R]) -> bool:
        """Return whether the host cannot go on, is dead, or is back without its disk."""
        return kept.state == YIELDED or self._context.presence.gone(AS_HOST, *kept.stored.expected) != ""

    async def _drive(self, kept: Kept[S, R], event: KeptBackupEvent) -> None:
        """Carry out the instructions that follow the event, and those that follow their outcome, until there are none."""
        outcome: KeptBackupEvent | None = event
        while outcome is not None:
            instructions, outcome = kept.receive(outcome, self.noun), None
            for instruction in instructions:
                outcome = await self._carry_out(instruction, kept)

    async def _carry_out(self, instruction: StrEnum, kept: Kept[S, R]) -> KeptBackupEvent | None:
        match instruction:
            case KeptBackupInstruction.LOOK:
                self._tasks.start(f"check {kept.id}", self._check(kept))
            case KeptBackupInstruction.NOTE_HOST:
                await self._note_host(kept)
            case KeptBackupInstruction.END_COPY:
                kept.interrupt(f"{kept.stored.host} {'cannot run it' if kept.was_yielded else 'is lost'}")
            case KeptBackupInstruction.RECOVER:
                self._tasks.start(f"recover {kept.id}", self._recover(kept))
            case KeptBackupInstruction.CLAIM_NOW:
                await self._take_over(kept)
            case KeptBackupInstruction.SEAL:
                check_frames(self._context, kept.id, kept.stored.stream, lacking=kept.stored.lacks_frames)
                self._put(kept, msgspec.structs.replace(kept.stored, sealed=_read(kept).epoch + 1))
            case KeptBackupInstruction.CLAIM:
                kept.register = await self._claim(kept, _read(kept))
                return KeptBackupEvent.CLAIMED
            case KeptBackupInstruction.ADOPT:
                await self._go_on(kept, _read(kept))
            case KeptBackupInstruction.RELEASE:
                await self._release(kept)
            case KeptBackupInstruction.DELETE:
                await self._delete(kept)
                return KeptBackupEvent.DELETED
        return None

    async def _check(self, kept: Kept[S, R]) -> None:
        """Look which nodes the register names; forget the backup if this is none of them."""
        heard_s = kept.heard_s
        try:
            register = await self._read(kept)
        except SbonError as error:
            check_cancelled()
            await self._not_read(kept, error)
            return
        if self._known.get(kept.id) is not kept:
            return
        if (register.host, register.instance) == self.me:
            await self._drive(kept, KeptBackupEvent.NAMED_HOST)
        elif (register.backup, register.backup_instance) != self.me:
            await self._forget(kept, heard_s)
        elif (register.host, register.instance) != kept.stored.expected:
            kept.register = register
            await self._drive(kept, KeptBackupEvent.NAMED_OTHER_HOST)

    async def _note_host(self, kept: Kept[S, R]) -> None:
        register = _read(kept)
        async with kept.lock:
            self._put(kept, msgspec.structs.replace(kept.stored, host=register.host, instance=register.instance))

    async def _recover(self, kept: Kept[S, R]) -> None:
        """Go on here, if the register lets this node."""
        named = {self.noun: kept.id}

        def waits(error: SbonError) -> None:
            log.warning("recovery-waits", code=error.code, reason=str(error), **named)

        try:
            await until_passed(self._context, partial(self._take_over, kept), waits)
        except SbonError as error:
            check_cancelled()
            log.warning("not-recovered", code=error.code, reason=str(error), **named)
            if error.code in OVER:
                await self._check(kept)

    async def _take_over(self, kept: Kept[S, R]) -> None:
        async with kept.lock:
            if kept.state == ENDING or self._known.get(kept.id) is not kept:
                return
            kept.register = await self._read(kept)
            await self._drive(kept, self._right(kept, kept.register))
            if kept.state == ENDED:
                epoch = kept.register.epoch
                log.warning(f"{self.noun}-recovered", host=kept.stored.host, epoch=epoch, **{self.noun: kept.id})

    def _right(self, kept: Kept[S, R], register: R) -> KeptBackupEvent:
        """Return by which right this node may go on; raise :class:`SbonError` ``not-owner``."""
        if (register.host, register.instance) == self.me:
            return KeptBackupEvent.CLAIMED
        self._check_successor(kept, register)
        return KeptBackupEvent.SUCCEEDS if self._is_lost(kept) else KeptBackupEvent.PRESENT

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _forget(self, kept: Kept[S, R], heard_s: float = math.inf) -> None:
        """Delete a backup, and release what it holds, unless its host has asked for it after ``heard_s``."""
        if heard_s == math.inf:
            kept.interrupt("the backup is not needed any more")
        async with kept.lock:
            if self._known.get(kept.id) is kept and kept.heard_s <= heard_s:
                await self._drive(kept, KeptBackupEvent.NOT_NEEDED)

    async def _delete(self, kept: Kept[S, R]) -> None:
        self._context.store.delete(self.table, kept.id)
        self._known.pop(kept.id, None)
        self._context.outbox.backups.discard(kept.id)


def _read(kept: Kept[S, R]) -> R:
    """Return the register that an earlier instruction has read."""
    if kept.register is None:
        raise BrokenInvariantError(f"the register of {kept.id} has not been read")
    return kept.register

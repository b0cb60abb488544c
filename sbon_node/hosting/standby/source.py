"""Backups of sources: each transaction goes to the backup first, and is shown, and confirmed to its sender, afterwards."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import structlog

from sbon_node.base.caller_checks import CallerChecks
from sbon_node.base.tasks import check_cancelled
from sbon_node.connectors.sources.runner import Waits
from sbon_node.context import Context
from sbon_node.hosting.moving.departures import PIECE_BYTES, PIECE_FRAMES
from sbon_node.hosting.standby.keeper import BackupKeeper, KeptSource, StoredSource
from sbon_node.hosting.standby.owner import FENCED, BackupChoice, BackupOwner
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.model.frames import Frame, FrameDraft
from sbon_node.model.records import SourceRegister
from sbon_node.net.peers import Caller, Expected
from sbon_node.ownership.acceptors import NOT_OWNER
from sbon_node.ownership.catalogue import Catalogue
from sbon_node.ownership.sources import SourceRegisters
from sbon_node.streams.outbox.copies import Growth, StreamState
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.durability import REPLICATED, BackupInfo
from sbon_protocol.api.states.kept_backup_states import KeptBackupEvent
from sbon_protocol.calls import OpenSourceBackup, SourceBackupOpened, StoreSource, YieldSource
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError

log = structlog.get_logger()

UNKNOWN = "record-unknown"
"""Refusal of a backup that reaches nobody who keeps the register: it says nothing of who hosts the source."""

# -- at the host ------------------------------------------------------------------------------------------------------


Moved = Callable[[SourceDeclaration, SourceRegister], None]
"""Called for a source that another node hosts by now."""


class Transaction(NamedTuple):
    """The next frames of a source, and the position of its connector after them."""

    drafts: Sequence[FrameDraft]
    position: bytes


class SourceBackup(BackupOwner[Transaction]):
    """Stores transactions of one source at another node."""

    noun, prefix, unit, hint = "source", "source-", "frame", "add a node"
    fencing = FENCED - {UNKNOWN}
    raised = frozenset({"frame-too-large"})

    def __init__(
        self, source: SourceDeclaration, context: Context, registers: SourceRegisters, settings: BackupSettings, moved: Moved
    ) -> None:
        super().__init__(source.id, context, BackupChoice(context, settings, insists=True))
        self._source, self._registers, self._moved = source, registers, moved
        self._epoch = 0
        self._sent = 0
        """The last frame sent since this node started: its backup has no later one, unless this node has lost it."""
        self._position: bytes | None = None

    # -- for the source's runner --------------------------------------------------------------------------------------

    async def begin(self, waits: Waits) -> int:
        """Return the epoch in which this node hosts the source, once known; raise ``fenced`` if another node does."""
        while True:
            try:
                register = await self._registers.begin(self._source)
                self._check_host(register)
                self._epoch = register.epoch
                return self._epoch
            except SbonError as error:
                check_cancelled()
                if error.code == "fenced":
                    raise
                waits(f"its register cannot be read: {error.message}")
            await self._context.clock.sleep(self._context.settings.retry_s)

    async def store(self, drafts: Sequence[FrameDraft], position: bytes, waits: Waits) -> None:
        """Return once the backup has stored the source's next frames with that position, however long that takes.

        Repeated after a failure of the local write, it is stored again. Raises ``fenced`` if this node may not show anything any
        more, and ``frame-too-large``.
        """
        while True:
            async with self._lock:
                if await self._try(Transaction(drafts, position)):
                    self._position = position
                    return
            waits(f"its backup has to store its rows first: {self._reason}")
            await self._context.clock.sleep(self._context.settings.retry_s)

    async def check(self) -> None:
        """Look whether this node still hosts the source, and whether its backup is still there; choose another if need be."""
        if self._lock.locked():
            return
        async with self._lock:
            position = self._context.outbox.position(self.id)
            if position is None or position != self._position:
                return  # A transaction is on its way from the backup to the disk of this node.
            if await self._still_hosts("source-not-checked") and not (
                self._backup is not None and self._context.presence.has(*self._backup)
            ):
                self._is_open = False
                await self._try(Transaction((), position))

    async def _still_hosts(self, event: str) -> bool:
        """Return whether the register can be read, and names this node."""
        try:
            self._check_host(await self._registers.read(self.id))
        except SbonError as error:
            check_cancelled()
            log.info(event, source=self.id, code=error.code, reason=str(error))
            return False
        return True

    def _check_host(self, register: SourceRegister) -> None:
        """Raise ``fenced``, and give the source up, if another node hosts it, or this node did so with another disk."""
        me = self._registers.me
        if (register.host, register.instance) == me:
            return
        if register.host != me.node:
            self._moved(self._source, register)
        message = f"it belongs to {register.host} in epoch {register.epoch}"
        if register.host == me.node:
            message = f"{register.backup} is its backup, and goes on with what this node has lost"
        raise SbonError("fenced", message, where=self.id)

    # -- finding a backup ---------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch in which this node hosts the source; 0 before it is known."""
        return self._epoch

    async def _register(self) -> SourceRegister:
        register = await self._registers.read(self.id)
        self._check_host(register)
        self._epoch = register.epoch
        return register

    async def _ask(self, backup: Expected) -> None:
        outbox = self._context.outbox
        call = OpenSourceBackup(self.id, self._epoch, outbox.lineage(self.id))
        opened = await self._context.ask(backup.node, call, SourceBackupOpened)
        if opened.last > max(outbox.latest(self.id), self._sent):
            await self._context.call(backup.node, YieldSource(self.id, self._epoch))
            raise SbonError("fenced", f"{backup.node} has frames up to {opened.last}, which this node has lost", where=self.id)
        self._answered(backup, opened.last)

    async def _set_backup(self, backup: Expected) -> int:
        await self._registers.set_backup(self.id, self._epoch, backup)
        return self._epoch

    async def _fence(self) -> str:
        await self._still_hosts("source-given-up")
        return "another node goes on with it"

    # -- storing ------------------------------------------------------------------------------------------------------

    async def _send(self, new: Transaction) -> int:
        """Send what the backup lacks: shown frames, if it is new, and those of the transaction."""
        assert self._backup is not None
        growth = self._context.outbox.sources.growth(self.id, new.drafts)
        last = growth.state.tail.last
        self._sent = max(self._sent, last)
        for after, frames in self._pieces(growth):
            more = after + len(frames) < last
            called = (self.id, self._epoch, growth.state, after, b"" if more else new.position)
            await self._context.call(self._backup.node, StoreSource(*called, frames=tuple(frames), more=more))
        self._last = last
        return last

    def _pieces(self, growth: Growth) -> Iterator[tuple[int, list[Frame]]]:
        """Yield numbers with the frames that follow them, up to the transaction's last one, which may have none."""
        sources, after, last = self._context.outbox.sources, self._last, growth.state.tail.last
        if after >= last:
            yield last, []
            return
        while after < last:
            after = max(after, sources.trimmed(self.id))
            if after < growth.after:
                frames = sources.retained(self.id, after, PIECE_BYTES)
            else:
                frames = _within(growth.frames[after - growth.after :])
            frames = frames[:PIECE_FRAMES]
            yield after, frames
            after += len(frames)

    def _confirms(self, shown: int) -> bool:
        return self._last >= shown

    def info(self) -> BackupInfo:
        return self._info(self._last if self._last >= 0 else None)


def _within(frames: Sequence[Frame]) -> list[Frame]:
    """Return the first frames, of at most :data:`PIECE_BYTES` together, but at least one."""
    kept, size = list[Frame](), 0
    for frame in frames:
        size += len(frame.payload)
        if kept and size > PIECE_BYTES:
            break
        kept.append(frame)
    return kept


class SourceBackups:
    """The backups at other nodes of this node's sources, by source in ``known``."""

    def __init__(self, context: Context, registers: SourceRegisters, settings: BackupSettings) -> None:
        self._context, self._registers, self._settings = context, registers, settings
        self.known: dict[str, SourceBackup] = {}

    def attach(self, source: SourceDeclaration) -> None:
        """Prepare for a replicated source that is about to be attached here, before the catalogue has it."""
        self._registers.attach(source.id)

    def of(self, source: SourceDeclaration, moved: Moved) -> SourceBackup | None:
        """Return the backup for a source that is about to run; None for a local one."""
        if source.durability != REPLICATED:
            return None
        backup = self.known[source.id] = SourceBackup(source, self._context, self._registers, self._settings, moved)
        return backup

    def close(self, source_id: str) -> None:
        """Forget the backup of a source that does not run any more; ignore an unknown one."""
        self.known.pop(source_id, None)


# -- at the backup ----------------------------------------------------------------------------------------------------


class SourceKeeper(BackupKeeper[StoredSource, SourceRegister]):
    """The backups of sources.

    ``check`` raises :class:`SbonError` for a source whose connector cannot run here, and returns whether it is finite; ``go_on``
    runs a source here, whose stream is open.
    """

    noun, progress = "source", ("stream", "position")
    table = "source-backup"

    def __init__(
        self,
        context: Context,
        catalogue: Catalogue,
        registers: SourceRegisters,
        settings: BackupSettings,
        check: Callable[[SourceDeclaration], bool],
        go_on: Callable[[SourceDeclaration], Awaitable[None]],
    ) -> None:
        super().__init__(context, settings, StoredSource, {})
        self._catalogue, self._registers, self._check_here, self._go_on_here = catalogue, registers, check, go_on
        self._checks = CallerChecks(context.settings.checks, "control.checks")
        handle = context.server.handle
        handle(OpenSourceBackup, self._open)
        handle(StoreSource, self._store)
        handle(YieldSource, self._yield)

    def kept(self) -> list[str]:
        """Return the sources of which this node keeps a backup."""
        return sorted(self._known)

    # -- requests of hosts --------------------------------------------------------------------------------------------

    async def _open(self, call: OpenSourceBackup, caller: Caller) -> SourceBackupOpened:
        source = self._catalogue.source(call.source)
        if source is None:
            raise SbonError("unknown-source", "the catalogue here has no such source", where=call.source)
        await self._check_caller(call, caller)
        asked = StoredSource(source=source, host=caller.node, instance=caller.instance, epoch=call.epoch, sealed=call.epoch)
        settled = (await self._renew(self._known.get(source.id) or self._begin(asked), asked)).settled
        return SourceBackupOpened(last=0 if settled is None or settled.lineage != call.lineage else settled.tail.last)

    async def _check_caller(self, call: OpenSourceBackup, caller: Caller) -> None:
        """Raise ``not-owner`` unless the caller hosts the source in its epoch, by the register that this node reads."""
        with self._checks.one(caller.node, call.source):
            register = await self._registers.read(call.source)
        if (register.host, register.instance, register.epoch) != (caller.node, caller.instance, call.epoch):
            message = f"{caller.node} does not host it in epoch {call.epoch}"
            self._context.counters.refuse("source-backup-refused", peer=caller.node, source=call.source, reason=message)
            raise SbonError(NOT_OWNER, message, where=call.source)

    def _begin(self, stored: StoredSource) -> KeptSource:
        self._context.drained.check()
        if stored.id in self._context.outbox.streams():
            raise SbonError("source-exists", f"{self._context.name} has it itself", where=stored.id)
        if len(self._known) >= self._settings.most_sources:
            hint = "raise backups.most_sources"
            message = f"{len(self._known)} backups of sources are kept"
            raise SbonError("too-many-backups", message, where=self._context.name, hint=hint)
        self._check_here(stored.source)
        kept = KeptSource(stored, self._context.clock.now())
        self._put(kept, stored)
        self._known[stored.id] = kept
        return kept

    async def _store(self, call: StoreSource, caller: Caller) -> None:
        kept = self._hosted_by(call.source, caller)
        stream: StreamState = decode_record(call.stream, StreamState)
        if len(stream.subscriptions) > self._context.stream_settings.max_subscribers or stream.tail.offsets:
            raise ProtocolError("invalid", "stream: a source's has no offsets, and not so many subscriptions")
        async with kept.lock:
            self._check_open(kept, call.epoch)
            self._keep_frames(kept, call, stream, caller)
            if not call.more:
                stored = msgspec.structs.replace(kept.stored, stream=stream, position=call.position, lacks_frames=False)
                self._put(kept, stored)
            kept.heard_s = self._context.clock.now()

    async def _yield(self, call: YieldSource, caller: Caller) -> None:
        kept = self._hosted_by(call.source, caller)
        self._check_open(kept, call.epoch)
        await self._drive(kept, KeptBackupEvent.YIELDS)

    # -- hosts that are lost ------------------------------------------------------------------------------------------

    async def _look(self, kept: KeptSource, now_s: float) -> None:
        if self._catalogue.is_detached(kept.id):
            self._tasks.start(f"forget {kept.id}", self._forget(kept))
        else:
            await super()._look(kept, now_s)

    def _is_lost(self, kept: KeptSource) -> bool:
        """Return whether the host is lost, or was refused already."""
        return kept.stored.sealed > kept.stored.epoch or super()._is_lost(kept)

    async def _read(self, kept: KeptSource) -> SourceRegister:
        return await self._registers.read(kept.id)

    async def _not_read(self, kept: KeptSource, error: SbonError) -> None:
        log.info("source-backup-not-checked", source=kept.id, code=error.code, reason=str(error))

    def _check_successor(self, kept: KeptSource, register: SourceRegister) -> None:
        if (register.backup, register.backup_instance) != self.me:
            raise SbonError(NOT_OWNER, f"{register.host} hosts it, with another backup", where=kept.id)

    async def _claim(self, kept: KeptSource, register: SourceRegister) -> SourceRegister:
        return await self._registers.take_over(kept.id, register.host, register.epoch)

    async def _go_on(self, kept: KeptSource, register: SourceRegister) -> None:
        outbox, stored, epoch = self._context.outbox, kept.stored, register.epoch
        source = msgspec.structs.replace(stored.source, node=self._context.name, epoch=epoch)
        if kept.id not in outbox.streams():
            finite = self._check_here(source)
            if stored.stream is None:
                raise SbonError("frames-missing", "nothing of it has come", where=kept.id)
            outbox.backups.release(kept.id, stored.stream)
            outbox.sources.adopt(kept.id, stored.stream, stored.position, finite=finite, epoch=epoch)
        await self._go_on_here(source)

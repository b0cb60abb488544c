"""Backups that this node keeps for the hosts of sources, and the recovery of sources whose host is lost."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import structlog

from sbon_node.base.caller_checks import CallerChecks
from sbon_node.base.tasks import Tasks, check_cancelled
from sbon_node.hosting.standby.callers import check_epoch, kept_for
from sbon_node.hosting.standby.kept_frames import SentFrames, check_end, check_frames, keep_frames, lacks_frames
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.net.peers import Caller, Expected
from sbon_node.overlay.presence import AS_HOST
from sbon_node.ownership.catalogue import Catalogue
from sbon_node.ownership.sources import SourceRegisters
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.workflow.context import Context
from sbon_node.workflow.retry import until_passed
from sbon_protocol.api.catalogue import SourceDeclaration, is_source
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.source_backup import OpenSourceBackup, SourceBackupOpened, StoreSource, YieldSource

log = structlog.get_logger()


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
    def settled(self) -> StreamState | None:
        """The stream up to the newest transaction if all of its frames are here."""
        return None if self.lacks_frames else self.stream

    @property
    def expected(self) -> Expected:
        return Expected(self.host, self.instance)


class KeptSource:
    """A backup of this node while it runs. ``heard_s`` is the time of the host's last request."""

    def __init__(self, stored: StoredSource, now_s: float) -> None:
        self.stored, self.heard_s = stored, now_s
        self.lock = asyncio.Lock()
        self.lost_since_s: float | None = None

    @property
    def id(self) -> str:
        return self.stored.source.id


class SourceBackupKeeper:
    """The backups of sources by id. ``check`` raises :class:`SbonError` for a source whose connector cannot run here, and returns
    whether it is finite; ``go_on`` runs a source here, whose stream is open.
    """

    def __init__(
        self,
        context: Context,
        catalogue: Catalogue,
        registers: SourceRegisters,
        settings: BackupSettings,
        check: Callable[[SourceDeclaration], bool],
        go_on: Callable[[SourceDeclaration], Awaitable[None]],
    ) -> None:
        self._context, self._catalogue, self._registers, self._settings = context, catalogue, registers, settings
        self._check_here, self._go_on_here = check, go_on
        self._tasks = Tasks()
        self._checks = CallerChecks(context.settings.checks, "control.checks")
        now_s = context.clock.now()
        self._known = {one: KeptSource(stored, now_s) for one, stored in context.store.all("source-backup", StoredSource).items()}
        handle = context.server.handle
        handle(OpenSourceBackup, self._open)
        handle(StoreSource, self._store)
        handle(YieldSource, self._yield)

    def start(self) -> None:
        """Delete what no backup needs, and look after the hosts."""
        for stream in self._context.outbox.backups.names():
            if is_source(stream) and stream not in self._known:
                self._context.outbox.backups.discard(stream)
        self._tasks.start("watch", self._run())

    async def close(self) -> None:
        await self._tasks.close()

    def kept(self) -> list[str]:
        """Return the sources of which this node keeps a backup."""
        return sorted(self._known)

    # -- requests of hosts --------------------------------------------------------------------------------------------

    async def _open(self, call: OpenSourceBackup, caller: Caller) -> SourceBackupOpened:
        source = self._catalogue.source(call.source)
        if source is None:
            raise SbonError("unknown-source", "the catalogue here has no such source", where=call.source)
        await self._check_caller(call, caller)
        kept = self._known.get(call.source)
        if kept is None:
            kept = self._begin(source, call, caller)
        async with kept.lock:
            self._check_open(kept, call.epoch)
            stored = kept.stored
            sealed = max(stored.sealed, call.epoch)
            opened = msgspec.structs.replace(
                stored,
                source=source,
                host=caller.node,
                instance=caller.instance,
                epoch=call.epoch,
                sealed=sealed,
                lacks_frames=stored.lacks_frames or lacks_frames(self._context, kept.id, stored.settled),
            )
            if opened != stored:
                self._put(kept, opened)
            kept.heard_s, kept.lost_since_s = self._context.clock.now(), None
            settled = kept.stored.settled
            return SourceBackupOpened(last=0 if settled is None or settled.lineage != call.lineage else settled.tail.last)

    async def _check_caller(self, call: OpenSourceBackup, caller: Caller) -> None:
        """Raise ``not-owner`` unless the caller hosts the source in its epoch, by the register that this node reads."""
        with self._checks.one(caller.node, call.source):
            register = await self._registers.read(call.source)
        if (register.host, register.instance, register.epoch) != (caller.node, caller.instance, call.epoch):
            message = f"{caller.node} does not host it in epoch {call.epoch}"
            self._context.counters.refuse("source-backup-refused", peer=caller.node, source=call.source, reason=message)
            raise SbonError("not-owner", message, where=call.source)

    def _begin(self, source: SourceDeclaration, call: OpenSourceBackup, caller: Caller) -> KeptSource:
        self._context.drained.check()
        if source.id in self._context.outbox.streams():
            raise SbonError("source-exists", f"{self._context.name} has it itself", where=source.id)
        if len(self._known) >= self._settings.most_sources:
            hint = "raise backups.most_sources"
            message = f"{len(self._known)} backups of sources are kept"
            raise SbonError("too-many-backups", message, where=self._context.name, hint=hint)
        self._check_here(source)
        host = caller.node, caller.instance
        stored = StoredSource(source=source, host=host[0], instance=host[1], epoch=call.epoch, sealed=call.epoch)
        kept = KeptSource(stored, self._context.clock.now())
        self._put(kept, stored)
        self._known[source.id] = kept
        return kept

    def _check_open(self, kept: KeptSource, epoch: int) -> None:
        if self._known.get(kept.id) is not kept:
            raise SbonError("backup-unknown", f"{self._context.name} keeps no backup of it", where=kept.id)
        check_epoch(kept.stored, epoch, kept.id, self._context.name)

    def _named(self, source: str, caller: Caller) -> KeptSource:
        return kept_for(self._known, source, caller, self._context.name)

    async def _store(self, call: StoreSource, caller: Caller) -> None:
        kept = self._named(call.source, caller)
        stream: StreamState = decode_record(call.stream, StreamState)
        if len(stream.subscriptions) > self._context.stream_settings.max_subscribers or stream.tail.offsets:
            raise ProtocolError("invalid", "stream: a source's has no offsets, and not so many subscriptions")
        async with kept.lock:
            self._check_open(kept, call.epoch)
            sent = SentFrames(call.source, stream, kept.stored.settled, call.after, call.frames)
            keep_frames(self._context, sent, caller.node, self._settings.stream_bytes)
            if not call.more:
                check_end(sent)
                stored = msgspec.structs.replace(kept.stored, stream=stream, position=call.position, lacks_frames=False)
                self._put(kept, stored)
            kept.heard_s = self._context.clock.now()

    async def _yield(self, call: YieldSource, caller: Caller) -> None:
        kept = self._named(call.source, caller)
        self._check_open(kept, call.epoch)
        await self._take_over(kept, is_yielded=True)

    def _put(self, kept: KeptSource, stored: StoredSource) -> None:
        self._context.store.put("source-backup", kept.id, stored, sync=True)
        kept.stored = stored

    # -- hosts that are lost ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Look after the hosts of the sources, for ever."""
        clock, settings = self._context.clock, self._settings
        while True:
            for kept in list(self._known.values()):
                self._look(kept, clock.now())
            await clock.sleep(settings.watch_s * self._context.rng.uniform(0.5, 1.0))

    def _look(self, kept: KeptSource, now_s: float) -> None:
        if self._catalogue.is_detached(kept.id):
            self._tasks.start(f"forget {kept.id}", self._forget(kept))
        elif self._is_lost(kept):
            kept.lost_since_s = now_s if kept.lost_since_s is None else kept.lost_since_s
            if now_s - kept.lost_since_s >= self._settings.recover_after_s:
                self._tasks.start(f"recover {kept.id}", self._recover(kept))
        else:
            kept.lost_since_s = None
            if now_s - kept.heard_s > self._settings.check_s:
                kept.heard_s = now_s
                self._tasks.start(f"check {kept.id}", self._check(kept))

    def _is_lost(self, kept: KeptSource) -> bool:
        """Return whether the host is dead, or is back without its disk, or was refused already."""
        is_refused = kept.stored.sealed > kept.stored.epoch
        return is_refused or self._context.presence.gone(AS_HOST, *kept.stored.expected) != ""

    async def _check(self, kept: KeptSource) -> None:
        """Forget a backup that the source's register does not name; go on with a source of which this node is the host."""
        heard_s = kept.heard_s
        try:
            register = await self._registers.read(kept.id)
        except SbonError as error:
            check_cancelled()
            log.info("source-backup-not-checked", source=kept.id, code=error.code, reason=str(error))
            return
        if (register.host, register.instance) == self._registers.me:
            await self._recover(kept)
        elif (register.backup, register.backup_instance) != self._registers.me:
            await self._forget(kept, heard_s)

    async def _recover(self, kept: KeptSource) -> None:
        """Go on with the source here, if the register lets this node."""

        def waits(error: SbonError) -> None:
            log.warning("recovery-waits", source=kept.id, code=error.code, reason=str(error))

        try:
            await until_passed(self._context, partial(self._take_over, kept), waits)
        except SbonError as error:
            check_cancelled()
            log.warning("not-recovered", source=kept.id, code=error.code, reason=str(error))
            if error.code == "not-owner":
                await self._check(kept)

    async def _take_over(self, kept: KeptSource, *, is_yielded: bool = False) -> None:
        async with kept.lock:
            if self._known.get(kept.id) is not kept:
                return
            register = await self._registers.read(kept.id)
            if (register.host, register.instance) == self._registers.me:
                epoch = register.epoch
            else:
                if (register.backup, register.backup_instance) != self._registers.me:
                    raise SbonError("not-owner", f"{register.host} hosts it, with another backup", where=kept.id)
                if not is_yielded and not self._is_lost(kept):
                    return
                check_frames(self._context, kept.id, kept.stored.stream, lacking=kept.stored.lacks_frames)
                # First nobody else can show anything any more, then this node is the host.
                self._put(kept, msgspec.structs.replace(kept.stored, sealed=register.epoch + 1))
                epoch = await self._registers.take_over(kept.id, register.host, register.epoch)
            await self._go_on(kept, epoch)
        log.warning("source-recovered", source=kept.id, host=kept.stored.host, epoch=epoch)

    async def _go_on(self, kept: KeptSource, epoch: int) -> None:
        """Host the source from the newest stored transaction on; repeated after a failure or a restart."""
        outbox, stored, me = self._context.outbox, kept.stored, self._context.name
        source = msgspec.structs.replace(stored.source, node=me, epoch=epoch)
        if kept.id not in outbox.streams():
            finite = self._check_here(source)
            if stored.stream is None:
                raise SbonError("frames-missing", "nothing of it has come", where=kept.id)
            outbox.backups.release(kept.id, stored.stream)
            outbox.sources.adopt(kept.id, stored.stream, stored.position, finite=finite, epoch=epoch)
        await self._go_on_here(source)
        self._delete(kept)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _forget(self, kept: KeptSource, heard_s: float = math.inf) -> None:
        """Delete a backup, unless its host has asked for it after ``heard_s``."""
        async with kept.lock:
            if self._known.get(kept.id) is kept and kept.heard_s <= heard_s:
                self._delete(kept)

    def _delete(self, kept: KeptSource) -> None:
        self._context.store.delete("source-backup", kept.id)
        self._known.pop(kept.id, None)
        self._context.outbox.backups.discard(kept.id)

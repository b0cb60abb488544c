"""Backups of operators: a committed batch becomes visible once the backup has stored its frames and its checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterator
from enum import StrEnum
from functools import partial

import msgspec
import structlog

from sbon_node.base.tasks import Tasks, check_cancelled
from sbon_node.context import Context
from sbon_node.engine.alignment import Cut
from sbon_node.engine.copies.listing import CopyLimits, check_list
from sbon_node.engine.copies.received_files import ReceivedFiles
from sbon_node.engine.copies.receiver import CopyReceiver, CopySource
from sbon_node.engine.copies.sender import CopySender
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.manifest import CopiedFile
from sbon_node.hosting.components import HostedComponent, HostedOperator, acceptors_of, checkpoint_of, starting_here
from sbon_node.hosting.moving.arrivals import HostCheck, check_cut, check_stream
from sbon_node.hosting.moving.ends import copy_source
from sbon_node.hosting.operators.host import OperatorHost
from sbon_node.hosting.operators.ports import OperatorPorts
from sbon_node.hosting.standby.followers import BackupFollowers
from sbon_node.hosting.standby.keeper import BackupKeeper, KeptOperator, StoredBackup, StoredBatch, files_of, use_of
from sbon_node.hosting.standby.owner import FENCED, BackupChoice, BackupOwner, CheckpointCopy, missing_from, pieces, superseded
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.model.records import OperatorRegister
from sbon_node.net.peers import Caller, Expected
from sbon_node.ownership.acceptors import OVER
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.ledger import NO_BATCH
from sbon_node.streams.port import Backup
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.durability import BY_FOLLOWER, HOT, LOCAL, BackupInfo
from sbon_protocol.api.measures import MeasureSums
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.api.states.backup_states import BackupEvent
from sbon_protocol.api.states.kept_backup_states import KeptBackupEvent
from sbon_protocol.api.subscribers import BACKUP
from sbon_protocol.calls import BackupOpened, BackupStored, DestroyComponents, DropBackup, OpenBackup, StoreBackup, YieldOperator
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

# -- at the host ------------------------------------------------------------------------------------------------------


class OperatorBackup(BackupOwner[int]):
    """Stores batches of one operator at another node."""

    noun, unit, hint = "operator", "batch", "add a node, or submit with durability local"

    def __init__(self, spec: OperatorSpec, acceptors: tuple[Acceptor, ...], parts: OperatorBackups, ports: OperatorPorts) -> None:
        super().__init__(spec.id, parts.context, BackupChoice(parts.context, parts.settings))
        self._spec, self._acceptors, self._parts, self._ports = spec, acceptors, parts, ports
        folder = parts.context.data_dir / "copies" / f"backup of {spec.id}"
        self._copy = CheckpointCopy(spec.id, parts.engine, folder, parts.context.executor)
        self._known: frozenset[str] = frozenset()
        """Digests of the files that the backup has."""
        self._lineages: dict[str, int] = {}
        """Lineages of the inputs that it has; the operator learns them after its first start."""
        self._newest = self._stored = -1
        self._had: int | None = None
        """The newest batch that the backup has from before this session."""
        self._follower = BackupStored()
        """The newest reply of the backup: how a hot operator's follower is."""

    # -- what its operator asks ---------------------------------------------------------------------------------------

    async def store(self, batch: int) -> None:
        """Return once the backup has stored all up to the committed ``batch``; raise ``fenced`` if nothing more may be shown."""
        self._newest = max(self._newest, batch)
        await self._until(lambda: self._stored >= batch)

    async def prepare(self) -> None:
        """Find a backup before the first batch, and give it what was shown before."""
        self._newest = max(self._newest, self._context.outbox.visible_batch(self.id))
        try:
            await self._until(lambda: self._is_named and self._stored >= self._newest)
        except SbonError as error:
            log.info("backup-not-prepared", operator=self.id, code=error.code, reason=str(error))

    async def _until(self, done: Callable[[], bool]) -> None:
        pause_s = self._context.settings.retry_s
        while not done():
            async with self._lock:
                if not done() and await self._try(self._newest):
                    continue
            if not done():
                await self._context.clock.sleep(pause_s)

    async def _try(self, new: int) -> bool:
        self._is_open = self._is_open and self._lineages == self._lineages_now()
        is_stored = await super()._try(new)
        if is_stored:
            self._stored = new
        return is_stored

    def _failed(self, error: SbonError, instruction: StrEnum) -> BackupEvent:
        if superseded(error):  # The engine goes on while a batch waits for the backup, and deletes its files.
            self._newest = max(self._newest, self._parts.engine.committed(self.id))
            return BackupEvent.FAILED
        return super()._failed(error, instruction)

    # -- finding one --------------------------------------------------------------------------------------------------

    async def check(self) -> bool:
        """Stop the operator if another node hosts it by now: its backup may have taken over while this node was cut off.

        Return whether the backup is away: it is to be asked again, or replaced, though the operator shows nothing new.
        """
        try:
            await self._register()
        except SbonError as error:
            check_cancelled()
            if error.code in FENCED:
                self._ports.fence(self.id)
            return False
        if self._lock.locked() or self._backup is None or not self._context.presence.away(self._backup.node):
            return False
        self._had = self._stored if self._stored >= 0 else self._had
        self._stored, self._is_open = -1, False
        return True

    async def yield_operator(self) -> None:
        """Ask the backup to go on with the operator, which this node's engine does not run."""
        try:
            register = await self._register()
            if register.backup:
                log.warning("operator-yielded", operator=self.id, backup=register.backup)
                await self._context.call(register.backup, YieldOperator(self.id, register.epoch))
        except SbonError as error:
            check_cancelled()
            log.warning("operator-not-yielded", operator=self.id, code=error.code, reason=str(error))

    @property
    def epoch(self) -> int:
        return self._context.outbox.epoch(self.id)

    async def _register(self) -> OperatorRegister:
        """Return the register; raise ``not-owner`` if it names another host, or another epoch."""
        register = await self._parts.owners.read(self._spec.query, self.id)
        if (register.host, register.epoch) != (self._context.name, self.epoch):
            raise SbonError("not-owner", f"it belongs to {register.host} in epoch {register.epoch}", where=self.id)
        return register

    async def _ask(self, backup: Expected) -> None:
        spec = msgspec.structs.replace(self._ports.present(self._spec), epoch=self.epoch)
        lineages = self._lineages_now()
        call = OpenBackup(spec, self._acceptors, lineages, self._context.outbox.lineage(self.id))
        opened = await self._context.ask(backup.node, call, BackupOpened)
        self._answered(backup, opened.last)
        self._lineages, self._known, self._had = lineages, frozenset(), opened.batch

    async def _name(self, shown: int) -> None:
        known = self._known
        await super()._name(shown)
        self._known = known

    async def _set_backup(self, backup: Expected) -> int:
        epoch = self.epoch
        await self._parts.owners.set_backup(self._spec.query, self.id, epoch, backup.node, backup.instance)
        return epoch

    async def _fence(self) -> str:
        self._ports.fence(self.id)
        return "its backup says"

    def _lineages_now(self) -> dict[str, int]:
        return {one.stream: self._ports.lineages.of(self.id, one.stream) for one in self._spec.inputs}

    def _give_up(self) -> None:
        super()._give_up()
        self._stored, self._had = -1, None
        self._hear(BackupStored())

    # -- storing ------------------------------------------------------------------------------------------------------

    async def _send(self, new: int) -> int:
        if new > self._stored:
            await self._send_batch(new)
        return max(new, self._stored)

    async def _send_batch(self, batch: int) -> None:
        assert self._backup is not None
        context, operator, node = self._context, self.id, self._backup.node
        manifest = await self._copy.of(batch)
        new = missing_from(manifest, self._known)
        inline = sum(file.bytes for file in new) <= self._parts.settings.inline_bytes
        contents = await context.executor(lambda: tuple(self._copy.read(file) for file in new)) if inline else ()
        attempt = "" if inline else f"backup {operator} {batch}"
        if attempt:
            self._parts.sender.offer(attempt, operator, self._backup, self._copy.folder, new)
        before = await context.executor(partial(self._copy.before, batch))
        call = partial(StoreBackup, operator, self.epoch, batch, manifest.cut, before=before)
        complete = {
            "files": manifest.files,
            "contents": contents,
            "offered": attempt,
            "measures": self._ports.measures.sums(operator),
        }
        stored = BackupStored()
        try:
            for piece in pieces(context.outbox, operator, batch, self._last):
                rest = {"more": True} if piece.more else complete
                sent = call(stream=piece.state, after=piece.after, frames=tuple(piece.frames), **rest)
                extra_s = self._parts.settings.store_timeout_s if attempt and not piece.more else 0.0
                stored = await context.ask(node, sent, BackupStored, timeout_s=context.settings.call_timeout_s + extra_s)
                last = piece.state.tail.last
        finally:
            if attempt:
                self._parts.sender.withdraw(attempt)
        self._known, self._last = frozenset(file.digest for file in manifest.files), last
        self._hear(stored)

    def _hear(self, stored: BackupStored) -> None:
        """Keep the input that the backup's follower needs, which begins after what is visible now."""
        if self._spec.durability == HOT:
            self._follower = stored
            if (port := self._ports.open.get(self.id)) is not None:
                port.pin(stored.needs, BACKUP)

    def _confirms(self, shown: int) -> bool:
        if self._had is not None and self._had >= shown:
            return True
        self._stored = -1
        return False

    # -- for users, and the end ---------------------------------------------------------------------------------------

    def info(self) -> BackupInfo:
        info = self._info(self._stored if self._stored >= 0 else self._had)
        follows = self._follower.follows if self._spec.durability == HOT else None
        return msgspec.structs.replace(info, follows=follows, follows_not=self._follower.reason)

    async def close(self) -> None:
        await self._copy.clear()

    def drop(self) -> None:
        """Tell the backup that the operator is over."""
        if self._backup is not None and not self._context.presence.away(self._backup.node):
            self._parts.tasks.start(f"drop {self.id}", self._drop(self._backup.node))

    async def _drop(self, node: str) -> None:
        try:
            await self._context.call(node, DropBackup(self._spec.query, self.id))
        except SbonError as error:  # It asks by itself, in time.
            log.info("backup-not-dropped", operator=self.id, backup=node, code=error.code)


class OperatorBackups:
    """The backups at other nodes of this node's operators: :class:`sbon_node.hosting.operators.ports.Backups`."""

    def __init__(
        self, context: Context, engine: MovingEngine, sender: CopySender, owners: OperatorRegisters, settings: BackupSettings
    ) -> None:
        self.context, self.engine, self.sender, self.owners, self.settings = context, engine, sender, owners, settings
        self.tasks = Tasks()
        self.known: dict[str, OperatorBackup] = {}
        self.recovered: dict[str, str] = {}
        """How operators that go on here were taken over, by operator."""
        self.stuck_since_s: dict[str, float] = {}
        """Since when the engine has not run, by operators that wait for it."""

    def of(self, spec: OperatorSpec, acceptors: tuple[Acceptor, ...], ports: OperatorPorts) -> Backup | None:
        if spec.durability == LOCAL:
            return None
        backup = self.known[spec.id] = OperatorBackup(spec, acceptors, self, ports)
        return backup

    def begin(self, operator: str) -> None:
        if (backup := self.known.get(operator)) is not None:
            self.tasks.start(f"prepare {operator}", backup.prepare())

    def info(self, operator: str) -> BackupInfo | None:
        if (backup := self.known.get(operator)) is None:
            return None
        return msgspec.structs.replace(backup.info(), recovered=self.recovered.get(operator, "")[:MAX_REASON])

    async def close(self, operator: str) -> None:
        await self.tasks.stop(f"prepare {operator}")
        if (backup := self.known.get(operator)) is not None:
            await backup.close()

    def drop(self, operator: str) -> None:
        if (backup := self.known.get(operator)) is not None:
            backup.drop()

    def forget(self, operator: str) -> None:
        self.known.pop(operator, None)
        self.stuck_since_s.pop(operator, None)
        self.recovered.pop(operator, None)


# -- at the backup ----------------------------------------------------------------------------------------------------


class OperatorKeeper(BackupKeeper[StoredBackup, OperatorRegister]):
    """The backups of operators. ``warm`` prepares the engine for an operator, which then goes on sooner."""

    noun, progress = "operator", ("newest",)
    table = "backup"

    def __init__(
        self,
        context: Context,
        operators: OperatorHost,
        receiver: CopyReceiver,
        owners: OperatorRegisters,
        settings: BackupSettings,
        host_check: HostCheck,
        warm: Callable[[OperatorSpec], Awaitable[None]],
        limits: CopyLimits,
        followers: BackupFollowers,
        known: dict[str, KeptOperator],
        recovered: dict[str, str],
    ) -> None:
        """Create it; ``recovered`` is told by operator how those that go on here were taken over."""
        super().__init__(context, settings, StoredBackup, known)
        self._operators, self._receiver, self._owners = operators, receiver, owners
        self._host_check, self._warm, self._limits, self._followers = host_check, warm, limits, followers
        self._recovered = recovered
        for kept in self._known.values():
            operators.expect(kept.stored.hosted, use_of(kept.stored.spec))
        handle = context.server.handle
        handle(OpenBackup, self._open)
        handle(StoreBackup, self._store)
        handle(DropBackup, self._drop)
        handle(YieldOperator, self._yield)

    def start(self) -> None:
        folder = files_of(self._context, "")
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name not in self._known:
                shutil.rmtree(path, ignore_errors=True)
        super().start()

    async def close(self) -> None:
        await super().close()
        await self._followers.close()

    def components(self) -> Iterator[HostedComponent]:
        for operator, kept in sorted(self._known.items()):
            yield HostedComponent(kept.stored.spec.query, operator, kept.stored.hosted.acceptors)

    def spare(self) -> set[str]:
        """Return the operators whose hosts are there: they can find another node that keeps their backup."""
        return {operator for operator, kept in self._known.items() if not self._context.presence.away(kept.stored.host)}

    def describe(self, query: str) -> list[OperatorInfo]:
        """Return the operators of a query with a backup here: what users see once the register names this node as the host."""
        kept = (one.stored for _, one in sorted(self._known.items()))
        me = self._context.name
        return [starting_here(one.spec, me, f"goes on here after {one.host}") for one in kept if one.spec.query == query]

    async def destroy(self, call: DestroyComponents) -> None:
        """Forget the backups among the components of a query that is over."""
        for operator in call.components:
            kept = self._known.get(operator)
            if kept is not None and kept.stored.spec.query == call.query:
                await self._forget(kept)

    # -- requests of hosts --------------------------------------------------------------------------------------------

    async def _open(self, call: OpenBackup, caller: Caller) -> BackupOpened:
        spec: OperatorSpec = decode_record(call.spec, OperatorSpec)
        hosted = HostedOperator(spec=spec, acceptors=acceptors_of(call.acceptors, spec.id))
        await self._host_check.hosts_in(spec, caller)
        asked = StoredBackup(
            hosted=hosted,
            host=caller.node,
            instance=caller.instance,
            lineages=call.lineages,
            lineage=call.stream_lineage,
            sealed=spec.epoch,
        )
        stored = await self._renew(self._known.get(spec.id) or await self._begin(asked, caller), asked)
        if stored.newest is None or stored.newest.stream.lineage != call.stream_lineage or stored.lacks_frames:
            return BackupOpened(last=0)
        return BackupOpened(batch=stored.newest.batch, last=stored.newest.stream.tail.last)

    async def _begin(self, stored: StoredBackup, caller: Caller) -> KeptOperator:
        spec = stored.spec
        if self._operators.get(spec.id) is not None or spec.id in self._operators.arriving:
            raise SbonError("operator-exists", f"{spec.id} is at {self._context.name} itself", where=spec.id)
        if len(self._known) >= self._settings.most:
            hint = "raise backups.most"
            raise SbonError("too-many-backups", f"{len(self._known)} backups are kept", where=self._context.name, hint=hint)
        kept = self._known[spec.id] = KeptOperator(stored, self._context.clock.now())
        try:
            await self._operators.admit(stored.hosted, caller, use_of(spec), "backup", stored)
        except BaseException:
            if self._known.get(spec.id) is kept:
                del self._known[spec.id]
            raise
        self._tasks.start(f"warm {spec.id}", self._warm_up(spec))
        return kept

    async def _warm_up(self, spec: OperatorSpec) -> None:
        try:
            await self._warm(spec)
        except SbonError as error:
            log.warning("backup-not-warm", operator=spec.id, code=error.code, reason=str(error))

    async def _store(self, call: StoreBackup, caller: Caller) -> BackupStored:
        kept = self._hosted_by(call.operator, caller)
        stream: StreamState = decode_record(call.stream, StreamState)
        check_stream(kept.stored.spec, stream, max_subscribers=self._context.stream_settings.max_subscribers)
        async with kept.lock:
            self._check_open(kept, call.epoch)
            kept.heard_s = self._context.clock.now()
            self._keep_frames(kept, call, stream, caller)
            if call.more:
                return BackupStored()
            batch = await self._complete(kept, call, stream)
            self._put(kept, msgspec.structs.replace(kept.stored, newest=batch, lacks_frames=False))
            kept.heard_s = self._context.clock.now()
            keep = frozenset(file.digest for file in batch.files)
            await self._context.executor(partial(ReceivedFiles(files_of(self._context, call.operator)).keep_only, keep))
            return self._followers.stored(kept, call.before)

    async def _complete(self, kept: KeptOperator, call: StoreBackup, stream: StreamState) -> StoredBatch:
        """Store the files of the batch, and return its record."""
        cut: Cut = decode_record(call.cut, Cut)
        check_cut(kept.stored.spec, cut, [call.before] if call.before else [])
        files: tuple[CopiedFile, ...] = tuple(decode_record(file, CopiedFile) for file in call.files)
        check_list(files, self._limits)
        before = frozenset(file.digest for file in kept.stored.newest.files) if kept.stored.newest is not None else frozenset()
        digests = frozenset(file.digest for file in files)
        received = ReceivedFiles(files_of(self._context, call.operator), before | digests)
        executor = self._context.executor
        if call.contents:
            await executor(partial(received.store, call.contents, files))
        if call.offered:
            source = copy_source(self._context, call.operator, call.offered, kept.stored.host)
            await kept.copy(self._fetch(source, received))
        if lacking := await executor(partial(received.lacking, files)):
            raise SbonError("files-missing", f"{len(lacking)} files of the checkpoint have not come", where=call.operator)
        if self._context.stream_settings.fsync:
            await executor(partial(received.sync, digests - before))
        measures = None if call.measures is None else decode_record(call.measures, MeasureSums)
        return StoredBatch(batch=call.batch, cut=cut, stream=stream, files=files, measures=measures)

    async def _fetch(self, source: CopySource, received: ReceivedFiles) -> None:
        await self._receiver.fetch(source, received, lambda _: self._context.failpoint("copy"))

    async def _drop(self, call: DropBackup, caller: Caller) -> None:
        kept = self._known.get(call.operator)
        if kept is None or kept.stored.spec.query != call.query or (caller.node, caller.instance) != kept.stored.expected:
            return
        await self._forget(kept)

    async def _yield(self, call: YieldOperator, caller: Caller) -> None:
        kept = self._hosted_by(call.operator, caller)
        self._check_open(kept, call.epoch)
        await self._drive(kept, KeptBackupEvent.YIELDS)

    # -- hosts that are lost ------------------------------------------------------------------------------------------

    async def _look(self, kept: KeptOperator, now_s: float) -> None:
        await super()._look(kept, now_s)
        if kept.lost_since_s is None:
            self._followers.run(kept)

    async def _read(self, kept: KeptOperator) -> OperatorRegister:
        return await self._owners.read(kept.stored.spec.query, kept.id)

    async def _not_read(self, kept: KeptOperator, error: SbonError) -> None:
        """Forget the backup of an operator that is over.

        A register that no node has proves nothing: of a query that is over, :mod:`~sbon_node.hosting.destroy` ends the backups.
        """
        if error.code in OVER:
            await self._forget(kept)

    async def _claim(self, kept: KeptOperator, register: OperatorRegister) -> OperatorRegister:
        return await self._owners.take_over(kept.stored.spec.query, kept.id, register.host, register.epoch)

    async def _go_on(self, kept: KeptOperator, register: OperatorRegister) -> None:
        context, stored, operator, epoch = self._context, kept.stored, kept.id, register.epoch
        if operator not in context.outbox.streams():
            why_not = await self._followers.go_on(kept, epoch) if stored.is_hot else ""
            if not stored.is_hot or why_not:
                await self._begin_again(kept, epoch)
            self._note(operator, why_not, is_hot=stored.is_hot)
            if stored.newest is not None:
                self._operators.ports.measures.take(operator, stored.newest.measures)
        runs = await self._followers.stop(operator)
        for stream, lineage in stored.lineages.items():
            if lineage:
                self._operators.ports.lineages.learn(operator, stream, lineage)
        why = "the engine of its host did not run it" if kept.was_yielded else "its host was lost"
        spec = stored.spec.moved_from(stored.host, context.clock.wall_ms(), why)
        if self._operators.get(operator) is None:  # Otherwise the backup could not be deleted before.
            hosted = msgspec.structs.replace(stored.hosted, spec=msgspec.structs.replace(spec, epoch=epoch))
            await self._operators.adopt(hosted, register, runs=runs)
        self._followers.forget(operator)

    async def _begin_again(self, kept: KeptOperator, epoch: int) -> None:
        """Adopt the stream and the checkpoint of the newest stored batch."""
        context, operator, newest, stream = self._context, kept.id, kept.stored.newest, kept.stored.stream
        checkpoint = checkpoint_of(context, operator)
        await context.executor(partial(shutil.rmtree, checkpoint, ignore_errors=True))
        if newest is not None:
            received = ReceivedFiles(files_of(context, operator))
            await context.executor(partial(received.assemble, newest.files, checkpoint))
        batch = NO_BATCH if newest is None else newest.batch
        context.outbox.backups.release(operator, stream)
        context.outbox.handover.adopt(operator, stream, batch=batch, offsets=stream.tail.offsets, epoch=epoch)

    def _note(self, operator: str, why_not: str, *, is_hot: bool) -> None:
        """Keep for users how the operator was taken over."""
        if why_not:
            log.warning("follower-not-live", operator=operator, reason=why_not)
        from_checkpoint = "from its stored checkpoint" + (f": {why_not}" if why_not else "")
        self._recovered[operator] = BY_FOLLOWER if is_hot and not why_not else from_checkpoint

    async def _release(self, kept: KeptOperator) -> None:
        await self._followers.remove(kept)
        self._operators.dismiss(kept.stored.hosted)

    async def _delete(self, kept: KeptOperator) -> None:
        await super()._delete(kept)
        await self._context.executor(partial(shutil.rmtree, files_of(self._context, kept.id), ignore_errors=True))

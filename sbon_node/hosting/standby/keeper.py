"""Backups that this node keeps for the hosts of operators, and the recovery of operators whose host is lost."""

from __future__ import annotations

import math
import shutil
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import msgspec
import structlog

from sbon_node.base.tasks import Tasks, check_cancelled
from sbon_node.engine.alignment import Cut
from sbon_node.engine.copies.listing import CopyLimits, check_list
from sbon_node.engine.copies.received_files import ReceivedFiles
from sbon_node.engine.copies.receiver import CopyReceiver, CopySource
from sbon_node.engine.manifest import CopiedFile
from sbon_node.hosting.components import HostedComponent, acceptors_of
from sbon_node.hosting.hosted_operator import HostedOperator
from sbon_node.hosting.moving.host_check import HostCheck
from sbon_node.hosting.moving.widths import check_cut, check_stream
from sbon_node.hosting.operators import OperatorHost
from sbon_node.hosting.standby.callers import check_epoch, kept_for
from sbon_node.hosting.standby.followers import BackupFollowers
from sbon_node.hosting.standby.kept import Kept, StoredBackup, StoredBatch, described, files_of, use_of
from sbon_node.hosting.standby.kept_frames import SentFrames, check_end, check_frames, keep_frames, lacks_frames
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.hosting.sweep import checkpoint_of
from sbon_node.model.records import OperatorRegister
from sbon_node.net.peers import Caller
from sbon_node.overlay.presence import AS_HOST
from sbon_node.ownership.acceptors import OVER
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.ledger import NO_BATCH
from sbon_node.workflow.context import Context
from sbon_node.workflow.retry import until_passed
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.durability import BY_FOLLOWER, HOT
from sbon_protocol.api.measures import MeasureSums
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.backup import BackupOpened, BackupStored, DropBackup, OpenBackup, StoreBackup, YieldOperator
from sbon_protocol.calls import DestroyComponents
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

HOT_LOOKS = 10  # A backup of hot operators looks so many times as often.


class BackupKeeper:
    """The backups of this node, by operator. ``warm`` prepares the engine for an operator, which then goes on sooner."""

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
    ) -> None:
        self._context, self._operators, self._receiver, self._owners = context, operators, receiver, owners
        self._settings, self._host_check, self._warm, self._limits = settings, host_check, warm, limits
        self._tasks, self._followers = Tasks(), followers
        self.recovered: dict[str, str] = {}
        """How operators that go on here were taken over, by operator."""
        now_s = context.clock.now()
        self._known = {one: Kept(stored, now_s) for one, stored in context.store.all("backup", StoredBackup).items()}
        operators.backed = self._known
        for kept in self._known.values():
            operators.expect(kept.stored.hosted, use_of(kept.spec))
        handle = context.server.handle
        handle(OpenBackup, self._open)
        handle(StoreBackup, self._store)
        handle(DropBackup, self._drop)
        handle(YieldOperator, self._yield)

    def start(self) -> None:
        """Delete what no backup needs, and look after the hosts."""
        for stream in self._context.outbox.backups.names():
            if stream not in self._known and not is_source(stream):
                self._context.outbox.backups.discard(stream)
        folder = files_of(self._context, "")
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name not in self._known:
                shutil.rmtree(path, ignore_errors=True)
        self._tasks.start("watch", self._run())

    async def close(self) -> None:
        await self._tasks.close()
        await self._followers.close()

    def components(self) -> Iterator[HostedComponent]:
        for operator, kept in sorted(self._known.items()):
            yield HostedComponent(kept.spec.query, operator, kept.stored.hosted.acceptors)

    def spare(self) -> set[str]:
        """Return the operators whose hosts are there: they can find another node that keeps their backup."""
        return {operator for operator, kept in self._known.items() if not self._context.presence.away(kept.stored.host)}

    def describe(self, query: str) -> list[OperatorInfo]:
        """Return the operators of a query with a backup here: what users see once the register names this node as the host."""
        return [described(kept, self._context.name) for _, kept in sorted(self._known.items()) if kept.spec.query == query]

    async def destroy(self, call: DestroyComponents) -> None:
        """Forget the backups among the components of a query that is over."""
        for operator in call.components:
            kept = self._known.get(operator)
            if kept is not None and kept.spec.query == call.query:
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
        kept = self._known.get(spec.id)
        if kept is None:
            kept = await self._begin(asked, caller)
        async with kept.lock:
            self._check_open(kept, spec.epoch)
            stored = kept.stored
            opened = msgspec.structs.replace(
                asked,
                sealed=max(stored.sealed, spec.epoch),
                newest=stored.newest,
                lacks_frames=stored.lacks_frames or lacks_frames(self._context, spec.id, stored.settled),
            )
            if opened != stored:
                self._put(kept, opened)
            kept.heard_s, kept.lost_since_s = self._context.clock.now(), None
        newest = kept.stored.newest
        if newest is None or newest.stream.lineage != call.stream_lineage or kept.stored.lacks_frames:
            return BackupOpened(last=0)
        return BackupOpened(batch=newest.batch, last=newest.stream.tail.last)

    async def _begin(self, stored: StoredBackup, caller: Caller) -> Kept:
        spec = stored.hosted.spec
        if self._operators.get(spec.id) is not None or spec.id in self._operators.arriving:
            raise SbonError("operator-exists", f"{spec.id} is at {self._context.name} itself", where=spec.id)
        if len(self._known) >= self._settings.most:
            hint = "raise backups.most"
            raise SbonError("too-many-backups", f"{len(self._known)} backups are kept", where=self._context.name, hint=hint)
        kept = self._known[spec.id] = Kept(stored, self._context.clock.now())
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

    def _check_open(self, kept: Kept, epoch: int) -> None:
        if kept.is_ending or self._known.get(kept.spec.id) is not kept:
            raise SbonError("backup-unknown", f"{self._context.name} keeps no backup of it", where=kept.spec.id)
        check_epoch(kept.stored, epoch, kept.spec.id, self._context.name)

    def _named(self, operator: str, caller: Caller) -> Kept:
        return kept_for(self._known, operator, caller, self._context.name)

    async def _store(self, call: StoreBackup, caller: Caller) -> BackupStored:
        kept = self._named(call.operator, caller)
        stream: StreamState = decode_record(call.stream, StreamState)
        check_stream(kept.spec, stream, max_subscribers=self._context.stream_settings.max_subscribers)
        async with kept.lock:
            self._check_open(kept, call.epoch)
            kept.heard_s = self._context.clock.now()
            sent = SentFrames(call.operator, stream, kept.stored.settled, call.after, call.frames)
            keep_frames(self._context, sent, caller.node, self._settings.stream_bytes)
            kept.is_yielded = False  # The operator runs at its host again.
            if call.more:
                return BackupStored()
            check_end(sent)
            batch = await self._complete(kept, call, stream)
            self._put(kept, msgspec.structs.replace(kept.stored, newest=batch, lacks_frames=False))
            kept.heard_s = self._context.clock.now()
            keep = frozenset(file.digest for file in batch.files)
            await self._context.executor(partial(ReceivedFiles(files_of(self._context, call.operator)).keep_only, keep))
            return self._followers.stored(kept, call.before)

    async def _complete(self, kept: Kept, call: StoreBackup, stream: StreamState) -> StoredBatch:
        """Store the files of the batch, and return its record."""
        cut: Cut = decode_record(call.cut, Cut)
        check_cut(kept.spec, cut, [call.before] if call.before else [])
        files: tuple[CopiedFile, ...] = tuple(decode_record(file, CopiedFile) for file in call.files)
        check_list(files, self._limits)
        before = frozenset(file.digest for file in kept.stored.newest.files) if kept.stored.newest is not None else frozenset()
        digests = frozenset(file.digest for file in files)
        received = ReceivedFiles(files_of(self._context, call.operator), before | digests)
        executor = self._context.executor
        if call.contents:
            await executor(partial(received.store, call.contents, files))
        if call.offered:
            membership, host = self._context.membership, kept.stored.host
            source = CopySource(
                call.operator, call.offered, partial(membership.address_of, host), partial(membership.expected, host)
            )
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
        if kept is None or kept.spec.query != call.query or (caller.node, caller.instance) != kept.stored.expected:
            return
        await self._forget(kept)

    async def _yield(self, call: YieldOperator, caller: Caller) -> None:
        kept = self._named(call.operator, caller)
        self._check_open(kept, call.epoch)
        kept.is_yielded = True
        kept.interrupt(f"{kept.stored.host} cannot run it")
        self._tasks.start(f"recover {call.operator}", self._recover(kept))

    def _put(self, kept: Kept, stored: StoredBackup) -> None:
        self._context.store.put("backup", kept.spec.id, stored, sync=True)
        kept.stored = stored

    # -- hosts that are lost ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Look after the hosts of the operators, for ever."""
        clock, settings = self._context.clock, self._settings
        while True:
            for operator, kept in list(self._known.items()):
                self._look(operator, kept, clock.now())
            looks = HOT_LOOKS if any(kept.spec.durability == HOT for kept in self._known.values()) else 1
            await clock.sleep(settings.watch_s / looks * self._context.rng.uniform(0.5, 1.0))

    def _look(self, operator: str, kept: Kept, now_s: float) -> None:
        if self._is_lost(kept):
            kept.lost_since_s = now_s if kept.lost_since_s is None else kept.lost_since_s
            if now_s - kept.lost_since_s >= self._settings.recover_after_s:
                kept.interrupt(f"{kept.stored.host} is lost")
                self._tasks.start(f"recover {operator}", self._recover(kept))
        else:
            kept.lost_since_s = None
            self._followers.run(kept)
            if now_s - kept.heard_s > self._settings.check_s:
                kept.heard_s = now_s
                self._tasks.start(f"check {operator}", self._check(kept))

    def _is_lost(self, kept: Kept) -> bool:
        """Return whether the host is dead, is back without its disk, or has no engine that runs the operator."""
        return kept.is_yielded or self._context.presence.gone(AS_HOST, *kept.stored.expected) != ""

    async def _check(self, kept: Kept) -> None:
        """Forget a backup that its operator's register does not name; look after the host that this names.

        A register that no node has proves nothing: of a query that is over, :mod:`~sbon_node.hosting.orphans` ends the backups.
        """
        heard_s = kept.heard_s
        operator, query, me = kept.spec.id, kept.spec.query, self._context.membership.expected(self._context.name)
        try:
            register = await self._owners.read(query, operator)
        except SbonError as error:
            check_cancelled()
            if error.code in OVER:
                await self._forget(kept)
            return
        if (register.host, register.instance) == me:
            await self._recover(kept)
        elif (register.backup, register.backup_instance) != me:
            await self._forget(kept, heard_s)
        elif (register.host, register.instance) != kept.stored.expected:
            async with kept.lock:
                self._put(kept, msgspec.structs.replace(kept.stored, host=register.host, instance=register.instance))

    async def _recover(self, kept: Kept) -> None:
        """Go on with the operator here, if the register lets this node."""

        def waits(error: SbonError) -> None:
            log.warning("recovery-waits", operator=kept.spec.id, code=error.code, reason=str(error))

        try:
            await until_passed(self._context, partial(self._take_over, kept), waits)
        except SbonError as error:
            check_cancelled()
            log.warning("not-recovered", operator=kept.spec.id, code=error.code, reason=str(error))
            if error.code in OVER:
                await self._check(kept)

    async def _take_over(self, kept: Kept) -> None:
        context, operator, query = self._context, kept.spec.id, kept.spec.query
        async with kept.lock:
            if kept.is_ending or self._known.get(operator) is not kept:
                return
            register = await self._owners.read(query, operator)
            me = context.membership.expected(context.name)
            if (register.host, register.instance) != me:
                if not self._is_lost(kept):
                    return
                check_frames(context, operator, kept.stored.stream, lacking=kept.stored.lacks_frames)
                # First nobody else can show anything any more, then this node is the host.
                self._put(kept, msgspec.structs.replace(kept.stored, sealed=register.epoch + 1))
                register = await self._owners.take_over(query, operator, register.host, register.epoch)
            await self._go_on(kept, register)
        log.warning("operator-recovered", operator=operator, host=kept.stored.host, epoch=register.epoch)

    async def _go_on(self, kept: Kept, register: OperatorRegister) -> None:
        """Host the operator from the newest stored batch on; repeated after a failure or a restart."""
        context, operator, epoch = self._context, kept.spec.id, register.epoch
        kept.goes_on = True
        if operator not in context.outbox.streams():
            why_not = await self._followers.go_on(kept, epoch) if kept.spec.durability == HOT else ""
            if kept.spec.durability != HOT or why_not:
                await self._begin_again(kept, epoch)
            self._note(operator, why_not, is_hot=kept.spec.durability == HOT)
            if kept.stored.newest is not None:
                self._operators.ports.measures.take(operator, kept.stored.newest.measures)
        runs = await self._followers.stop(operator)
        for stream, lineage in kept.stored.lineages.items():
            if lineage:
                self._operators.ports.lineages.learner(operator, stream)(lineage)
        why = "the engine of its host did not run it" if kept.is_yielded else "its host was lost"
        spec = kept.spec.moved_from(kept.stored.host, context.clock.wall_ms(), why)
        if self._operators.get(operator) is None:  # Otherwise the backup could not be deleted before.
            hosted = msgspec.structs.replace(kept.stored.hosted, spec=msgspec.structs.replace(spec, epoch=epoch))
            await self._operators.adopt(hosted, register, runs=runs)
        self._followers.forget(operator)
        await self._delete(kept)

    async def _begin_again(self, kept: Kept, epoch: int) -> None:
        """Adopt the stream and the checkpoint of the newest stored batch."""
        context, operator, newest, stream = self._context, kept.spec.id, kept.stored.newest, kept.stored.stream
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
        self.recovered[operator] = BY_FOLLOWER if is_hot and not why_not else from_checkpoint

    async def _forget(self, kept: Kept, heard_s: float = math.inf) -> None:
        """Delete a backup, and release what it holds, unless its host has asked for it after ``heard_s``."""
        if heard_s == math.inf:
            kept.interrupt("the backup is not needed any more")
        async with kept.lock:
            if self._known.get(kept.spec.id) is kept and kept.heard_s <= heard_s:
                kept.is_ending = True
                await self._followers.remove(kept)
                self._operators.dismiss(kept.stored.hosted)
                await self._delete(kept)

    async def _delete(self, kept: Kept) -> None:
        operator = kept.spec.id
        self._context.store.delete("backup", operator)
        kept.is_ending = True
        self._known.pop(operator, None)
        self._context.outbox.backups.discard(operator)
        await self._context.executor(partial(shutil.rmtree, files_of(self._context, operator), ignore_errors=True))

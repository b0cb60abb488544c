"""Followers of hot operators at their backup: each runs what its host has stored here, and goes on in its place at once.

A follower starts from the stored checkpoint, reads the same input under a name of its own, and discards its output. It runs
nothing that is not stored here: its host stores a batch before anybody sees it, with the frames where it began and ended, and the
follower reads up to there and then waits, without an empty batch of its own. The last batch is the host's own one, so that both
have emitted the same rows in all, and the follower may go on with frames of its own after the last stored one.

Stored frames and files are those of any replicated operator. So a follower that has failed, or is not level in time, costs time
alone: the operator is started from its stored checkpoint then.
"""

import asyncio
import shutil
from functools import partial
from pathlib import Path

import msgspec
import structlog

from sbon_node.base.backoff import Backoff
from sbon_node.base.clock import Clock
from sbon_node.base.tasks import Tasks, check_cancelled
from sbon_node.context import Context
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.copies.received_files import ReceivedFiles
from sbon_node.engine.interface import Engine, MovingEngine
from sbon_node.engine.manifest import Manifest
from sbon_node.hosting.components import checkpoint_of, copy_to
from sbon_node.hosting.moving.ends import Batch, FollowerStarter, Frozen, Position, Target
from sbon_node.hosting.standby.keeper import KeptOperator, files_of
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.model.frames import Frame, FrameDraft, InputOffset
from sbon_node.streams.links.channel import race
from sbon_node.streams.port import Following
from sbon_node.streams.skipped import SkippedRows
from sbon_protocol.api.durability import LOCAL
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.states.kept_backup_states import KEEPS
from sbon_protocol.api.states.operator_states import SET_ASIDE, OperatorState
from sbon_protocol.api.subscribers import BACKUP
from sbon_protocol.calls import BackupStored
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


class Follower:
    """A follower of this node; it has a ``target`` while it runs."""

    def __init__(self) -> None:
        self.target: Target | None = None
        self.position: Position | None = None
        """The newest stored batch, and where it began."""
        self.needs_input = self.is_live = False
        """Whether the frames after the stored batch must stay at their hosts; whether it has become the operator itself."""
        self.failure: SbonError | None = None
        self.reason = ""
        """The last failure, until it follows again."""


class BackupFollowers:
    """The followers of this node, by operator."""

    def __init__(self, context: Context, engine: MovingEngine, starter: FollowerStarter, settings: BackupSettings) -> None:
        self._context, self._engine, self._starter, self._settings = context, engine, starter, settings
        self._known: dict[str, Follower] = {}
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.close()

    def engine_state(self, operator: str, state: OperatorState, reason: str) -> None:
        follower = self._known.get(operator)
        if follower is not None and state in SET_ASIDE:
            follower.failure = SbonError("engine-failed", reason, where=operator)

    def run(self, kept: KeptOperator) -> None:
        """Let a hot operator be followed from its first stored batch on, until it goes on here."""
        operator = kept.id
        if kept.stored.is_hot and kept.stored.newest is not None and kept.state in KEEPS:
            follower = self._known.setdefault(operator, Follower())
            self._tasks.start(_task(operator), self._follow(kept, follower))

    def stored(self, kept: KeptOperator, before: Batch) -> BackupStored:
        """Let the follower run the newest stored batch, too, which began after these frames; return the reply to the host."""
        self.run(kept)
        follower, newest = self._known.get(kept.id), kept.stored.newest
        if follower is None or newest is None:
            return BackupStored()
        known, follower.position = follower.position, Position(newest.cut, (), before)
        if known is not None and any(now < was for now, was in zip(newest.cut.frames, known.cut.frames, strict=True)):
            reason = "its host has run a stored batch again, over less input"
            follower.failure = SbonError("not-aligned", reason, where=kept.id)
        elif follower.target is not None:
            follower.target.repeat(follower.position)
        follows = follower.target is not None and follower.failure is None
        return BackupStored(needs=follower.needs_input, follows=follows, reason=follower.reason[:500])

    async def go_on(self, kept: KeptOperator, epoch: int) -> str:
        """Let the follower be the operator in this node's ``epoch``; otherwise delete all that it has here, and return why."""
        operator, newest, started_s = kept.id, kept.stored.newest, self._context.clock.now()
        follower = self._known.get(operator)
        target = None if follower is None else follower.target
        await self._tasks.stop(_task(operator))
        reason = "it has not stored a batch" if newest is None else "no follower ran"
        if follower is not None and target is not None and newest is not None and follower.failure is None:
            try:
                frozen = Frozen(newest.cut, newest.stream)
                async with self._context.clock.timeout(self._settings.level_s):
                    await race(target.settle(frozen), self._starter.failed(operator, lambda: follower.failure))
                checkpoint = BatchLog(checkpoint_of(self._context, operator), fsync=self._context.stream_settings.fsync)
                await self._context.executor(checkpoint.sync)
                self._context.outbox.backups.release(operator, newest.stream)
                await target.go_live(frozen, newest.stream, epoch)
                follower.is_live = True
                log.info("follower-live", operator=operator, epoch=epoch, seconds=round(self._context.clock.now() - started_s, 3))
                return ""
            except TimeoutError:
                reason = f"the follower was not level within {self._settings.level_s:g} s"
            except SbonError as error:
                check_cancelled()
                reason = f"the follower failed: {error}"
        elif follower is not None and (follower.reason or follower.failure):
            reason = f"no follower ran: {follower.reason or follower.failure}"
        await self.remove(kept)
        await self._engine.start()  # After that no engine process of an earlier run writes to the checkpoint.
        return reason

    async def stop(self, operator: str) -> bool:
        """Stop the follower, unless it is the operator by now; return whether it is."""
        follower = self._known.get(operator)
        if follower is not None and follower.is_live:
            return True
        await self._tasks.stop(_task(operator))
        if self._known.pop(operator, None) is not None:
            await self._starter.stop(operator)
        return False

    async def remove(self, kept: KeptOperator) -> None:
        """Stop the follower, and delete what it has here."""
        if kept.stored.is_hot and not await self.stop(kept.id):
            await self._starter.delete(kept.id)

    def forget(self, operator: str) -> None:
        """Forget a follower that is the operator by now."""
        self._known.pop(operator, None)

    # -- following ----------------------------------------------------------------------------------------------------

    async def _follow(self, kept: KeptOperator, follower: Follower) -> None:
        """Start the follower, and start it again after each failure, for ever."""
        settings, clock, operator = self._settings, self._context.clock, kept.id
        backoff = Backoff(settings.follow_retry_s, settings.follow_retry_max_s, self._context.rng)
        while True:
            follower.failure = None
            try:
                await self._start(kept, follower)
                follower.reason, started_s = "", clock.now()
                log.info("backup-follows", operator=operator, host=kept.stored.host)
                await self._starter.failed(operator, lambda: follower.failure)
            except SbonError as error:
                check_cancelled()
                log.warning("follower-failed", operator=operator, code=error.code, reason=str(error))
                follower.reason = str(error)
                if follower.target is not None and clock.now() - started_s > settings.follow_retry_max_s:
                    backoff.reset()
            finally:
                follower.target, follower.needs_input = None, False
            await self._starter.stop(operator)
            await clock.sleep(backoff.next_s())

    async def _start(self, kept: KeptOperator, follower: Follower) -> None:
        """Start the operator from the newest stored batch; return once it reads its inputs."""
        context, operator = self._context, kept.id
        await self._engine.start()  # After that no engine process of an earlier run writes to the checkpoint.
        copied, checkpoint = copy_to(context, operator), checkpoint_of(context, operator)
        await context.executor(partial(shutil.rmtree, checkpoint, ignore_errors=True))
        try:
            async with kept.lock:
                newest = kept.stored.newest
                assert newest is not None
                follower.needs_input, follower.position = True, Position(newest.cut)
                received = ReceivedFiles(files_of(context, operator))
                await context.executor(partial(received.assemble, newest.files, copied / "checkpoint"))
            following = Following(BACKUP, newest.stream.tail)
            target = await self._starter.connect(kept.stored.hosted, kept.stored.lineages, following)
            target.repeat(Position(newest.cut))
            manifest = Manifest(batch=newest.batch, cut=newest.cut, files=newest.files)
            await race(target.follow(copied / "checkpoint", manifest), self._starter.failed(operator, lambda: follower.failure))
        finally:
            await context.executor(partial(shutil.rmtree, copied, ignore_errors=True))
        target.repeat(follower.position)
        follower.target, follower.needs_input = target, False


def _task(operator: str) -> str:
    return f"follow {operator}"


# -- A run without rows of an operator that is kept here: its engine then has loaded and compiled what a take-over needs

FRAMES = 2
"""Batches of a rehearsal: the second one reads state that the first has written."""
MOST_KINDS = 256
"""Kinds of operators that are remembered as rehearsed."""


class RehearsalPort:
    """An :class:`~sbon_node.engine.interface.OperatorPort` with frames without rows, whose output is dropped."""

    def __init__(self, spec: OperatorSpec, clock: Clock) -> None:
        self.over = asyncio.Event()
        self._spec, self._clock, self._read = spec, clock, 0

    async def store(self, committed: int | None) -> None:
        """Store nothing elsewhere."""

    def recover(self, committed: int | None) -> None:
        """Make nothing visible."""

    def has_batch(self, batch: int) -> bool:
        return True

    def visible_batch(self) -> int:
        return -1

    def is_awaited(self) -> bool:
        return False

    async def poll(self, after: tuple[InputOffset, ...], wait_s: float) -> tuple[InputOffset, ...]:
        """Offer the next frame of each input, one after another."""
        offered = tuple(InputOffset(frame=min(offset.frame + 1, FRAMES), incarnation=1) for offset in after)
        if offered == after:
            await self._clock.sleep(wait_s)
        return offered

    async def fetch(self, position: int, after_frame: int, upto_frame: int) -> list[Frame]:
        stream = self._spec.inputs[position].stream
        return [Frame(stream=stream, number=number, payload=b"", rows=0) for number in range(after_frame + 1, upto_frame + 1)]

    async def write(
        self, batch: int, offsets: tuple[InputOffset, ...], drafts: list[FrameDraft], skipped: SkippedRows | None = None
    ) -> None:
        self._read = min(offset.frame for offset in offsets)

    def spent(self, cpu_s: float) -> None:
        """Count nothing."""

    async def committed(self, batch: int) -> None:
        if self._read >= FRAMES:
            self.over.set()


class Rehearsals:
    """Rehearsals on one engine, one at a time and each kind of operator once in the engine's life."""

    def __init__(self, engine: Engine, clock: Clock, folder: Path, longest_s: float) -> None:
        """``folder`` is that of the engine's checkpoints; a rehearsal that takes more than ``longest_s`` seconds is given up."""
        self._engine, self._clock, self._folder, self._longest_s = engine, clock, folder, longest_s
        self._rehearsed: dict[bytes, int] = {}
        """The engine's start in which each kind was rehearsed, the oldest first."""
        self._lock = asyncio.Lock()

    async def rehearse(self, spec: OperatorSpec) -> None:
        """Start the engine, and run the operator without rows. Raises :class:`SbonError` if it does not run."""
        async with self._lock:
            await self._engine.start()
            kind = _kind(spec)
            if self._longest_s == 0 or self._rehearsed.get(kind) == self._engine.starts:
                return
            await self._run(spec)
            self._rehearsed.pop(kind, None)
            self._rehearsed[kind] = self._engine.starts
            while len(self._rehearsed) > MOST_KINDS:
                del self._rehearsed[next(iter(self._rehearsed))]

    async def _run(self, spec: OperatorSpec) -> None:
        name = f"{spec.id}.rehearsal"
        port, folder = RehearsalPort(spec, self._clock), self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            async with self._clock.timeout(self._longest_s):
                await self._engine.instantiate(msgspec.structs.replace(spec, id=name, durability=LOCAL), port, folder)
                await port.over.wait()
        except TimeoutError:
            raise SbonError("timeout", f"no batch without rows within {self._longest_s:g} s", where=spec.id) from None
        finally:
            await self._engine.destroy(name)
            shutil.rmtree(folder, ignore_errors=True)


def _kind(spec: OperatorSpec) -> bytes:
    """Return what decides which code an engine loads for an operator."""
    inputs = tuple((one.view, one.event_time, one.schema) for one in spec.inputs)
    flags = (spec.on_error, spec.reader, spec.blocks, spec.groups_per_batch, spec.state_provider)
    return msgspec.msgpack.encode((spec.fragment, inputs, flags))

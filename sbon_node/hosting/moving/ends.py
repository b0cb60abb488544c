"""The two ends of an operator's move to another host: the new one follows, both come to rest, and the new one goes on.

The origin copies its checkpoint while it runs. The target starts from the copy and follows: it reads the same frames under a name
of its own, never beyond what the origin has shown, and discards its output. Once it is nearly level the origin freezes: it plans
no batch any more. The target runs the origin's last batches as the origin has planned them, so that both rest at the same frames
and the same watermark. It may go on if both have emitted the same (:mod:`sbon_node.engine.alignment`). Until then the move can
be given up: the origin thaws, and the target is destroyed.

This module has both ends. The request for a move and the decision to change hosts come from its caller.
"""

import asyncio
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from sbon_node.base.clock import Clock
from sbon_node.base.executors import Executor
from sbon_node.context import Context
from sbon_node.engine.alignment import Cut, check_aligned
from sbon_node.engine.checkpoint_copy import install_checkpoint
from sbon_node.engine.copies.receiver import CopyReceiver, CopySource
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.manifest import Manifest
from sbon_node.engine.moving import SETTLE_POLL_S
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.components import HostedOperator, checkpoint_of, copy_to, spill_of
from sbon_node.hosting.operators.ports import OperatorPorts
from sbon_node.model.records import OperatorRegister
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.ledger import Tail
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.port import Following, NodePort
from sbon_protocol.api.moves import MoveProgress
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.states import arrival_states
from sbon_protocol.api.states.arrival_states import LIFECYCLE, ArrivalEvent, ArrivalState
from sbon_protocol.errors import BrokenInvariantError, SbonError

log = structlog.get_logger()

# -- How far a follower may read, and when its origin should stop ------------------------------------------------------

# A follower that is behind takes all batches that the origin has planned at once: one that repeats batch by batch and is no
# faster would never get near. But the last batch before the switch must be the origin's own, since it runs with the watermark
# of the input before it. The origin should stop while the follower has that batch alone to run, or runs it already.

Batch = tuple[int, ...]
"""The last frame of each input after a batch."""


class Position(NamedTuple):
    """The newest visible cut of an origin, whose batch began at ``before`` (empty: unknown), and the batches planned after it."""

    cut: Cut
    batches: tuple[Batch, ...] = ()
    before: Batch = ()


class Pursuit:
    """The newest batches of the origin. Without ``has_state`` an operator emits the same rows in any batches.

    A follower that is behind by ``near_batches`` at most is near: it waits ``near_s`` seconds for the best moment to stop its
    origin.
    """

    def __init__(self, *, has_state: bool, near_s: float, near_batches: int) -> None:
        self._has_state, self._patience_s = has_state, near_s
        self._origin: Position | None = None
        self._ends: deque[Batch] = deque(maxlen=near_batches + 1)
        """Where its newest batches end, oldest first; without those that ran between two positions."""
        self._begins: dict[Batch, Batch] = {}
        """Where the newest batch begins, by its end."""
        self._near_s: float | None = None

    def note(self, origin: Position) -> None:
        self._origin = origin
        for end in (origin.cut.frames, *origin.batches):
            if end not in self._ends:
                self._ends.append(end)
        known = [end for end in (origin.before, origin.cut.frames, *origin.batches) if end]
        if len(known) > 1:
            self._begins = {known[-1]: known[-2]}

    @property
    def newest(self) -> Batch:
        """The end of the origin's newest batch, up to which the follower may read."""
        return self._ends[-1]

    @property
    def before(self) -> Batch:
        """The end of the batch before that, from which the follower must repeat the newest one."""
        return self._begins.get(self.newest) or (self._ends[-2] if len(self._ends) > 1 else self._ends[-1])

    def is_level(self, ours: Cut | None, planned: tuple[Batch, Batch] | None, now_s: float) -> bool:
        """Return whether the origin should stop now.

        ``ours`` is the visible cut of the follower, and ``planned`` where its newest batch begins and ends.
        """
        if ours is None or self._origin is None:
            return False
        cut, batches, _ = self._origin
        if not batches and ours.frames == cut.frames and (cut.is_settled or ours.has_emitted_as(cut)):
            return True
        begin, end = planned or (ours.frames, ours.frames)
        if end == self.newest:
            return begin == self.before or not self._has_state
        if end == self.before and ours.frames == end:
            return True
        if end not in self._ends:
            self._near_s = None
        elif self._near_s is None:
            self._near_s = now_s
        return self._near_s is not None and now_s - self._near_s > self._patience_s

    def frames_behind(self, ours: Cut | None) -> int:
        """Return the frames of all inputs that the origin has planned and the follower has not shown."""
        return 0 if ours is None or self._origin is None else max(0, sum(self.newest) - sum(ours.frames))


# -- Both ends ---------------------------------------------------------------------------------------------------------

CONNECT_POLL_S = 0.02
"""Pause between two looks at the links of this process, which cost nothing: no setting."""


class Prepared(NamedTuple):
    """A copy of a checkpoint in ``folder``, and the state of the operator's stream after the same batch."""

    folder: Path
    manifest: Manifest
    tail: Tail


class Frozen(NamedTuple):
    """The cut up to which a frozen operator has emitted, and its stream at that time."""

    cut: Cut
    stream: StreamState


class Origin:
    """The host from which an operator moves. ``copies`` is a folder on the disk of its checkpoints."""

    def __init__(
        self,
        operator: str,
        *,
        engine: MovingEngine,
        port: NodePort,
        outbox: Outbox,
        copies: Path,
        executor: Executor,
        settings: EngineSettings,
        migration: MigrationSettings,
    ) -> None:
        self._executor, self._copy_tries = executor, migration.copy_tries
        self._operator, self._engine, self._port, self._outbox = operator, engine, port, outbox
        self._folder, self._settle_s = copies / operator, settings.settle_s

    async def prepare(self) -> Prepared:
        """Copy the checkpoint of the newest visible batch while the operator runs.

        The inputs after it stay at their hosts until :meth:`followed`. Raises :class:`SbonError`: ``nothing-to-copy`` before the
        first batch, and as :meth:`sbon_node.engine.interface.MovingEngine.copy_checkpoint`.
        """
        self._port.pin(True)
        try:
            return await self._copy()
        except BaseException:
            await self.followed()
            raise

    async def _copy(self) -> Prepared:
        for attempt in range(1, self._copy_tries + 1):
            tail = self._outbox.handover.tail(self._operator)
            if tail.batch < 0:
                raise _nothing_to_copy(self._operator)
            try:
                await self._executor(partial(shutil.rmtree, self._folder, ignore_errors=True))
                manifest = await self._engine.copy_checkpoint(self._operator, tail.batch, self._folder)
                return Prepared(folder=self._folder, manifest=manifest, tail=tail)
            except SbonError as error:
                if error.code != "checkpoint-superseded" or attempt == self._copy_tries:
                    raise
                log.info("checkpoint-copied-again", operator=self._operator, reason=str(error))
        raise AssertionError("the last attempt returns or raises")

    async def followed(self) -> None:
        """Let the inputs go, and delete the copy: the target has both, or has given up."""
        self.unpin()
        await self._executor(partial(shutil.rmtree, self._folder, ignore_errors=True))

    def unpin(self) -> None:
        """Let the inputs go: the target has subscribed to them, or has given up."""
        self._port.pin(False)

    def position(self) -> Position:
        """Return the newest visible cut, and the batches planned after it; raise ``nothing-to-copy`` before the first batch."""
        return self._position(*self._engine.planned(self._operator))

    def halt(self) -> Position:
        """Plan no batch any more; return the :meth:`position`, which is the last one."""
        offered = tuple(offset.frame for offset in self._port.freeze())
        self._engine.hold(self._operator)
        return self._position(*self._engine.planned(self._operator), offered)

    def _position(self, *batches: Batch) -> Position:
        cut = self._engine.cut(self._operator)
        if cut is None:
            raise _nothing_to_copy(self._operator)
        before = [batch for batch in batches if batch < cut.frames]
        return Position(cut, tuple(batch for batch in dict.fromkeys(batches) if batch > cut.frames), max(before, default=()))

    async def freeze(self) -> Frozen:
        """Plan no batch any more, and wait until the last one is visible. Thaws and raises ``not-settled`` otherwise."""
        try:
            self.halt()
            cut = await self._engine.resting(self._operator, self._settle_s)
            return Frozen(cut=cut, stream=self._outbox.handover.export(self._operator))
        except BaseException:
            self.thaw()
            raise

    def thaw(self) -> None:
        """Go on here, if the operator still runs: the move is given up."""
        self._port.limit(None)
        with suppress(SbonError):
            self._engine.release(self._operator)


class Target:
    """The host to which an operator moves; ``port`` follows, and its operator has this ``spec`` and ``checkpoint``."""

    def __init__(
        self,
        spec: OperatorSpec,
        *,
        engine: MovingEngine,
        port: NodePort,
        outbox: Outbox,
        checkpoint: Path,
        clock: Clock,
        executor: Executor,
        settings: EngineSettings,
        migration: MigrationSettings,
    ) -> None:
        self._clock, self._executor = clock, executor
        self._spec, self._engine, self._port, self._outbox = spec, engine, port, outbox
        self._checkpoint, self._settle_s = checkpoint, settings.settle_s
        self._pursuit = Pursuit(has_state=spec.has_state, near_s=migration.near_s, near_batches=migration.near_batches)

    async def follow(self, folder: Path, manifest: Manifest) -> None:
        """Check and install the copied checkpoint, and start the operator from it, up to the copied batch.

        Return once it has subscribed to its inputs. Raises :class:`SbonError` ``checkpoint-damaged``, ``disk-full``,
        ``not-subscribed``, and as :meth:`Engine.instantiate`.
        """
        await self._executor(partial(install_checkpoint, folder, manifest, self._checkpoint))
        await self._engine.instantiate(self._spec, self._port, self._checkpoint)
        try:
            async with self._clock.timeout(self._settle_s):
                while waiting := [link for link in self._port.links if link.state != "connected"]:
                    waiting[0].check()
                    await self._clock.sleep(CONNECT_POLL_S)
        except TimeoutError as error:
            reason = f"{waiting[0].stream} does not answer: {waiting[0].reason}"
            raise SbonError("not-subscribed", reason, where=self._spec.id, hint="see whether its node can be reached") from error

    def reach(self, origin: Position) -> bool:
        """Read up to where the origin has planned; return whether it should stop now, since little is left to run here."""
        self._pursuit.note(origin)
        is_level = self._pursuit.is_level(self._engine.cut(self._spec.id), self._port.planned, self._clock.now())
        if is_level:
            self._port.repeat(self._pursuit.before, (self._pursuit.newest,))
        else:
            self._port.limit(self._pursuit.newest, rests=False)
        return is_level

    def repeat(self, halted: Position) -> None:
        """Read up to where the origin halts, with its own last batch, and rest."""
        self._pursuit.note(halted)
        self._port.repeat(self._pursuit.before, (self._pursuit.newest,), halts=True)

    def frames_behind(self) -> int:
        """Return the frames of all inputs that the origin has planned and this has not shown."""
        return self._pursuit.frames_behind(self._engine.cut(self._spec.id))

    async def settle(self, frozen: Frozen) -> None:
        """Come to rest where the origin has; raise ``not-settled``, or ``not-aligned`` unless both have emitted the same."""
        self.repeat(Position(frozen.cut))
        await self._reach_last(frozen.cut)
        check_aligned(await self._rest(), frozen.cut, self._spec.id)
        ours, theirs = self._port.discarded.rows, frozen.stream.tail.rows
        if ours != theirs and not self._spec.groups_per_batch:
            raise SbonError("not-aligned", f"the follower has emitted {ours} rows in all, the host {theirs}", where=self._spec.id)

    async def go_live(self, frozen: Frozen, stream: StreamState, epoch: int) -> None:
        """Adopt the ``stream``, whose retained frames were taken, and publish in the new epoch from the next batch on.

        Call once the operator's record names this host, after :meth:`settle`, with the state of the frozen stream at the origin,
        which may have fewer frames than in ``frozen``, since readers acknowledge there meanwhile. Raises ``not-settled`` if the
        engine has died and takes too long to come to rest again; call it again then.
        """
        if stream.tail != frozen.stream.tail:
            raise BrokenInvariantError(f"{self._spec.id} has published batch {stream.tail.batch} at its frozen host")
        check_aligned(await self._rest(), frozen.cut, self._spec.id)
        tail = self._port.discarded
        self._outbox.handover.adopt(self._spec.id, stream, batch=tail.batch, offsets=tail.offsets, epoch=epoch)
        self._port.go_live(epoch)
        self._engine.release(self._spec.id)

    async def _reach_last(self, cut: Cut) -> None:
        """Wait until the last batch of the origin has run here, too."""
        try:
            async with self._clock.timeout(self._settle_s):
                while (ours := self._engine.cut(self._spec.id)) is None or ours.frames_behind(cut) > 0:
                    await self._clock.sleep(SETTLE_POLL_S)
                while ours is not None and ours.frames == cut.frames and ours.watermark_ms < cut.watermark_ms:
                    self._port.limit(cut.frames)  # The last batch of the origin was one without input.
                    await self._clock.sleep(SETTLE_POLL_S)
                    ours = self._engine.cut(self._spec.id)
        except TimeoutError as error:
            here = "nothing" if ours is None else f"frames {ours.frames} with the watermark {ours.watermark_ms:,} ms"
            there = f"frames {cut.frames} with {cut.watermark_ms:,} ms"
            reason = f"within {self._settle_s:g} s it has read {here}, its host had read {there}"
            raise SbonError("not-settled", reason, where=self._spec.id) from error

    async def _rest(self) -> Cut:
        self._engine.hold(self._spec.id)
        return await self._engine.resting(self._spec.id, self._settle_s)


def _nothing_to_copy(operator: str) -> SbonError:
    return SbonError("nothing-to-copy", "it has committed no batch yet", where=operator, hint="start it anew")


# -- Followers of this node: each is started from a copy of its host's checkpoint, watched, and removed ----------------


class Copied(NamedTuple):
    """The state of the operator at its host after the copied ``batch``, and the ``lineages`` of its inputs."""

    lineages: dict[str, int]
    tail: Tail
    batch: int
    cut: Cut


class StoredArrival(msgspec.Struct, frozen=True, kw_only=True):
    """A follower as this node stores it; ``is_ready`` once it may be the operator's next host."""

    attempt: str
    origin: str
    hosted: HostedOperator
    is_ready: bool = False


class Arrival:
    """A follower of this node. After a restart it has no ``target``: it goes on from its checkpoint, or not at all."""

    def __init__(self, stored: StoredArrival, now_s: float) -> None:
        self.stored, self.heard_s = stored, now_s
        self.state: ArrivalState = arrival_states.READY if stored.is_ready else LIFECYCLE.initial
        self.has_stream = False
        """Whether the operator's stream here is this follower's."""
        self.target: Target | None = None
        self.progress = MoveProgress()
        self.failure: SbonError | None = None
        self.frozen: Frozen | None = None
        self.register: OperatorRegister | None = None
        """The register as it was read last."""
        self.activation, self.ended = asyncio.Lock(), asyncio.Event()

    @property
    def spec(self) -> OperatorSpec:
        return self.stored.hosted.spec

    def takes(self, event: ArrivalEvent) -> bool:
        """Return whether the event may happen now."""
        return LIFECYCLE.chosen(self.state, event) is not None

    def receive(self, event: ArrivalEvent) -> tuple[StrEnum, ...]:
        """Go to the state that the event chooses; return the next instructions."""
        row = LIFECYCLE.on(self.state, event, self.spec.id)
        self.state, self.has_stream = row.after, self.has_stream or row.after == arrival_states.LIVE
        return row.instructions


def copy_source(context: Context, operator: str, attempt: str, host: str) -> CopySource:
    """Return what ``host`` offers of an operator's checkpoint in that attempt."""
    membership = context.membership
    return CopySource(operator, attempt, partial(membership.address_of, host), partial(membership.expected, host))


class FollowerStarter:
    """Starts and removes followers on this node."""

    def __init__(
        self,
        context: Context,
        ports: OperatorPorts,
        engine: MovingEngine,
        receiver: CopyReceiver,
        settings: EngineSettings,
        migration: MigrationSettings,
    ) -> None:
        self._context, self._ports, self._engine, self._receiver = context, ports, engine, receiver
        self._settings, self._migration = settings, migration

    async def start(self, arrival: Arrival, base: Copied) -> None:
        """Fetch the checkpoint, and start the follower from it."""
        context, spec, stored = self._context, arrival.spec, arrival.stored
        checkpoint, copied = checkpoint_of(context, spec.id), copy_to(context, spec.id)
        source = copy_source(context, spec.id, stored.attempt, stored.origin)

        def report(progress: MoveProgress) -> None:
            arrival.progress = progress
            context.failpoint("copy")

        await context.executor(partial(shutil.rmtree, checkpoint, ignore_errors=True))
        try:
            files = await self._receiver.receive(source, copied / "received", copied / "checkpoint", report)
            following = Following(stored.attempt, base.tail)
            target = arrival.target = await self.connect(stored.hosted, base.lineages, following)
            await target.follow(copied / "checkpoint", Manifest(batch=base.batch, cut=base.cut, files=files))
            arrival.receive(ArrivalEvent.STARTED)
        finally:
            await context.executor(partial(shutil.rmtree, copied, ignore_errors=True))

    async def connect(self, hosted: HostedOperator, lineages: Mapping[str, int], following: Following) -> Target:
        """Return the target of a follower whose inputs have these ``lineages``, with its port open."""
        context, spec, ports = self._context, hosted.spec, self._ports
        for stream, lineage in lineages.items():
            if lineage:
                ports.lineages.learn(spec.id, stream, lineage)
        return Target(
            spec,
            engine=self._engine,
            port=await ports.connect(spec, hosted.acceptors, following=following),
            outbox=context.outbox,
            checkpoint=checkpoint_of(context, spec.id),
            clock=context.clock,
            executor=context.executor,
            settings=self._settings,
            migration=self._migration,
        )

    def failure(self, operator: str) -> SbonError | None:
        """Return why a follower cannot read one of its inputs any more."""
        port = self._ports.open.get(operator)
        return next((link.failure for link in port.links if link.failure is not None), None) if port is not None else None

    async def failed(self, operator: str, other: Callable[[], SbonError | None] = lambda: None) -> None:
        """Wait until a follower cannot read, or there is an ``other`` failure, and raise it."""
        while (failure := other() or self.failure(operator)) is None:
            await self._context.clock.sleep(self._context.settings.retry_s)
        raise failure

    async def stop(self, operator: str) -> None:
        await self._engine.destroy(operator)
        await self._ports.disconnect(operator, unsubscribe=True)

    async def delete(self, operator: str) -> None:
        """Delete what a follower that has stopped has here."""
        context = self._context
        self._ports.forget(operator)
        for folder in (checkpoint_of(context, operator), spill_of(context, operator), copy_to(context, operator)):
            await context.executor(partial(shutil.rmtree, folder, ignore_errors=True))

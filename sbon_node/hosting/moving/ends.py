"""The two ends of an operator's move to another host: the new one follows, both come to rest, and the new one goes on.

The origin copies its checkpoint while it runs. The target starts from the copy and follows: it reads the same frames under a name
of its own, never beyond what the origin has shown, and discards its output. Once it is nearly level the origin freezes: it plans
no batch any more. The target runs the origin's last batches as the origin has planned them, so that both rest at the same frames
and the same watermark. It may go on if both have emitted the same (:mod:`sbon_node.engine.alignment`). Until then the move can
be given up: the origin thaws, and the target is destroyed.

This module has both ends. The request for a move and the decision to change hosts come from its caller.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from sbon_node.base.clock import Clock
from sbon_node.base.executors import Executor
from sbon_node.engine.alignment import Cut, check_aligned
from sbon_node.engine.checkpoint_copy import install_checkpoint
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.manifest import Manifest
from sbon_node.engine.moving import SETTLE_POLL_S
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.moving.pursuit import Batch, Position, Pursuit
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.ledger import Tail
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.port import NodePort
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.errors import BrokenInvariantError, SbonError

log = structlog.get_logger()

CONNECT_POLL_S = 0.02
"""Pause between two looks at the links of this process, which cost nothing: no setting."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A copy of a checkpoint in ``folder``, and the state of the operator's stream after the same batch."""

    folder: Path
    manifest: Manifest
    tail: Tail


@dataclass(frozen=True, slots=True)
class Frozen:
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
        """Return the newest visible cut, and the batches that are planned after it; the target may run them at once.

        Raises :class:`SbonError` ``nothing-to-copy`` before the first batch.
        """
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
        """Come to rest where the origin has, and check that both have emitted the same.

        Raises :class:`SbonError` ``not-settled`` or ``not-aligned``: the move must be given up.
        """
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

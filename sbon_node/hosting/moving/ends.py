"""The two ends of an operator's move to another host: the new one follows, both settle, and the new one goes on.

The origin copies its checkpoint while it runs. The target starts from the copy and follows: it reads the same frames under a name
of its own, never beyond what the origin has shown, and discards its output. Once it is nearly level the origin freezes: it plans
nothing more and lets its watermark come to rest. The target comes to rest at the same frames, and may go on if both have emitted
the same (:mod:`sbon_node.engine.alignment`). Until then the move can be given up: the origin thaws, and the target is destroyed.

This module has both ends. The request for a move and the decision to change hosts come from its caller.
"""

from __future__ import annotations

import shutil
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import structlog

from sbon_node.clock import Clock
from sbon_node.engine.alignment import Cut, check_aligned, cut_of
from sbon_node.engine.checkpoint_copy import install_checkpoint
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.manifest import Manifest
from sbon_node.engine.settings import EngineSettings
from sbon_node.errors import BrokenInvariantError, SbonError
from sbon_node.executors import Executor
from sbon_node.model.frames import Frame
from sbon_node.model.operators import OperatorSpec
from sbon_node.streams.outbox.handover import StreamState
from sbon_node.streams.outbox.ledger import NO_BATCH, Tail
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.port import NodePort

log = structlog.get_logger()

CONNECT_POLL_S = 0.02
_ALL_BYTES = 2**40
LEVEL_BATCHES = 2
"""Batches of its host by which a follower may be behind when it counts as level: it catches up with them in a single one."""
COPY_ATTEMPTS = 5
"""Attempts to copy the newest batch before Spark deletes its files; it keeps those of ten batches."""


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
    ) -> None:
        self._executor = executor
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
        for attempt in range(1, COPY_ATTEMPTS + 1):
            tail = self._outbox.handover.tail(self._operator)
            if tail.batch < 0:
                raise SbonError("nothing-to-copy", "it has committed no batch yet", where=self._operator, hint="start it anew")
            try:
                await self._executor(partial(shutil.rmtree, self._folder, ignore_errors=True))
                manifest = await self._engine.copy_checkpoint(self._operator, tail.batch, self._folder)
                return Prepared(folder=self._folder, manifest=manifest, tail=tail)
            except SbonError as error:
                if error.code != "checkpoint-superseded" or attempt == COPY_ATTEMPTS:
                    raise
                log.info("checkpoint-copied-again", operator=self._operator, reason=str(error))
        raise AssertionError("the last attempt returns or raises")

    async def followed(self) -> None:
        """Let the inputs go, and delete the copy: the target has both, or has given up."""
        self._port.pin(False)
        await self._executor(partial(shutil.rmtree, self._folder, ignore_errors=True))

    def cut(self) -> Cut | None:
        """Return the position after the newest visible batch, up to which the target may read."""
        return self._engine.cut(self._operator)

    def halt(self) -> Cut:
        """Plan nothing beyond what has been offered; return the position at which it will rest, with watermarks still unknown.

        The target may read as far at once: it comes to rest at the same time as the origin.
        """
        return cut_of(self._port.freeze(), 0, 0)

    async def freeze(self, halted: Cut | None = None) -> Frozen:
        """Wait until all up to where it halts is shown, and the watermark rests. Thaws and raises ``not-settled`` otherwise."""
        try:
            cut = await self._engine.settled(self._operator, (halted or self.halt()).frames, self._settle_s)
            return Frozen(cut=cut, stream=self._outbox.handover.export(self._operator))
        except BaseException:
            self.thaw()
            raise

    def thaw(self) -> None:
        """Go on here: the move is given up."""
        self._port.limit(None)

    def stream(self) -> tuple[StreamState, list[Frame]]:
        """Return the frozen stream with its retained frames: fewer than before, since readers still acknowledge here."""
        state = self._outbox.handover.export(self._operator)
        return state, self._outbox.read(self._operator, state.trimmed, _ALL_BYTES)


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
    ) -> None:
        self._clock, self._executor = clock, executor
        self._spec, self._engine, self._port, self._outbox = spec, engine, port, outbox
        self._checkpoint, self._settle_s = checkpoint, settings.settle_s
        self._shown: deque[Cut] = deque(maxlen=LEVEL_BATCHES + 1)
        """The newest cuts of the origin."""

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

    def reach(self, cut: Cut, *, halts: bool = False) -> None:
        """Read up to where the origin has shown; come to rest where it ``halts``."""
        if halts or not self._shown or self._shown[-1].frames != cut.frames:
            self._shown.append(cut)
            self._port.limit(cut.frames, rests=halts)

    def is_level(self) -> bool:
        """Return whether it is behind by at most the newest batches of the origin that :meth:`reach` has named."""
        ours = self._engine.cut(self._spec.id)
        return ours is not None and bool(self._shown) and ours.frames_behind(self._shown[0]) <= 0

    def frames_behind(self) -> int:
        """Return the frames of all inputs up to the newest cut that :meth:`reach` has named, without those that it has read."""
        ours = self._engine.cut(self._spec.id)
        return max(0, ours.frames_behind(self._shown[-1])) if ours is not None and self._shown else 0

    async def settle(self, frozen: Frozen) -> None:
        """Come to rest where the origin has, and check that both have emitted the same.

        Raises :class:`SbonError` ``not-settled`` or ``not-aligned``: the move must be given up.
        """
        self.reach(frozen.cut, halts=True)
        cut = await self._engine.settled(self._spec.id, frozen.cut.frames, self._settle_s)
        check_aligned(cut, frozen.cut, self._spec.id)
        ours, theirs = self._port.discarded.rows, frozen.stream.tail.rows
        if ours != theirs and not self._spec.groups_per_batch:
            raise SbonError("not-aligned", f"the follower has emitted {ours} rows in all, the host {theirs}", where=self._spec.id)

    async def go_live(self, frozen: Frozen, stream: StreamState, epoch: int) -> None:
        """Adopt the ``stream``, whose retained frames were taken, and publish in the new epoch from the next batch on.

        Call once the operator's record names this host, after :meth:`settle`, with the result of :meth:`Origin.stream`. Raises
        ``not-settled`` if the engine has died meanwhile and takes too long to come to rest again; call it again then.
        """
        if _emitted(stream.tail) != _emitted(frozen.stream.tail):
            raise BrokenInvariantError(f"{self._spec.id} has published batch {stream.tail.batch} at its frozen host")
        await self._engine.settled(self._spec.id, frozen.cut.frames, self._settle_s)
        tail = self._port.discarded
        self._outbox.handover.adopt(self._spec.id, stream, batch=tail.batch, offsets=tail.offsets, epoch=epoch)
        self._port.go_live(epoch)


def _emitted(tail: Tail) -> Tail:
    """Return the tail without its batch: an engine that starts again amid a move runs one more, from which nothing comes."""
    return replace(tail, batch=NO_BATCH, offsets=())

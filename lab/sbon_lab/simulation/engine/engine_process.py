"""An engine process: a separate process, which runs operators for a daemon and may outlive it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from sbon_lab.simulation.process import Process
from sbon_node.base.failpoints import Failpoints
from sbon_node.engine.alignment import Cut
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.interface import OperatorPort
from sbon_node.engine.moving import frames_planned
from sbon_node.model.frames import InputOffset
from sbon_node.streams.mean_rate import MeanRate
from sbon_protocol.api.operators import OperatorSpec, OperatorStats
from sbon_protocol.api.states.operator_states import OperatorState

T = TypeVar("T")
Range = tuple[float, float]


class EngineTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of the engine's steps, in seconds, drawn evenly between two bounds.

    ``work_s`` is the mean time that a row of an operator takes, by the operator's id; each row's is drawn from an exponential
    distribution.
    """

    start: Range = (0.2, 1.0)
    between_steps: Range = (0.001, 0.05)
    control: Range = (0.0001, 0.002)
    watch: Range = (0.001, 0.05)
    notice_death: Range = (0.01, 0.3)
    orphan: Range = (0.0, 0.3)
    retry: Range = (1.0, 3.0)
    poll: float = 1.0
    work_s: Callable[[str], float] = lambda operator: 0.0


class ProcessOwner(Protocol):
    """The part of the engine that the engine process uses; ``process`` is the daemon's."""

    process: Process
    times: EngineTimes
    failpoint: Failpoints
    rng: random.Random
    fails: str

    @property
    def is_full(self) -> Callable[[], bool]: ...

    def draw(self, bounds: Range) -> float: ...

    def report(self, operator: RunningOperator, state: OperatorState, reason: str = "") -> None: ...


class ControlLostError(Exception):
    """The daemon is gone, and the engine process exits."""


class RunningOperator:
    """The daemon's record of an operator, independent of the engine process that runs it."""

    def __init__(self, spec: OperatorSpec, port: OperatorPort, checkpoint: Path, *, fsync: bool) -> None:
        self.spec = spec
        self.port = port
        self.checkpoint, self.fsync = checkpoint, fsync
        self.stats = OperatorStats()
        self.pace = MeanRate()
        self.in_batch = self.stopping = self.failed = False
        self.is_held = False
        """Whether it plans no batch: what its port offers meanwhile is dropped."""
        self.running: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.commits: asyncio.Queue[int] = asyncio.Queue()
        self.watcher: asyncio.Task[Any] | None = None
        self.runner: asyncio.Task[Any] | None = None

    # -- engine.moving.Movable -----------------------------------------------------------------------------------------

    def cut(self) -> Cut | None:
        visible = self.port.visible_batch()
        return None if visible < 0 else BatchLog(self.checkpoint).read_cut(visible)

    def is_quiet(self) -> bool:
        log, visible = BatchLog(self.checkpoint), self.port.visible_batch()
        return not self.in_batch and visible >= 0 and log.is_settled() and log.commits()[-1:] == [visible]

    @property
    def asks(self) -> bool:
        return not self.in_batch

    def planned(self) -> list[tuple[int, ...]]:
        return frames_planned(BatchLog(self.checkpoint), self.port.visible_batch())

    def hold(self, held: bool) -> None:
        self.is_held = held

    # -- batches -------------------------------------------------------------------------------------------------------

    async def poll(self, after: tuple[InputOffset, ...], wait_s: float, *, is_due: bool) -> tuple[InputOffset, ...] | None:
        """Return the offsets up to which a batch is planned now, or None; ``is_due`` asks for one without new input, too."""
        offered = await self.port.poll(after, wait_s)
        if self.is_held or self.stopping or (offered == after and not is_due):
            return None
        self.in_batch = True
        return offered


class SimulatedEngineProcess:
    """One engine process, a separate process. ``ask`` is its control connection to the daemon."""

    def __init__(self, engine: ProcessOwner, number: int) -> None:
        self.engine = engine
        self.process = Process(f"{engine.process.name}/engine#{number}")
        self.repeats = False
        self._stalled_until = 0.0

    def stall(self, seconds: float) -> None:
        """Stop the engine process for so long, as SIGSTOP or a long garbage collection does."""
        self._stalled_until = asyncio.get_running_loop().time() + seconds

    async def pause(self, bounds: Range) -> None:
        await asyncio.sleep(self.engine.draw(bounds))
        left = self._stalled_until - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(left)

    async def ask(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the call in the daemon. Raise :class:`ControlLostError` if the daemon is killed before or during it."""
        daemon = self.engine.process
        await self.pause(self.engine.times.control)
        if not daemon.alive:
            raise ControlLostError
        task = daemon.start(call())
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        if task.cancelled() or not daemon.alive:
            raise ControlLostError
        result: T = task.result()
        await self.pause(self.engine.times.control)
        return result

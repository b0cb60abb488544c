"""An engine with Spark's contract, in virtual time (docs/design.md, section 3).

Each operator plans a batch (``offsets/b``), runs it, hands its output over, and commits it (``commits/b``), with a random
pause between any two steps. Its engine process can be killed apart from the daemon, or outlive it for a while as an orphan. A
batch that was planned and not committed runs again over the same offsets, and is cut into other frames. One process at a time
holds a checkpoint. Fragments are evaluated for real (:mod:`sbon_lab.simulation.engine.evaluate`).
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sbon_lab.simulation.engine.batch import run_batches
from sbon_lab.simulation.engine.engine_process import (
    ControlLostError,
    EngineTimes,
    Range,
    RunningOperator,
    SimulatedEngineProcess,
)
from sbon_lab.simulation.engine.evaluate import output_schema
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.process import NO_PROCESS, Process
from sbon_node.base.clock import Clock
from sbon_node.base.failpoints import Failpoints
from sbon_node.engine.alignment import Cut
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.checkpoint_copy import copy_checkpoint
from sbon_node.engine.counting import at_present
from sbon_node.engine.interface import OnOperatorState, OperatorPort
from sbon_node.engine.manifest import Manifest
from sbon_node.engine.moving import resting
from sbon_node.engine.settings import EngineSettings
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import OnError, OperatorSpec, OperatorStats
from sbon_protocol.api.states import operator_states
from sbon_protocol.api.states.operator_states import OperatorState
from sbon_protocol.errors import SbonError

MAX_FILES, MAX_BYTES = 20_000, 2**30
"""Most files and bytes of a checkpoint that is copied."""
STOP_S = EngineSettings().stop_s
"""Time for which a stop waits for a batch, whose input may not come any more."""
RETRIED = ("disk-full",)
"""Temporary reasons: the operator stops with them and tries again."""


class CheckpointLocks:
    """Holders of a node's checkpoints.

    Like file locks, they outlive daemons, and a process that dies releases its locks. ``engine_processes`` are those of all
    lives of the node's daemon, including orphans.
    """

    def __init__(self) -> None:
        self._holders: dict[Path, Process] = {}
        self.engine_processes: list[Process] = []

    async def take(self, checkpoint: Path, process: Process) -> None:
        """Wait until no other living process holds the checkpoint."""
        key = _key(checkpoint)
        while (holder := self._holders.get(key)) is not None and holder.alive and holder is not process:
            cancelled = asyncio.get_running_loop().create_future()
            wake = _resolver(cancelled)
            holder.on_kill(wake)
            try:
                async with asyncio.timeout(1.0):  # it may also release
                    await cancelled
            except TimeoutError:
                continue
            finally:
                holder.off_kill(wake)
        self._holders[key] = process

    def release(self, checkpoint: Path, process: Process) -> None:
        if self._holders.get(_key(checkpoint)) is process:
            del self._holders[_key(checkpoint)]


class SimulatedEngine:
    """:class:`sbon_node.engine.interface.MovingEngine` for one incarnation of a daemon, ``process``.

    ``locks`` belongs to the node and outlives the daemon. The engine processes may outlive it too.
    """

    def __init__(
        self,
        process: Process,
        rng: random.Random,
        failpoint: Failpoints,
        locks: CheckpointLocks,
        *,
        on_state: OnOperatorState | None = None,
        is_full: Callable[[], bool] = bool,
        times: EngineTimes | None = None,
        fsync: bool = False,
    ) -> None:
        self.process = process
        self.failpoint = failpoint
        self.locks = locks
        self.is_full, self.fsync = is_full, fsync
        self.times = times or EngineTimes()
        self.rng = rng
        self.engine_process: SimulatedEngineProcess | None = None
        self.orphan_s: float | None = None
        self.fails = ""
        """The reason with which every operator fails soon after it runs; empty for none."""
        self.is_broken = False
        """Whether no engine process starts again after the present one, as without memory or Java."""
        self._on_state: OnOperatorState = on_state or (lambda operator, state, reason: None)
        self._engine_processes = 0
        self._operators: dict[str, RunningOperator] = {}
        self._closing = False
        self._restart: asyncio.Task[Any] | None = None
        process.on_kill(self._orphan)

    def draw(self, bounds: Range) -> float:
        return self.rng.uniform(*bounds)

    # -- engine.interface.Engine ---------------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        if self.engine_process is None:
            return "idle"
        dead = "failed: it does not start" if self.is_broken else "starting"
        return "running" if self.engine_process.process.alive else dead

    @property
    def starts(self) -> int:
        return self._engine_processes

    @property
    def replacements(self) -> int:
        return 0

    @property
    def replacement_s(self) -> float:
        return 0.0

    @property
    def recovery_s(self) -> float:
        return 0.0

    @property
    def engine_pid(self) -> int | None:
        return None

    async def analyse(self, fragment: str, inputs: tuple[Schema, ...], on_error: OnError = "fail") -> Schema:
        _check_on_error(on_error)
        return output_schema(fragment, inputs)

    async def start(self) -> None:
        if self.engine_process is None:
            self.engine_process = self._new_engine_process()
        while any(one.alive and one is not self.engine_process.process for one in self.locks.engine_processes):
            await self._clock().sleep(0.05)  # As Spark's, it waits for the lock on the checkpoints.

    async def instantiate(self, spec: OperatorSpec, port: OperatorPort, checkpoint: Path) -> None:
        _check_on_error(spec.on_error)
        operator = self._operators[spec.id] = RunningOperator(spec, port, checkpoint, fsync=self.fsync)
        for log in ("offsets", "commits"):
            (checkpoint / log).mkdir(parents=True, exist_ok=True)
        self._on_state(spec.id, operator_states.STARTING, "")
        operator.watcher = self.process.start(self._watch(operator))
        if self.engine_process is None:
            self.engine_process = self._new_engine_process()
        if self.engine_process.process.alive:  # Otherwise it starts with the others, once the death is noticed.
            self._launch(self.engine_process, operator)
        await asyncio.shield(operator.running)

    async def destroy(self, operator: str) -> None:
        known = self._operators.get(operator)
        if known is None:
            return
        known.stopping = True
        if not known.running.done():
            known.running.set_exception(SbonError("operator-stopped", "it was stopped while it started", where=operator))
            known.running.exception()  # the caller that waits for it may have gone
        if known.runner is not None:
            if known.in_batch:
                await asyncio.wait([known.runner], timeout=STOP_S)
            known.runner.cancel()
            await asyncio.wait([known.runner])
        joined = asyncio.ensure_future(known.commits.join())
        await asyncio.wait([joined], timeout=STOP_S)  # Its backup may be out of reach.
        joined.cancel()
        if known.watcher is not None:
            known.watcher.cancel()
            await asyncio.wait([known.watcher])
        self._operators.pop(operator, None)
        if self.engine_process is not None:
            self.locks.release(known.checkpoint, self.engine_process.process)
        self._on_state(operator, operator_states.STOPPED, "")

    async def copy_checkpoint(self, operator: str, batch: int, into: Path, known: Manifest | None = None) -> Manifest:
        checkpoint = self._named(operator).checkpoint
        return copy_checkpoint(checkpoint, batch, into, max_files=MAX_FILES, max_bytes=MAX_BYTES, known=known)

    def committed(self, operator: str) -> int:
        return max(BatchLog(self._named(operator).checkpoint).commits(), default=-1)

    def cut(self, operator: str) -> Cut | None:
        return self._named(operator).cut()

    def planned(self, operator: str) -> list[tuple[int, ...]]:
        return self._named(operator).planned()

    def hold(self, operator: str) -> None:
        self._named(operator).hold(True)

    async def resting(self, operator: str, within_s: float) -> Cut:
        return await resting(self._named(operator), self._clock(), within_s)

    def release(self, operator: str) -> None:
        self._named(operator).hold(False)

    def stats(self, operator: str) -> OperatorStats:
        known = self._operators.get(operator)
        if known is None:
            return OperatorStats()
        return at_present(known.stats, known.pace, asyncio.get_running_loop().time())

    async def close(self) -> None:
        self._closing = True
        for operator in list(self._operators):
            await self.destroy(operator)
        if self.engine_process is not None:
            self.engine_process.process.kill()
        if self._restart is not None:
            self._restart.cancel()
            await asyncio.wait([self._restart])

    def running(self) -> list[str]:
        """Return the operators that were instantiated, and not destroyed."""
        return sorted(self._operators)

    # -- faults --------------------------------------------------------------------------------------------------------

    def kill_engine_process(self) -> None:
        """Kill the engine process with its JVM; the daemon lives and starts another one."""
        if self.engine_process is not None:
            self.engine_process.process.kill()

    def repeat_write(self) -> None:
        """Make the engine process hand over its next committed batch again once it is seen, with another cut."""
        if self.engine_process is not None:
            self.engine_process.repeats = True

    def kill_worker(self) -> None:
        """Kill a Python worker: the running batches fail, and their operators restart from the checkpoint."""
        if self.engine_process is not None and self.engine_process.process.alive:
            for operator in self._operators.values():
                if operator.runner is not None and not operator.stopping and not operator.failed:
                    operator.runner.cancel()
                    self._launch(self.engine_process, operator, delay_s=self.draw(self.times.between_steps))

    def _orphan(self) -> None:
        """Handle the daemon's death: its engine process notices a little later, or much later."""
        if self.engine_process is not None:
            delay = self.draw(self.times.orphan) if self.orphan_s is None else self.orphan_s
            asyncio.get_running_loop().call_later(delay, self.engine_process.process.kill, context=NO_PROCESS)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _clock(self) -> Clock:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop.clock()

    def _named(self, operator: str) -> RunningOperator:
        known = self._operators.get(operator)
        if known is None:
            raise SbonError("operator-unknown", "no such operator on this engine", where=operator)
        return known

    def _new_engine_process(self) -> SimulatedEngineProcess:
        self._engine_processes += 1
        engine_process = SimulatedEngineProcess(self, self._engine_processes)
        self.locks.engine_processes.append(engine_process.process)
        engine_process.process.on_kill(lambda: self._engine_process_died(engine_process))
        return engine_process

    def _engine_process_died(self, engine_process: SimulatedEngineProcess) -> None:
        if self.process.alive and not self._closing and self.engine_process is engine_process:
            self._restart = self.process.start(self._start_again())

    async def _start_again(self) -> None:
        await asyncio.sleep(self.draw(self.times.notice_death))
        while self.is_broken:
            for operator in [operator for operator in self._operators.values() if not operator.failed]:
                self._on_state(operator.spec.id, operator_states.STARTING, "the engine does not start")
            await asyncio.sleep(self.draw(self.times.retry))
        self.engine_process = self._new_engine_process()
        for operator in [operator for operator in self._operators.values() if not operator.failed]:
            self._on_state(operator.spec.id, operator_states.STARTING, "the engine process has died")
            self._forget_commits(operator)
            self._launch(self.engine_process, operator)

    def _launch(self, engine_process: SimulatedEngineProcess, operator: RunningOperator, delay_s: float | None = None) -> None:
        delay = self.draw(self.times.start) if delay_s is None else delay_s
        operator.in_batch = False
        operator.runner = engine_process.process.start(self._run(engine_process, operator, delay))
        operator.runner.add_done_callback(_look_at)

    async def _run(self, engine_process: SimulatedEngineProcess, operator: RunningOperator, delay_s: float) -> None:
        """Run an operator in its engine process, until the process dies or the operator is stopped."""
        await asyncio.sleep(delay_s)
        while True:
            try:
                await self.locks.take(operator.checkpoint, engine_process.process)
                await run_batches(engine_process, operator)
            except ControlLostError:
                engine_process.process.kill()
                return
            except FileNotFoundError:
                if operator.checkpoint.exists():
                    raise
                engine_process.process.kill()  # An engine that outlived its node writes to a disk that is no more.
                return
            except SbonError as error:
                operator.in_batch = False
                retried = error.code in RETRIED and not operator.stopping
                self.report(operator, operator_states.STOPPED if retried else operator_states.FAILED, str(error))
                if not retried:
                    return
                await asyncio.sleep(self.draw(self.times.retry))
            else:
                return

    def report(self, operator: RunningOperator, state: OperatorState, reason: str = "") -> None:
        if not self.process.alive:
            return
        operator.failed = operator.failed or state == operator_states.FAILED
        if not operator.running.done() and state == operator_states.RUNNING:
            operator.running.set_result(None)
        if not operator.running.done() and state == operator_states.FAILED:
            operator.running.set_exception(SbonError("operator-failed", reason, where=operator.spec.id))
        self.process.context.copy().run(self._on_state, operator.spec.id, state, reason)

    def _forget_commits(self, operator: RunningOperator) -> None:
        """Drop the commits that a dead engine process has not reported; the repair of the checkpoint handles them."""
        if operator.watcher is None:
            return
        operator.watcher.cancel()
        while not operator.commits.empty():
            operator.commits.get_nowait()
            operator.commits.task_done()
        operator.watcher = self.process.start(self._watch(operator))

    async def _watch(self, operator: RunningOperator) -> None:
        """Report the commits to the daemon, in order, each a little later."""
        while True:
            batch = await operator.commits.get()
            try:
                await asyncio.sleep(self.draw(self.times.watch))
                await self._committed(operator, batch)
            finally:
                operator.commits.task_done()

    async def _committed(self, operator: RunningOperator, batch: int) -> None:
        while True:
            try:
                await operator.port.committed(batch)
                return
            except SbonError as error:
                if error.code not in RETRIED:
                    self.report(operator, operator_states.FAILED, str(error))
                    if operator.runner is not None:
                        operator.runner.cancel()
                    return
                await asyncio.sleep(self.draw(self.times.retry))


def _key(checkpoint: Path) -> Path:
    return checkpoint.resolve()


def _look_at(task: asyncio.Task[Any]) -> None:
    """Report an operator's error, which would otherwise show as a silent hang."""
    if not task.cancelled() and (error := task.exception()) is not None:
        loop = task.get_loop()
        assert isinstance(loop, VirtualLoop)
        loop.unhandled.append(f"{task.get_name()}: {error!r}")


def _resolver(future: asyncio.Future[None]) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_result(None)


def _check_on_error(on_error: OnError) -> None:
    if on_error != "fail":
        raise SbonError("unsupported-on-error", f"the simulated engine knows no {on_error}, only fail", where="on_error")

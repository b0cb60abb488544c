"""Spark behind the engine interface: runs the operators, restarts them after a death, and fails the faulty ones.

Operators start again in the order of :mod:`.restarts`, which finds the one that the engine has died of: so an operator fails for
its own faults, and not for its neighbours'. An operator that has killed the engine ``max_kills`` times is quarantined: it is not
started any more, and its query waits.

An engine that is full although resources are released (:mod:`.jvm.release`) is replaced: batches under way are committed, a fresh
engine starts, and the operators continue from their checkpoints.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import structlog

from sbon_node.base.backoff import Backoff
from sbon_node.base.cgroups import cores
from sbon_node.base.clock import Clock
from sbon_node.base.executors import run_to_end
from sbon_node.base.tasks import Tasks, check_cancelled, ended
from sbon_node.engine.alignment import Cut
from sbon_node.engine.checkpoint_copy import copy_checkpoint
from sbon_node.engine.interface import Footprint, OnOperatorState, OperatorPort
from sbon_node.engine.manifest import Manifest
from sbon_node.engine.moving import SETTLE_POLL_S, resting
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark import messages
from sbon_node.engine.spark.restarts import Restarts, in_order, side_by_side
from sbon_node.engine.spark.running import KILLED, PASSING, REPLACED, End, Running
from sbon_node.engine.spark.supervisor import ENGINE_MODULE, EngineLostError, Supervisor
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import OnError, OperatorSpec, OperatorStats
from sbon_protocol.api.states import operator_states
from sbon_protocol.api.states.operator_states import SET_ASIDE
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

MAX_PAUSE_S = 30.0
_LOOK = "look at the footprint"
_RECOVERY = "measure the recovery"


class SparkEngine:
    """Implements :class:`sbon_node.engine.interface.MovingEngine`. The engine process starts when it is first needed.

    Checkpoints lie in ``data_dir/operators``, which the engine process locks; with ``fsync`` they survive the loss of power. The
    engine process runs ``module``.
    """

    def __init__(
        self,
        settings: EngineSettings,
        data_dir: Path,
        clock: Clock,
        on_state: OnOperatorState,
        *,
        fsync: bool = False,
        module: str = ENGINE_MODULE,
    ) -> None:
        self._settings, self._clock, self._on_state, self._fsync = settings, clock, on_state, fsync
        self._checkpoints = data_dir / "operators"
        self._supervisor = Supervisor(settings, data_dir, self._serve, self._engine_lost, module)
        self._analyses = Analyses(settings.analyses, self._analyse)
        self._running: dict[str, Running] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks(self._keeper_failed)
        self._restarts = Restarts(side_by_side(settings, cores()))
        self._closing = False
        self._replaced_s: float | None = None
        self.replacements, self.replacement_s, self.recovery_s = 0, 0.0, 0.0

    @property
    def status(self) -> str:
        """``idle`` (also if it died or was late without operators), ``starting``, ``running`` or ``failed``."""
        return "idle" if self._supervisor.died and not self._running else self._supervisor.status

    @property
    def starts(self) -> int:
        return self._supervisor.starts

    @property
    def engine_pid(self) -> int | None:
        """The engine process, while there is one."""
        return self._supervisor.pid

    # -- Engine -------------------------------------------------------------------------------------------------------

    async def analyse(self, fragment: str, inputs: tuple[Schema, ...], on_error: OnError = "fail") -> Schema:
        return await self._analyses.schema(messages.Analyse(fragment=fragment, inputs=inputs, on_error=on_error))

    async def _analyse(self, command: messages.Analyse) -> Schema:
        try:
            return (await self._supervisor.command(command, messages.Analysed)).schema
        except EngineLostError as error:
            raise _engine_failed(error) from error

    async def footprint(self, *, collect: bool = False) -> Footprint:
        """Return the engine's resources, after a collection if ``collect``. Raises :class:`EngineLostError`."""
        return (await self._supervisor.command(messages.Inspect(collect=collect), messages.Inspected)).footprint

    async def start(self) -> None:
        try:
            await self.footprint()
        except EngineLostError as error:
            raise _engine_failed(error) from error

    async def instantiate(self, spec: OperatorSpec, port: OperatorPort, checkpoint: Path) -> None:
        self._check_free(spec, checkpoint)
        backoff = Backoff(self._settings.restart_s, MAX_PAUSE_S)
        running = Running(spec, port, checkpoint, self._clock, self._on_state, backoff=backoff, fsync=self._fsync)
        self._running[spec.id] = running
        running.set_state(operator_states.STARTING)
        running.starter = asyncio.get_running_loop().create_task(self._start(running), name=f"start {spec.id}")
        try:
            await running.starter
        except asyncio.CancelledError:
            check_cancelled()
        except EngineLostError as error:
            # The engine process has died meanwhile, perhaps of another operator: this operator restarts with the others.
            running.end(End("engine-failed", str(error)))
        except Exception:
            if self._running.get(spec.id) is running:
                del self._running[spec.id]
            raise
        if running.stopping:
            raise _stopped_meanwhile(spec.id)
        self._tasks.start(_keeper(spec.id), self._keep(running))
        self._tasks.start(_LOOK, self._look())

    def _check_free(self, spec: OperatorSpec, checkpoint: Path) -> None:
        if checkpoint.parent != self._checkpoints:
            raise SbonError("checkpoint-elsewhere", f"the engine locks {self._checkpoints} only", where=str(checkpoint))
        if any(other.spec.id == spec.id or other.checkpoint == checkpoint for other in self._running.values()):
            raise SbonError("checkpoint-in-use", "an operator runs on this checkpoint already", where=str(checkpoint))

    async def destroy(self, operator: str) -> None:
        """Return once the engine process writes nothing of the operator any more; callers at the same time wait for the same."""
        running = self._running.get(operator)
        if running is not None and running.ending is None:
            running.ending = asyncio.get_running_loop().create_task(self._destroy(running), name=f"destroy {operator}")
            self._ending[operator] = running.ending
        ending = running.ending if running is not None else self._ending.get(operator)
        if ending is not None:
            await asyncio.shield(ending)

    async def _destroy(self, running: Running) -> None:
        operator = running.spec.id
        try:
            running.stopping = True
            await ended(running.starter)
            await self._tasks.stop(_keeper(operator))
            await running.settle(self._settings.stop_s)
            self._running.pop(operator, None)
            if running.run:  # Otherwise the engine process, which may be starting itself, does not know the operator.
                await self._try_to_stop(running)
            self._on_state(operator, operator_states.STOPPED, "")
        finally:
            if self._ending.get(operator) is running.ending:
                del self._ending[operator]

    # -- MovingEngine -------------------------------------------------------------------------------------------------

    async def copy_checkpoint(self, operator: str, batch: int, into: Path, known: Manifest | None = None) -> Manifest:
        limits, checkpoint = self._settings, self._named(operator).checkpoint
        copy = partial(copy_checkpoint, max_files=limits.copy_max_files, max_bytes=limits.copy_max_bytes, known=known)
        return await run_to_end(asyncio.to_thread(copy, checkpoint, batch, into))

    def committed(self, operator: str) -> int:
        return self._named(operator).committed()

    def cut(self, operator: str) -> Cut | None:
        return self._named(operator).cut()

    def planned(self, operator: str) -> list[tuple[int, ...]]:
        return self._named(operator).planned()

    def hold(self, operator: str) -> None:
        self._named(operator).hold(True)

    async def resting(self, operator: str, within_s: float) -> Cut:
        return await resting(self._named(operator), self._clock, within_s)

    def release(self, operator: str) -> None:
        self._named(operator).hold(False)

    def _named(self, operator: str) -> Running:
        running = self._running.get(operator)
        if running is None:
            raise SbonError("operator-unknown", "no such operator on this engine", where=operator)
        return running

    def stats(self, operator: str) -> OperatorStats:
        running = self._running.get(operator)
        return running.current_stats() if running else OperatorStats()

    async def close(self) -> None:
        self._closing = True
        await self._tasks.close()
        await asyncio.gather(*(running.settle(self._settings.stop_s) for running in self._running.values()))
        for running in self._running.values():
            running.commits.refuse()
        await self._supervisor.close()
        await asyncio.gather(*self._ending.values(), return_exceptions=True)
        self._running.clear()

    # -- starting, restarting, stopping -------------------------------------------------------------------------------

    async def _start(self, running: Running) -> None:
        """Make the checkpoint's committed batches visible, and start the operator in the engine process."""
        running.arm()
        # The engine process holds the lock once it answers: no other process writes to the checkpoint any more.
        await self._stop(running)
        await running.recover()
        if not running.stopping:
            checkpoint = str(running.checkpoint.absolute())
            start = messages.Start(spec=running.spec, checkpoint=checkpoint, run=running.begin_run(), fsync=self._fsync)
            await self._supervisor.command(start, messages.Done)
        if running.stopping:
            # A concurrent stop may have been served before the start.
            await self._stop(running)
            raise _stopped_meanwhile(running.spec.id)
        running.set_state(operator_states.RUNNING)

    async def _stop(self, running: Running) -> None:
        running.commits.refuse()
        await self._supervisor.command(messages.Stop(operator=running.spec.id), messages.Done)

    async def _try_to_stop(self, running: Running) -> None:
        try:
            await self._stop(running)
        except (EngineLostError, SbonError) as error:
            log.info("operator-not-stopped", operator=running.spec.id, reason=str(error))

    async def _keep(self, running: Running) -> None:
        """Restart the operator whenever it ends, until the operator itself is the cause."""
        while True:
            end = await running.ended
            log.warning("operator-ended", operator=running.spec.id, reason=end.reason)
            if outcome := running.count_end(end, self._settings):
                running.set_state(*outcome)
                await self._try_to_stop(running)
                return
            running.set_state(operator_states.STOPPED if end.code in PASSING else operator_states.STARTING, end.reason)
            if end.code != REPLACED:
                await self._clock.sleep(running.backoff.next_s())
            if running.suspicions:
                async with self._restarts.turn(running, end.reason):
                    await self._start_again(running)
                    await running.wait_ended_or_healthy(self._settings.start_timeout_s)
            else:
                await self._start_again(running)

    async def _start_again(self, running: Running) -> None:
        try:
            await self._start(running)
        except EngineLostError as error:
            running.end(End("engine-failed", str(error)))
        except SbonError as error:
            running.end(End(error.code, str(error)))

    def _engine_lost(self, reason: str) -> None:
        live = in_order(running for running in self._running.values() if running.live)
        causes = self._restarts.causes([one for one in live if one.state == operator_states.STARTING or one.has_open_batch()])
        for running in live:
            running.end(End(KILLED if running in causes else "engine-failed", reason))
        if self._running and not self._closing:
            self._tasks.start(_RECOVERY, self._measure_recovery(self._clock.now()))

    async def _measure_recovery(self, began_s: float) -> None:
        """Measure from the first of several deaths in a row until all operators run again, except those set aside."""
        while not all(running.live or running.stopping or running.state in SET_ASIDE for running in self._running.values()):
            await self._clock.sleep(SETTLE_POLL_S)
        self.recovery_s = self._clock.now() - began_s
        aside = sum(running.state in SET_ASIDE for running in self._running.values())
        log.info("engine-recovered", after_s=round(self.recovery_s, 3), operators=len(self._running) - aside, set_aside=aside)

    # -- replacing ----------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Replace the engine whenever it is full."""
        while True:
            await self._clock.sleep(self._settings.footprint_s)
            if self._supervisor.status != "running":
                continue
            try:
                reason = too_full(await self.footprint(), self._settings)
            except (EngineLostError, SbonError) as error:
                log.info("engine-footprint-unknown", reason=str(error))
                continue
            lately = self._replaced_s is not None and self._clock.now() - self._replaced_s < self._settings.replace_every_s
            if reason and not lately:
                await self._replace(reason)

    async def _replace(self, reason: str) -> None:
        """Replace the engine; each running operator continues after its last visible batch."""
        log.warning("engine-full", reason=reason, operators=len(self._running))
        began_s = self._clock.now()
        async with self._restarts.pause():  # No suspect starts meanwhile.
            paused = [running for running in self._running.values() if running.live]
            await asyncio.gather(*(running.pause(self._settings.stop_s) for running in paused))
            for running in paused:
                running.commits.refuse()
            await self._supervisor.replace()
            self.replacements += 1
            live = [running for running in self._running.values() if running.live]
            for running in live:
                running.end(End(REPLACED, f"the engine is replaced: {reason}"))
        await asyncio.gather(*(running.resumed(self._settings.start_timeout_s) for running in live))
        self._replaced_s = self._clock.now()
        self.replacement_s = self._replaced_s - began_s
        log.info("engine-replaced", pause_s=round(self.replacement_s, 3), operators=len(live))

    def _keeper_failed(self, task: str, error: BaseException) -> None:
        """Fail the operator whose supervising task broke an invariant of ours."""
        for running in self._running.values():
            if task == _keeper(running.spec.id) and running.state not in SET_ASIDE:
                running.set_state(operator_states.FAILED, f"{type(error).__name__}: {error}")

    async def _serve(self, request: messages.Request) -> messages.Message:
        running = self._running.get(request.operator)
        if running is None or running.state in SET_ASIDE:
            raise SbonError("operator-stopped", "the operator does not run here any more", where=request.operator)
        if isinstance(request, messages.Poll | messages.Spent | messages.Write):
            running.spent(request.cpu_s)
        return await running.serve(request)


def _stopped_meanwhile(operator: str) -> SbonError:
    return SbonError("operator-stopped", "it was stopped while it started", where=operator)


def _engine_failed(error: EngineLostError) -> SbonError:
    return SbonError("engine-failed", str(error), hint="see engine.log in the node's data directory")


def _keeper(operator: str) -> str:
    return f"keep {operator}"


# -- Limits on an engine's use of resources, beyond which it is replaced ----------------------------------------------


def too_full(footprint: Footprint, settings: EngineSettings) -> str:
    """Return why the engine must be replaced; empty if it need not."""
    if footprint.threads > settings.replace_threads:
        return f"{footprint.threads} threads, over the limit of {settings.replace_threads}"
    if footprint.descriptors > settings.replace_descriptors:
        return f"{footprint.descriptors} descriptors, over the limit of {settings.replace_descriptors}"
    percent = 100 * footprint.heap_mb / footprint.max_heap_mb
    if percent > settings.replace_heap_percent:
        return f"{percent:.0f} % of the heap after a collection, over the limit of {settings.replace_heap_percent} %"
    return ""


# -- Analyses of fragments that the engine has made: the same fragment over the same columns has the same output ------


class Analyses:
    """The newest ``most`` analyses, those asked for least recently forgotten first. Refusals are made anew each time.

    They hold for the life of a node, across its engine processes, which are all of one version.
    """

    def __init__(self, most: int, analyse: Callable[[messages.Analyse], Awaitable[Schema]]) -> None:
        self._most, self._analyse = most, analyse
        self._known: OrderedDict[messages.Analyse, Schema] = OrderedDict()

    async def schema(self, command: messages.Analyse) -> Schema:
        """Return the output's schema; raises whatever the analysis does."""
        schema = self._known.get(command)
        if schema is None:
            schema = self._known[command] = await self._analyse(command)
        self._known.move_to_end(command)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return schema

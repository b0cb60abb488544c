"""Spark behind the engine interface: which operators should run, started again when anything dies, and failed when it is theirs.

Who kills the engine is found by trial. Whoever was amid a batch when it died is a suspect, and suspects start one at a time, each
alone until it has committed a batch or found no input. A death counts against the one on trial, or, with nobody on trial, against
those who have been suspects for longer; so an operator fails for what it does, and not for its neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import structlog

from sbon_node.clock import Clock
from sbon_node.engine.interface import OnOperatorState, OperatorPort, OperatorSpec, OperatorStats, Schema
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.running import PASSING, End, Running
from sbon_node.engine.spark.supervisor import HOST, HostLostError, Supervisor
from sbon_node.errors import SbonError
from sbon_node.tasks import Tasks

log = structlog.get_logger()

MAX_PAUSE_S = 30.0


class SparkEngine:
    """Implements :class:`sbon_node.engine.interface.Engine`. The host process is started at the first need.

    Checkpoints lie in ``data_dir/operators``, which the host locks; with ``fsync`` they outlast the loss of power. ``host`` is
    the module the host process runs.
    """

    def __init__(
        self,
        settings: EngineSettings,
        data_dir: Path,
        clock: Clock,
        on_state: OnOperatorState,
        *,
        fsync: bool = False,
        host: str = HOST,
    ) -> None:
        self._settings, self._clock, self._on_state, self._fsync = settings, clock, on_state, fsync
        self._checkpoints = data_dir / "operators"
        self._supervisor = Supervisor(settings, data_dir, self._serve, self._host_lost, host)
        self._running: dict[str, Running] = {}
        self._tasks = Tasks(self._keeper_failed)
        self._trial = asyncio.Lock()
        self._on_trial: Running | None = None
        self._closing = False

    @property
    def status(self) -> str:
        return self._supervisor.status

    @property
    def starts(self) -> int:
        return self._supervisor.starts

    @property
    def host_pid(self) -> int | None:
        """The engine host's process, while there is one."""
        return self._supervisor.pid

    # -- Engine -------------------------------------------------------------------------------------------------------

    async def analyse(self, fragment: str, inputs: tuple[Schema, ...]) -> Schema:
        command = {"do": "analyse", "fragment": fragment, "inputs": msgspec.to_builtins(inputs)}
        try:
            answer = await self._supervisor.command(command)
        except HostLostError as error:
            raise SbonError("engine-failed", str(error), hint="see engine.log in the node's data directory") from error
        return msgspec.convert([{"name": name, "type": type_} for name, type_ in answer["schema"]], Schema)

    async def instantiate(self, spec: OperatorSpec, port: OperatorPort, checkpoint: Path) -> None:
        self._check_free(spec, checkpoint)
        running = Running(spec, port, checkpoint, self._clock, self._on_state, fsync=self._fsync)
        self._running[spec.id] = running
        running.tell("starting")
        try:
            await self._start(running)
        except HostLostError as error:
            # The host has died meanwhile, perhaps of another operator: this one comes back with the others.
            running.end(End("engine-failed", str(error)))
        except SbonError:
            if self._running.get(spec.id) is running:
                del self._running[spec.id]
            raise
        self._tasks.start(_keeper(spec.id), self._keep(running))

    def _check_free(self, spec: OperatorSpec, checkpoint: Path) -> None:
        if checkpoint.parent != self._checkpoints:
            raise SbonError("checkpoint-elsewhere", f"the engine locks {self._checkpoints} only", where=str(checkpoint))
        if any(other.spec.id == spec.id or other.checkpoint == checkpoint for other in self._running.values()):
            raise SbonError("checkpoint-in-use", "an operator runs on this checkpoint already", where=str(checkpoint))
        if len(self._running) >= self._settings.max_operators:
            raise SbonError("no-room", f"{self._settings.max_operators} operators run here already", where=spec.id)

    async def destroy(self, operator: str) -> None:
        running = self._running.get(operator)
        if running is None:
            return
        running.stopping = True
        await self._tasks.stop(_keeper(operator))
        await running.settle(self._settings.stop_s)
        self._running.pop(operator, None)
        await self._stop(operator)
        self._on_state(operator, "stopped", "")

    async def export_state(self, operator: str) -> Path:
        running = self._running.get(operator)
        if running is None:
            raise SbonError("operator-unknown", "no such operator on this engine", where=operator)
        await self.destroy(operator)
        return running.checkpoint

    def stats(self, operator: str) -> OperatorStats:
        running = self._running.get(operator)
        return running.stats if running else OperatorStats()

    async def close(self) -> None:
        self._closing = True
        await self._tasks.close()
        await asyncio.gather(*(running.settle(self._settings.stop_s) for running in self._running.values()))
        await self._supervisor.close()
        self._running.clear()

    # -- starting, restarting, stopping -------------------------------------------------------------------------------

    async def _start(self, running: Running) -> None:
        """Makes visible what the checkpoint has committed, and has the host run the operator."""
        running.arm()
        # The host holds the lock once it answers: nobody else writes to the checkpoint any more.
        await self._supervisor.command({"do": "stop", "operator": running.spec.id})
        running.recover()
        if not running.stopping:
            start = {"do": "start", "spec": msgspec.to_builtins(running.spec), "checkpoint": str(running.checkpoint.absolute())}
            await self._supervisor.command({**start, "run": running.begin(), "fsync": self._fsync})
        if running.stopping:
            # Whoever stopped it may have been served before the start was.
            await self._supervisor.command({"do": "stop", "operator": running.spec.id})
            raise SbonError("operator-stopped", "it was stopped while it started", where=running.spec.id)
        running.tell("running")

    async def _stop(self, operator: str) -> None:
        try:
            await self._supervisor.command({"do": "stop", "operator": operator})
        except (HostLostError, SbonError) as error:
            log.info("operator-not-stopped", operator=operator, reason=str(error))

    async def _keep(self, running: Running) -> None:
        """Starts the operator again whenever it ends, until it is its own doing."""
        while True:
            end = await running.ended
            log.warning("operator-ended", operator=running.spec.id, reason=end.reason)
            if reason := running.verdict(end, self._settings.max_restarts):
                running.tell("failed", reason)
                await self._stop(running.spec.id)
                return
            running.tell("stopped" if end.code in PASSING else "starting", end.reason)
            await self._clock.sleep(min(MAX_PAUSE_S, self._settings.restart_s * 2 ** min(running.tries, 10)))
            running.tries += 1
            if running.suspect:
                async with self._alone(running):
                    await self._start_again(running)
                    await running.stand_trial(self._settings.start_timeout_s)
            else:
                await self._start_again(running)

    async def _start_again(self, running: Running) -> None:
        try:
            await self._start(running)
        except HostLostError as error:
            running.end(End("engine-failed", str(error)))
        except SbonError as error:
            running.end(End(error.code, str(error)))

    @asynccontextmanager
    async def _alone(self, running: Running) -> AsyncIterator[None]:
        async with self._trial:
            self._on_trial = running
            try:
                yield
            finally:
                self._on_trial = None

    def _host_lost(self, reason: str) -> None:
        trial = self._on_trial
        for running in self._running.values():
            if running.live:
                amid = running.state == "starting" or running.is_amid_batch()
                guilty = amid and (running is trial or (trial is None and running.suspect))
                running.suspect = running.suspect or amid
                running.end(End("" if guilty else "engine-failed", reason))

    def _keeper_failed(self, task: str, error: BaseException) -> None:
        """A broken invariant of ours: the operator is no longer looked after."""
        for running in self._running.values():
            if task == _keeper(running.spec.id):
                running.tell("failed", f"{type(error).__name__}: {error}")

    async def _serve(self, request: dict[str, Any]) -> dict[str, Any]:
        running = self._running.get(request["operator"])
        if running is None or running.state == "failed":
            raise SbonError("operator-stopped", "the operator does not run here any more", where=request["operator"])
        return await running.serve(request)


def _keeper(operator: str) -> str:
    return f"keep {operator}"

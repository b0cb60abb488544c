"""Spark behind the engine interface: which operators should run, fed from their ports, started again when anything dies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import structlog

from sbon_node.clock import Clock
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.interface import OnOperatorState, OperatorPort, OperatorSpec, OperatorState, OperatorStats, Schema
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.supervisor import HostLostError, Supervisor
from sbon_node.errors import BrokenInvariantError, SbonError
from sbon_node.streams.frame import FrameDraft, InputOffset
from sbon_node.tasks import Tasks

log = structlog.get_logger()

MAX_PAUSE_S = 30.0
SETTLE_POLL_S = 0.03

PASSING = ("disk-full",)
"""Reasons that pass: the operator stops with them and tries again, for ever."""
OF_THE_ENGINE = (*PASSING, "engine-failed", "java-missing")
"""Refusals to start that say nothing of the operator."""


class _Running:
    """One operator that should run. ``answers`` holds, for inputs not asked yet, what one shared wait has found."""

    def __init__(self, spec: OperatorSpec, port: OperatorPort, checkpoint: Path) -> None:
        self.spec, self.port, self.log = spec, port, BatchLog(checkpoint)
        self.checkpoint = checkpoint
        self.stats = OperatorStats()
        self.after: list[InputOffset] = []
        self.answers: dict[int, InputOffset] = {}
        self.born_ms: int | None = None
        self.shown = -1
        self.restarts = 0
        self.refusal: SbonError | None = None
        self.state: OperatorState = "starting"
        self.stopping = False


class SparkEngine:
    """Implements :class:`sbon_node.engine.interface.Engine`. The host process is started at the first need."""

    def __init__(self, settings: EngineSettings, data_dir: Path, clock: Clock, on_state: OnOperatorState) -> None:
        self._settings, self._clock, self._on_state = settings, clock, on_state
        self._supervisor = Supervisor(settings, data_dir, self._serve, self._host_lost)
        self._running: dict[str, _Running] = {}
        self._tasks = Tasks()
        self._closing = False

    @property
    def status(self) -> str:
        return self._supervisor.status

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
        if spec.id not in self._running and len(self._running) >= self._settings.max_operators:
            raise SbonError("no-room", f"{self._settings.max_operators} operators run here already", where=spec.id)
        running = _Running(spec, port, checkpoint)
        self._running[spec.id] = running
        self._tell(running, "starting")
        try:
            await self._start(running)
        except HostLostError as error:
            # The host has died meanwhile, perhaps of another operator: this one comes back with the others.
            log.info("operator-start-lost", operator=spec.id, reason=str(error))
            self._restart(running)
        except SbonError:
            if self._running.get(spec.id) is running:
                del self._running[spec.id]
            raise

    async def destroy(self, operator: str) -> None:
        running = self._running.get(operator)
        if running is None:
            return
        await self._tasks.stop(f"restart {operator}")
        await self._settle(running)
        self._running.pop(operator, None)
        try:
            await self._supervisor.command({"do": "stop", "operator": operator})
        except (HostLostError, SbonError) as error:
            log.info("operator-not-stopped", operator=operator, reason=str(error))
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
        await asyncio.gather(*(self._settle(running) for running in self._running.values()))
        await self._supervisor.close()
        self._running.clear()

    # -- starting, restarting, stopping -------------------------------------------------------------------------------

    async def _start(self, running: _Running) -> None:
        """Repairs the checkpoint, makes visible what it has committed, and has the host run the operator."""
        # The host holds the lock once it answers: nobody else writes to the checkpoint any more.
        await self._supervisor.command({"do": "stop", "operator": running.spec.id})
        running.shown = -1 if (committed := running.log.repair(running.port.has_batch)) is None else committed
        running.port.recover(committed)
        planned = running.log.offsets()
        running.after = list(running.log.read_offsets(planned[-1])) if planned else [InputOffset()] * len(running.spec.inputs)
        running.answers.clear()
        running.refusal = running.born_ms = None
        spec = msgspec.to_builtins(running.spec)
        if not running.stopping:
            await self._supervisor.command({"do": "start", "spec": spec, "checkpoint": str(running.checkpoint)})
        if running.stopping:
            # Whoever stopped it may have been served before the start was.
            await self._supervisor.command({"do": "stop", "operator": running.spec.id})
            raise SbonError("operator-stopped", "it was stopped while it started", where=running.spec.id)
        self._tell(running, "running")

    def _tell(self, running: _Running, state: OperatorState, reason: str = "") -> None:
        running.state = state
        self._on_state(running.spec.id, state, reason)

    def _host_lost(self) -> None:
        for running in list(self._running.values()):
            if not self._closing and running.state != "failed":
                self._tell(running, "starting", "the engine host died")
                self._restart(running)

    def _restart(self, running: _Running) -> None:
        if not self._closing and not running.stopping and running.spec.id in self._running:
            self._tasks.start(f"restart {running.spec.id}", self._start_again(running))

    async def _start_again(self, running: _Running) -> None:
        while True:
            pause_s = min(MAX_PAUSE_S, self._settings.restart_s * 2 ** min(running.restarts, 10))
            running.restarts += 1
            await self._clock.sleep(pause_s)
            try:
                await self._start(running)
            except HostLostError as error:
                self._tell(running, "starting", str(error))
            except SbonError as error:
                log.warning("operator-not-started", operator=running.spec.id, reason=str(error))
                if error.code not in OF_THE_ENGINE:
                    self._tell(running, "failed", str(error))
                    return
                self._tell(running, "stopped" if error.code in PASSING else "starting", str(error))
            else:
                return

    def _ended(self, running: _Running, reason: str, final: bool) -> None:
        """The query has ended by itself. What stopped it may pass (a full disk, a killed worker), or come again."""
        refusal, running.refusal = running.refusal, None
        if refusal is None and "No space left on device" in reason:
            refusal = SbonError("disk-full", "no room for the checkpoint", where=running.spec.id, hint="free some space")
        told = str(refusal or reason)
        log.warning("operator-ended", operator=running.spec.id, reason=told)
        if refusal is not None and refusal.code in PASSING:
            self._tell(running, "stopped", told)
        elif refusal is not None or final or running.restarts >= self._settings.max_restarts:
            self._tell(running, "failed", told)
            return
        else:
            self._tell(running, "starting", told)
        self._restart(running)

    async def _settle(self, running: _Running) -> None:
        """No batch is planned any more; waits for the one under way to be committed and shown."""
        running.stopping = True
        quiet = 0
        try:
            async with self._clock.timeout(self._settings.stop_s):
                # Between a reader's answer and Spark's plan nothing can be seen of a batch, hence more than one look.
                while quiet < 3 and running.state == "running":
                    commits = running.log.commits()
                    quiet = quiet + 1 if running.log.is_settled() and running.shown >= max(commits, default=-1) else 0
                    await self._clock.sleep(SETTLE_POLL_S)
        except TimeoutError:
            log.info("operator-stopped-amid-a-batch", operator=running.spec.id)

    # -- what readers and outputs ask ---------------------------------------------------------------------------------

    async def _serve(self, request: dict[str, Any]) -> dict[str, Any]:
        running = self._running.get(request["operator"])
        if running is None:
            raise SbonError("operator-stopped", "the operator does not run here any more", where=request["operator"])
        try:
            return await self._answer(running, request)
        except SbonError as error:
            running.refusal = error
            raise
        except BrokenInvariantError as error:
            log.exception("broken-invariant", operator=running.spec.id)
            running.refusal = SbonError("broken-invariant", str(error), where=running.spec.id)
            raise running.refusal from error

    async def _answer(self, running: _Running, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "poll":
                after = msgspec.convert(request["after"], InputOffset)
                offset = await self._poll(running, request["position"], after, request["wait"])
                return {"offset": msgspec.to_builtins(offset)}
            case "fetch":
                frames = await running.port.fetch(request["position"], request["after"], request["upto"])
                running.born_ms = min([frame.born_ms for frame in frames if frame.rows], default=running.born_ms)
                self._count(running, rows_in=sum(f.rows for f in frames), bytes_in=sum(len(f.payload) for f in frames))
                return {"payloads": [frame.payload for frame in frames]}
            case "write":
                await self._write(running, request)
            case "committed":
                await self._committed(running, request["batch"])
            case "refuse":
                raise SbonError(request["code"], request["message"], where=running.spec.id)
            case "ended":
                self._ended(running, request["reason"], request["final"])
            case unknown:
                raise SbonError("unknown-request", f"no {unknown!r} here")
        return {"done": True}

    async def _poll(self, running: _Running, position: int, after: InputOffset, wait_s: float) -> InputOffset:
        """Spark asks the inputs one after another: one wait for all of them, whose answer the others find ready."""
        ready = running.answers.pop(position, None)
        if ready is None or ready.frame < after.frame:
            running.after[position] = after
            if running.stopping:
                await self._clock.sleep(SETTLE_POLL_S)
                return after
            found = await running.port.poll(tuple(running.after), wait_s)
            if running.stopping:
                return after
            running.answers = {i: offset for i, offset in enumerate(found) if i != position}
            ready = found[position]
        running.after[position] = ready
        return ready

    async def _committed(self, running: _Running, batch: int) -> None:
        """Batch ``batch + 1`` may never come: what cannot be shown now has to be shown later."""
        while True:
            try:
                await running.port.committed(batch)
            except SbonError as error:
                if error.code not in PASSING:
                    raise
                self._on_state(running.spec.id, running.state, str(error))
                await self._clock.sleep(self._settings.poll_s)
            else:
                running.shown = batch
                running.restarts = 0
                return

    async def _write(self, running: _Running, request: dict[str, Any]) -> None:
        offsets = msgspec.convert(request["offsets"], tuple[InputOffset, ...])
        born_ms = self._clock.wall_ms() if running.born_ms is None else running.born_ms
        drafts = [
            FrameDraft(
                payload=frame["payload"],
                rows=frame["rows"],
                watermark_ms=request["watermark_ms"],
                ended=request["ended"],
                born_ms=born_ms,
            )
            for frame in request["frames"]
        ]
        await running.port.write(request["batch"], offsets, drafts)
        running.born_ms = None
        self._count(
            running,
            rows_out=sum(d.rows for d in drafts),
            bytes_out=sum(len(d.payload) for d in drafts),
            batches=1,
            batch_ms=request["batch_ms"],
        )

    def _count(self, running: _Running, **more: float) -> None:
        old = running.stats
        changed = {name: getattr(old, name) + by for name, by in more.items() if name != "batch_ms"}
        if "batch_ms" in more:
            changed["batch_ms"] = more["batch_ms"] if not old.batches else 0.9 * old.batch_ms + 0.1 * more["batch_ms"]
        running.stats = msgspec.structs.replace(old, **changed)

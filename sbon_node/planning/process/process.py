"""The node's side of its planner process.

The process starts with the first request, handles one request at a time, and is replaced when it is lost.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import psutil
import structlog

from sbon_node.base.clock import Clock
from sbon_node.planning.process.limits import too_long, too_starved
from sbon_node.planning.process.messages import LENGTH_BYTES, Reply, Request, decode_reply, framed
from sbon_node.planning.sql.settings import QuerySettings
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

WORKER = "sbon_node.planning.process.worker"
PATIENCE = 4.0
"""Multiple of the processor-time limit after which the node kills the process.

The process bounds its processor time itself; this covers a busy machine and a hanging process.
"""
START_S = 20.0


class ProcessLostError(Exception):
    """The process ended before it answered; ``refusal`` tells the user why, if the node ended it for lack of an answer."""

    def __init__(self, reason: str, refusal: SbonError | None = None) -> None:
        super().__init__(reason)
        self.refusal = refusal


class PlannerProcess:
    """One process at a time."""

    def __init__(self, settings: QuerySettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._process: asyncio.subprocess.Process | None = None
        self._starts = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def running(self) -> int:
        """Number of the running process, from 1 on; 0 if none runs. A plan lives only as long as its process."""
        return self._starts if self._process is not None and self._process.returncode is None else 0

    async def exchange(self, request: Request) -> Reply:
        """Return the reply to one request; raise :class:`ProcessLostError`. The caller sends one request at a time."""
        if not self.running:
            await self.end()
            await self._start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        limit_s, before_s = START_S + PATIENCE * self._settings.plan_cpu_s, _processor_time_s(process.pid)
        try:
            async with self._clock.timeout(limit_s):
                process.stdin.write(framed(request))
                await process.stdin.drain()
                head = await process.stdout.readexactly(LENGTH_BYTES)
                return decode_reply(await process.stdout.readexactly(int.from_bytes(head, "big")))
        except TimeoutError as error:
            spent_s = _processor_time_s(process.pid) - before_s
            await self.end()
            is_starved = spent_s < self._settings.plan_cpu_s
            refusal = too_starved(spent_s, limit_s) if is_starved else too_long(self._settings)
            raise ProcessLostError("it did not answer in time", refusal) from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self.end()
            raise ProcessLostError(f"it ended with {process.returncode}") from error

    async def _start(self) -> None:
        command = (sys.executable, "-P", "-m", WORKER, str(self._settings.planner_memory_mb))
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
        except OSError as error:
            message = f"the planner process cannot be started: {error.strerror}"
            raise SbonError("planner-busy", message, hint="look at the limits of processes and memory of this machine") from error
        self._starts += 1
        log.info("planner-started", pid=self._process.pid)

    def kill(self) -> None:
        """Kill the process; an exchange in progress fails."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def end(self) -> None:
        """End the process, if it exists, completely. No exchange may be in progress."""
        self.kill()
        if self._process is not None:
            with suppress(ConnectionError):
                await self._process.communicate()
            self._process = None


def _processor_time_s(pid: int) -> float:
    try:
        spent = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(spent.user + spent.system)

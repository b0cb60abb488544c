"""Restarts after the death of an engine's JVM: seconds until all operators run again (``sbon bench restarts``).

Filters read a small frame five times a second each, so that most have a batch under way when the JVM is killed. An operator runs
again once a row is out that arrived after the kill.
"""

import asyncio
import statistics
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import uvloop

from sbon_lab.bench.rows import Rows
from sbon_lab.bench.sites import Ours, OursFlow
from sbon_lab.bench.work import FILTER
from sbon_lab.experiments.harness.experiment import Found, Notify, ignore
from sbon_node.base.clock import Clock
from sbon_node.base.logging.output import LogSettings, configure
from sbon_node.base.tasks import Tasks
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.jvm.archive import make_archive
from sbon_protocol.errors import SbonError

EVERY_S = 0.2
SETTLE_S = 3.0
_ROWS = 10
_FRAMES = 5000


class _Trickle:
    """Frames that arrive at one operator, whatever it does."""

    def __init__(self, flow: OursFlow, rows: Rows, clock: Clock) -> None:
        self.flow, self._rows, self._clock = flow, rows, clock
        self.passing = 0
        """Rows that have to come out of what has arrived."""

    async def run(self) -> None:
        for draft, passing in zip(self._rows.drafts, self._rows.passing, strict=True):
            self.passing += passing
            await self.flow.arrive([[draft]])
            await self._clock.sleep(EVERY_S)


def run(operators: int, *, turns: int, seed: int = 1, notify: Notify = ignore, found: Found = ignore) -> dict[str, Any]:
    """Return ``{"name": "restarts", "rows": [...]}``, a row for each kill: seconds of the first, median and last operator."""
    configure(LogSettings(level="error"))
    make_archive(EngineSettings())
    return {"name": "restarts", "rows": uvloop.run(_restarts(operators, turns, seed, notify, found))}


async def _restarts(operators: int, turns: int, seed: int, notify: Notify, found: Found) -> list[dict[str, Any]]:
    clock, tasks, rows = Clock.real(), Tasks(), Rows(seed, _FRAMES * _ROWS, _ROWS)
    with tempfile.TemporaryDirectory(prefix="sbon-bench-") as folder:
        ours = Ours(Path(folder), clock)
        async with ours.running():
            notify(f"{operators} operators start")
            trickles = []
            for number in range(operators):
                trickles.append(_Trickle(await ours.start(f"restarts-{number}", "simple", FILTER), rows, clock))
                tasks.start(f"trickle {number}", trickles[-1].run())
            try:
                results = []
                for turn in range(turns):
                    notify(f"kill {turn + 1} of {turns}")
                    results.append(await _kill(ours, trickles, clock))
                    found(results[-1])
                return results
            finally:
                await tasks.close()


async def _kill(ours: Ours, trickles: list[_Trickle], clock: Clock) -> dict[str, Any]:
    """Kill the JVM while all operators run; return the seconds until they run again."""
    await _all_after_now(trickles)
    await clock.sleep(SETTLE_S)
    began_s = clock.now()
    _jvm_of(ours.pid).kill()
    seconds = sorted(at_s - began_s for at_s in await _all_after_now(trickles))
    return {
        "operators": len(trickles),
        "first_s": round(seconds[0], 2),
        "median_s": round(statistics.median(seconds), 2),
        "all_s": round(seconds[-1], 2),
    }


def _jvm_of(engine: int) -> psutil.Process:
    """Return the JVM among the processes of an engine; others come and go."""
    for process in psutil.Process(engine).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name() == "java":
                return process
    raise SbonError("engine-failed", "the engine has no JVM", where=str(engine))


async def _all_after_now(trickles: list[_Trickle]) -> list[float]:
    """Return for each operator the time of the first row out that arrives from now on."""
    return list(await asyncio.gather(*(one.flow.outputs.wait(one.passing + 1) for one in trickles)))

"""The threads of a simulated process: work on files takes a drawn time, while its event loop goes on."""

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from sbon_lab.simulation.process import current_process
from sbon_node.base.executors import run_to_end

T = TypeVar("T")

USUAL_S = 0.000_5
"""Mean time of work in a thread, outside slow periods."""
AT_ONCE = 0.5
"""Share of the works that take no time."""


class SimulatedThreads:
    """Executor of one node (:class:`sbon_node.base.executors.Executor`). Until ``slow_until``, work takes up to ``slow_s``."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.slow_until, self.slow_s = 0.0, 0.0

    def is_slow(self) -> bool:
        return self.slow_until > 0.0 and asyncio.get_running_loop().time() < self.slow_until

    async def __call__(self, work: Callable[[], T], /) -> T:
        slow = self.is_slow()
        if not slow and self._rng.random() < AT_ONCE:
            return work()
        before_s, after_s = (self._draw(slow) for _ in range(2))
        return await run_to_end(self._run(work, before_s, after_s))

    async def _run(self, work: Callable[[], T], before_s: float, after_s: float) -> T:
        await asyncio.sleep(before_s)
        if (process := current_process.get()) is not None:
            process.check_alive()
        result = work()
        await asyncio.sleep(after_s)
        return result

    def _draw(self, slow: bool) -> float:
        return self._rng.uniform(0.0, self.slow_s) if slow else self._rng.expovariate(2 / USUAL_S)

"""Injected time: real for the daemon, virtual for the simulation, with the same code.

All waits use the running asyncio loop, which the simulation replaces by a loop in virtual time; so a single implementation serves
both, and only the wall clock differs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager


class Clock:
    """Monotonic time of the running loop, in seconds, and the wall clock, in milliseconds since 1970 (UTC)."""

    def __init__(self, wall_s: Callable[[], float] = time.time, monotonic_s: Callable[[], float] | None = None) -> None:
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s

    @classmethod
    def real(cls) -> Clock:
        """Return the clock of a node on the real network: uvloop's own advances in milliseconds, too coarse for round trips."""
        return cls(monotonic_s=time.monotonic)

    def now(self) -> float:
        """Return monotonic seconds, for intervals, deadlines and round-trip times."""
        return asyncio.get_running_loop().time() if self._monotonic_s is None else self._monotonic_s()

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, for other nodes and for users; may jump."""
        return int(self._wall_s() * 1000)

    def wall_us(self) -> int:
        """Return microseconds since 1970, to compare clocks."""
        return int(self._wall_s() * 1e6)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Limit a body, as in ``async with clock.timeout(s)``; it raises ``TimeoutError`` if it takes longer."""
        return asyncio.timeout(seconds)

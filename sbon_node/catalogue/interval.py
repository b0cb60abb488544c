"""Interval at which a node compares its catalogue with another node's."""

from __future__ import annotations

import asyncio
import random

from sbon_node.backoff import Backoff
from sbon_node.clock import Clock

SLOWEST = 8.0
"""Multiple of the interval: the longest pause."""


class ComparisonInterval:
    """Pauses that grow from ``interval_s`` to eight times that while nothing happens.

    Each pause varies at random by half its length. :meth:`stir` ends a long pause within an interval, and starts again from
    ``interval_s``.
    """

    def __init__(self, clock: Clock, rng: random.Random, interval_s: float) -> None:
        self._clock, self._rng, self._interval_s = clock, rng, interval_s
        self._backoff = Backoff(interval_s, SLOWEST * interval_s)
        self._stirred = asyncio.Event()

    def stir(self) -> None:
        self._stirred.set()

    async def pause(self) -> None:
        share = self._rng.uniform(0.5, 1.5)
        try:
            async with self._clock.timeout(self._backoff.next_s() * share):
                await self._stirred.wait()
        except TimeoutError:
            return
        self._stirred.clear()
        self._backoff.reset()
        await self._clock.sleep(self._interval_s * share)

"""History of running queries: their holder records points of each query's network usage every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sbon_node.model.usage import QueryUsagePoint
from sbon_node.queries.time_series import OLDEST_POINTS, TimeSeries, thinned
from sbon_node.workflow.context import Context


class UsageHistories:
    """Histories by query; ``running`` returns running queries, ``now`` a query's current point, None if it is over."""

    def __init__(
        self, context: Context, running: Callable[[], list[str]], now: Callable[[str], Awaitable[QueryUsagePoint | None]]
    ) -> None:
        self._context, self._running, self._now = context, running, now
        self._kept: dict[str, TimeSeries[QueryUsagePoint]] = {}
        self._last = ""

    def begin(self, query: str, *points: QueryUsagePoint) -> None:
        self._kept[query] = TimeSeries(self._context.settings.history_points, *points, complete=True)

    def end(self, query: str) -> None:
        self._kept.pop(query, None)

    def points(self, query: str, after_ms: int = -1) -> list[QueryUsagePoint]:
        history = self._kept.get(query)
        return [] if history is None else history.points(after_ms)

    def at_end(self, query: str) -> list[QueryUsagePoint]:
        """Return few enough points to be stored."""
        return thinned(self.points(query), OLDEST_POINTS)

    async def run(self) -> None:
        """Record points for ever.

        Each point costs a request to every node with a part; if many queries run, they take turns.
        """
        settings = self._context.settings
        while True:
            await self._context.clock.sleep(settings.history_interval_s)
            await asyncio.gather(*map(self._take, self._next(settings.history_queries)))

    def _next(self, most: int) -> list[str]:
        """Return the next queries in the order of their names."""
        running = sorted(query for query in self._running() if query in self._kept)
        if len(running) <= most:
            return running
        later = [query for query in running if query > self._last]
        chosen = (later + running)[:most]
        self._last = chosen[-1]
        return chosen

    async def _take(self, query: str) -> None:
        point = await self._now(query)
        if point is not None and query in self._kept:
            self._kept[query].add(point)

"""A user who follows a query through every death of its consumer and takes each frame once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from sbon_node.errors import SbonError
from sbon_node.model.delivery import Finished, Rows
from sbon_node.model.states import query_states
from sbon_node.simulation.cluster import NodeDiedError, SimulatedCluster

PATIENCE_S = 0.3
SLOW_S = 0.5
"""Seconds that a slow user needs for a frame."""


class Follower:
    """A user at the node ``name``: ``rows`` are those taken, ``taken`` their frames by stream; both outlive the node."""

    def __init__(self, cluster: SimulatedCluster, name: str, query: str) -> None:
        self._cluster, self._name, self._query = cluster, name, query
        self._word = f"who follows {query} at {name}"
        self.rows: list[tuple[object, ...]] = []
        self.taken: dict[str, int] = {}

    async def run(self) -> None:
        """Follow until the query reports its end; a missing query may come, or come back."""
        cluster, node = self._cluster, self._cluster.nodes[self._name]
        while True:
            await cluster.until(lambda: node.ready)
            try:
                if await cluster.answer(self._name, self._follow()):
                    return
            except (NodeDiedError, SbonError) as error:
                cluster.note(f"{self._name} is not followed: {error}")
            await cluster.sleep(PATIENCE_S)

    async def _follow(self) -> bool:
        daemon, node = self._cluster.nodes[self._name].daemon, self._cluster.nodes[self._name]
        again = asyncio.ensure_future(self._acknowledge_again(dict(self.taken)))
        try:
            async with aclosing(daemon.follow(self._query, dict(self.taken), word=self._word)) as events:  # type: ignore[type-var]
                async for event in events:
                    if isinstance(event, Finished):
                        return event.state == query_states.FINISHED
                    self._take(event)
                    if self._cluster.loop.time() < node.slow_until:
                        await self._cluster.clock.sleep(SLOW_S)
                    await daemon.acknowledge(self._query, {event.stream: event.number}, word=self._word)
            return False
        finally:
            again.cancel()
            await asyncio.wait([again])

    async def _acknowledge_again(self, taken: dict[str, int]) -> None:
        """Acknowledge the frames taken before, which do not come again; repeat it until the consumer has them again."""
        while taken:
            await self._cluster.clock.sleep(PATIENCE_S)
            try:
                await self._cluster.nodes[self._name].daemon.acknowledge(self._query, taken, word=self._word)
                return
            except SbonError as error:
                self._cluster.note(f"{self._name} does not acknowledge again: {error}")

    def _take(self, frame: Rows) -> None:
        if frame.number > self.taken.get(frame.stream, 0):
            self.rows += frame.rows
            self.taken[frame.stream] = frame.number

"""A user who has operators of a running query moved, one after another or at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sbon_node.errors import SbonError
from sbon_node.model.moves import MoveRequest
from sbon_node.model.records import QueryRecord
from sbon_node.simulation.casting import Life, PlannedMove
from sbon_node.simulation.cluster import SimulatedCluster


class UserMoves:
    """The moves of one life of a query. Whether a move succeeds must make no difference to the rows.

    ``during`` are the spans of steps, by their numbers, in which the user waited for a move.
    """

    def __init__(self, cluster: SimulatedCluster, life: Life, query: str, record: Callable[[], QueryRecord | None]) -> None:
        self._cluster, self._life, self._query, self._record = cluster, life, query, record
        self.during: list[tuple[int, int]] = []

    async def run(self) -> None:
        """Ask the query's holder for each move, and raise an error that no user may see."""
        waiting: list[asyncio.Task[None]] = []
        try:
            for move in self._life.moves:
                await self._cluster.sleep(move.after_s)
                waiting.append(self._cluster.loop.create_task(self._move(move)))
                if move.waits:
                    await asyncio.wait(waiting)
            await asyncio.gather(*waiting)
        finally:
            for task in waiting:
                task.cancel()

    async def _move(self, move: PlannedMove) -> None:
        cluster = self._cluster
        node = cluster.nodes[self._life.holder]
        await cluster.until(lambda: node.ready)
        history = cluster.fault_injector.plan.history
        begun = len(history)
        call = cluster.call(node.name, self._moved(move, node.daemon))
        try:
            await cluster.until(call.done)
        finally:
            self.during.append((begun, len(history)))
        error = asyncio.CancelledError() if call.cancelled() else call.exception()
        if error is not None and not isinstance(error, SbonError | asyncio.CancelledError):
            raise error
        cluster.note(f"{self._query} moved to {move.to}: {error or 'yes'}")

    async def _moved(self, move: PlannedMove, daemon: Any) -> None:
        record = self._record()
        if record is None:
            raise SbonError("unknown-query", "its record is gone", where=self._query)
        operators = record.plan.operators
        request = MoveRequest(operator=operators[move.operator % len(operators)].id, to=move.to, how=move.how)
        async for event in daemon.move_operator(record.id, request):
            self._cluster.note(f"{self._query} moves: {event}")

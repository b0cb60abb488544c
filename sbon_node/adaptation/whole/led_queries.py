"""The queries whose placement this node looks after while they run: those that it leads.

The leader of a query is the first acceptor of its record that lives, so another node leads when that one dies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

import structlog

from sbon_node.adaptation.decisions import LeaderDecisions
from sbon_node.adaptation.requested import RequestedMoves
from sbon_node.base.tasks import Tasks
from sbon_node.context import Context
from sbon_node.model.records import QueryRecord
from sbon_node.placement.settings import PlacementSettings
from sbon_node.queries.driving.holder import QueryHolder
from sbon_protocol.api.adaptation import Adapt
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.moves import MoveRequest
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.api.states import operator_states, query_states
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

Memory = TypeVar("Memory")


class LedQueries(ABC, Generic[Memory]):
    """Looks from time to time at the running queries that this node leads and that are adapted in this way.

    Each look is a task of its own. It may raise :class:`SbonError`; the next look comes all the same.
    """

    adapt: ClassVar[Adapt]
    """How the queries are adapted."""

    def __init__(
        self,
        context: Context,
        book: QueryHolder,
        mover: RequestedMoves,
        decisions: LeaderDecisions,
        placement: PlacementSettings,
        every_s: float,
    ) -> None:
        self._context, self._book, self._mover, self._decisions = context, book, mover, decisions
        self._placement, self._every_s = placement, every_s
        self._known: dict[str, Memory] = {}
        self._tasks = Tasks()

    @abstractmethod
    def _begin(self, now_s: float) -> Memory:
        """Return what looks at a query remember from the beginning of its leadership."""

    @abstractmethod
    async def _look(self, record: QueryRecord, memory: Memory) -> None:
        """Look at a query, and move its operators if that pays."""

    def start(self) -> None:
        self._tasks.start("looks", self._run())

    async def close(self) -> None:
        await self._tasks.close()

    def ids(self) -> list[str]:
        """Return the running queries that are adapted in this way and that this node leads."""
        records = (one for one in self._book.records() if one.state == query_states.RUNNING and one.adapt == self.adapt)
        return [record.id for record in records if self._book.leader(record.id) == self._context.name]

    async def _run(self) -> None:
        clock, rng = self._context.clock, self._context.rng
        while True:
            await clock.sleep(self._every_s * rng.uniform(0.75, 1.25))
            led = self.ids()
            for query in [one for one in self._known if one not in led]:
                del self._known[query]
                self._decisions.forget(query)
            for query in led:
                if query not in self._known:
                    self._known[query] = self._begin(clock.now())
                    self._decisions.begin(query)
                self._tasks.start(f"look {query}", self._look_at(query))

    async def _look_at(self, query: str) -> None:
        record = self._book.find(query)
        if record is None:
            return
        try:
            await self._look(record, self._known[query])
        except SbonError as error:
            log.info("query-not-adapted", query=query, code=error.code, reason=str(error))

    async def _move_operators(self, query: str, hosts: Mapping[str, str], found: Mapping[str, str], why: str) -> None:
        """Move operators one after another; the first that cannot move ends it, and a later look begins anew."""
        for operator, node in found.items():
            if hosts[operator] != node:
                try:
                    async for _ in self._mover.move(query, MoveRequest(operator=operator, to=node), why=why[:MAX_REASON]):
                        pass
                except SbonError as error:
                    self._decisions.failed(query, operator, error)
                    raise
                log.info("operator-adapted", operator=operator, target=node)


def settled_hosts(info: QueryInfo) -> dict[str, str] | None:
    """Return the host of each operator; None while one of them moves or does not run."""
    if any(one.move is not None or one.state != operator_states.RUNNING for one in info.operators):
        return None
    return {one.id: one.node for one in info.operators}

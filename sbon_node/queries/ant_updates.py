"""Updates of running placements by ants (ANTS, section 3.9), for queries with ``--adapt ants``.

The driver of a query's record is its leader: the first of its acceptors that lives, so another node leads when that one dies.
From time to time, and when the latency has grown by the factor beta, the leader sends ants as for a new query, whose own load
they leave out. If the placement that they find is faster than the present one by beta, its operators move there one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog

from sbon_node.directory.pairs import unordered
from sbon_node.errors import SbonError
from sbon_node.events import MoveDecided
from sbon_node.model.adaptation import ANTS, MOVES, STAYS, Verdict
from sbon_node.model.moves import MoveRequest
from sbon_node.model.operators import Needs
from sbon_node.model.queries import QueryInfo
from sbon_node.model.records import QueryRecord
from sbon_node.model.states import operator_states, query_states
from sbon_node.placement.model.from_plan import problem_of
from sbon_node.placement.model.measured_plan import measured_plan
from sbon_node.placement.model.objective import latency_by_queueing
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.model.queueing import Server
from sbon_node.placement.settings import PlacementSettings
from sbon_node.queries.ant_leader import AntLeader
from sbon_node.queries.holder import QueryHolder
from sbon_node.queries.moving import OperatorMover
from sbon_node.tasks import Tasks
from sbon_node.workflow.context import Context
from sbon_node.workflow.network_view import LiveNetworkView

log = structlog.get_logger()

LOOKS = 4
"""Looks at the present latency in the time between two updates."""
FASTER, NOT_FASTER, NOWHERE = "faster", "not-faster", "no-placement"


class UpdatingView(LiveNetworkView):
    """View for one look at a query: its own measurements, new ones, outrank filtered round-trip times."""

    sparing = True

    def __init__(self, context: Context, query: str, max_age_s: float) -> None:
        super().__init__(context, query)
        self.max_age_s = max_age_s
        self._measured_ms: dict[tuple[str, str], float] = {}

    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        measured_ms = await super().measure([pair for pair in pairs if unordered(pair) not in self._measured_ms])
        self._measured_ms |= {unordered(pair): ms for pair, ms in measured_ms.items()}
        return measured_ms

    def latency_ms(self, a: str, b: str) -> float:
        known_ms = self._measured_ms.get(unordered((a, b)))
        return super().latency_ms(a, b) if known_ms is None else known_ms


class _Kept:
    """Memory of a query that this node leads: when it is due, and its latency at the last update."""

    def __init__(self, due_s: float) -> None:
        self.due_s, self.latency_ms, self.rests_until_s = due_s, math.inf, -math.inf


class AntUpdates:
    """Looks after the placements of the queries that this node leads, one task for each."""

    def __init__(
        self, context: Context, book: QueryHolder, mover: OperatorMover, leader: AntLeader, placement: PlacementSettings
    ) -> None:
        self._context, self._book, self._mover, self._leader = context, book, mover, leader
        self._settings, self._placement = context.ant_settings, placement
        self._known: dict[str, _Kept] = {}
        self._tasks = Tasks()

    def start(self) -> None:
        self._tasks.start("updates", self._run())

    async def close(self) -> None:
        await self._tasks.close()

    def leads(self) -> list[str]:
        """Return the running queries of which this node is the leader, and which ants adapt."""
        records = (one for one in self._book.records() if one.state == query_states.RUNNING and one.adapt == ANTS)
        return [record.id for record in records if self._book.driver(record.id) == self._context.name]

    async def _run(self) -> None:
        clock, settings, rng = self._context.clock, self._settings, self._context.rng
        while True:
            await clock.sleep(settings.update_s / LOOKS * rng.uniform(0.75, 1.25))
            led = self.leads()
            self._known = {query: kept for query, kept in self._known.items() if query in led}
            for query in led:
                self._known.setdefault(query, _Kept(clock.now()))
                self._tasks.start(f"update {query}", self._look(query))

    async def _look(self, query: str) -> None:
        record = self._book.find(query)
        if record is None:
            return
        try:
            await self._update(record, self._known[query])
        except SbonError as error:
            log.info("ants-not-updated", query=query, code=error.code, reason=str(error))

    async def _update(self, record: QueryRecord, kept: _Kept) -> None:
        """Look at the latency; send ants if that is due, and move the operators if they find a faster placement."""
        settings, now = self._settings, self._context.clock.now()
        if now < kept.rests_until_s:
            return None
        info = await self._book.describe(record)
        if any(one.move is not None or one.state != operator_states.RUNNING for one in info.operators):
            return None
        hosts = {one.id: one.node for one in info.operators}
        problem = problem_of(measured_plan(record.plan, info.operators), record.consumer, None, record)
        if not problem.operators or hosts.keys() != {operator.id for operator in problem.operators}:
            return None
        view = UpdatingView(self._context, record.id, settings.update_s / LOOKS)
        present_ms = await self.latency_ms(problem, hosts, view)
        if now < kept.due_s and present_ms < settings.beta * kept.latency_ms:
            return None
        kept.due_s, kept.latency_ms = now + settings.update_s, present_ms
        found = await self._leader.look(problem, view, self._placement, record.id)
        if found is None:
            return self._decided(info, STAYS, NOWHERE, "no scout has found hosts for all operators")
        found_ms = await self.latency_ms(problem, found, view)
        text = f"ants found a placement of {found_ms:.1f} ms, it has {present_ms:.1f} ms"
        if found == hosts or found_ms * settings.beta >= present_ms:
            return self._decided(info, STAYS, NOT_FASTER, f"{text}; beta is {settings.beta:g}")
        self._decided(info, MOVES, FASTER, text, found)
        await self._move(record, hosts, found)
        kept.rests_until_s = self._context.clock.now() + settings.rest_s
        kept.latency_ms = found_ms
        return None

    async def latency_ms(self, problem: PlacementProblem, hosts: Mapping[str, str], view: LiveNetworkView) -> float:
        """Return the latency of the longest path with the operators on ``hosts``, by what the nodes say and measure now."""
        at = {**problem.pinned, **hosts}
        await view.measure(sorted({(at[e.source], at[e.target]) for e in problem.edges if at[e.source] != at[e.target]}))
        answers = await view.ask_all(sorted(set(hosts.values())), Needs(cores=0.0, memory_mb=0.0))
        servers = {node: answer.server or Server() for node, answer in answers.items()}
        return float(latency_by_queueing(problem, hosts, view.latency_ms, servers).longest_ms[0])

    async def _move(self, record: QueryRecord, hosts: Mapping[str, str], found: Mapping[str, str]) -> None:
        """Move operators one after another; the first that cannot move ends it, and a later update looks again."""
        for operator, node in found.items():
            if hosts[operator] != node:
                async for _ in self._mover.move(record.id, MoveRequest(operator=operator, to=node)):
                    pass
                log.info("operator-adapted-by-ants", operator=operator, target=node)

    def _decided(self, info: QueryInfo, verdict: Verdict, code: str, reason: str, found: Mapping[str, str] | None = None) -> None:
        """Publish the decision about each operator that moves, or about all that stay."""
        for operator in info.operators:
            target = (found or {}).get(operator.id, "")
            if verdict == STAYS or target != operator.node:
                event: Callable[..., MoveDecided] = partial(
                    MoveDecided,
                    query=info.id,
                    operator=operator.id,
                    verdict=verdict,
                    code=code,
                    reason=reason,
                    target=target if verdict == MOVES else "",
                )
                self._context.bus.publish("placement", event)

"""Updates of running placements by ants (ANTS, section 3.9), for queries with ``--adapt ants``.

From time to time, and when the latency has grown by the factor beta, the leader of a query sends ants as for a new query, whose
own load they leave out. If the placement that they find is faster than the present one by beta, enforcement ants have the work of
the operators that will move counted at their new hosts, and the operators move there one by one.
"""

import math
from collections.abc import Mapping

from sbon_node.adaptation.look import LookView
from sbon_node.adaptation.whole import LeaderParts, LedQueries, settled_hosts
from sbon_node.model.records import QueryRecord
from sbon_node.papers.ants.network.leader import AntLeader
from sbon_node.papers.ants.settings import AntSettings
from sbon_node.placement.model.from_plan import measured_problem
from sbon_node.placement.model.objective import latency_by_queueing
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.model.queueing import Server
from sbon_protocol.api.adaptation import ANTS, MOVES, STAYS
from sbon_protocol.api.operators import Needs
from sbon_protocol.errors import SbonError

LOOKS = 4
"""Looks at the present latency in the time between two updates."""
FASTER, NOT_FASTER, NOWHERE, TOO_BUSY = "faster", "not-faster", "no-placement", "too-busy"


class _UpdateMemory:
    """Memory of a query that this node leads: when it is due, and its latency at the last update.

    The first update is due after ``update_s``: before, the work of its rows is not measured, and any node would do.
    """

    def __init__(self, due_s: float) -> None:
        self.due_s, self.latency_ms, self.rests_until_s = due_s, math.inf, -math.inf


class AntUpdates(LedQueries[_UpdateMemory]):
    """Looks after the placements of the queries that this node leads and that ants adapt."""

    adapt = ANTS

    def __init__(self, parts: LeaderParts, ant_leader: AntLeader, settings: AntSettings) -> None:
        super().__init__(parts, settings.update_s / LOOKS)
        self._ant_leader, self._settings = ant_leader, settings

    def _begin(self, now_s: float) -> _UpdateMemory:
        return _UpdateMemory(now_s + self._settings.update_s)

    async def _look(self, record: QueryRecord, memory: _UpdateMemory) -> None:
        """Look at the latency; send ants if that is due, and move the operators if they find a faster placement."""
        context, settings, now = self._context, self._settings, self._context.clock.now()
        if now < memory.rests_until_s:
            return None
        info = await self._leader.describe(record)
        hosts = settled_hosts(info)
        problem = measured_problem(record.plan, info.operators, record.consumer, None, record, shared=info.shared)
        if not hosts or hosts.keys() != {operator.id for operator in problem.operators}:
            return None
        view = LookView(context, record.id, settings.update_s / LOOKS)
        present_ms = await self.latency_ms(problem, hosts, view)
        if now < memory.due_s and present_ms < settings.beta * memory.latency_ms:
            return None
        memory.due_s, memory.latency_ms = now + settings.update_s, present_ms
        reports = await self._ant_leader.look(problem, view, self._placement, record.id)
        if reports is None:
            return self._decisions.enter(info, STAYS, NOWHERE, "no scout has found hosts for all operators")
        found = {operator: node for report in reports for operator, node in report.hosts().items()}
        found_ms = await self.latency_ms(problem, found, view)
        text = f"ants found a placement of {found_ms:.1f} ms, it has {present_ms:.1f} ms"
        if found == hosts or found_ms * settings.beta >= present_ms:
            return self._decisions.enter(info, STAYS, NOT_FASTER, f"{text}; beta is {settings.beta:g}")
        claims = await self._ant_leader.claim(reports, hosts)
        if claims is None:
            return self._decisions.enter(info, STAYS, TOO_BUSY, f"{text}, but a host has become too busy for it")
        self._decisions.enter(info, MOVES, FASTER, text, found)
        try:
            await self._move_operators(record.id, hosts, found, text)
        except SbonError:
            self._ant_leader.release(claims)
            raise
        memory.rests_until_s = context.clock.now() + settings.rest_s
        memory.latency_ms = found_ms
        return None

    async def latency_ms(self, problem: PlacementProblem, hosts: Mapping[str, str], view: LookView) -> float:
        """Return the latency of the longest path with the operators on ``hosts``, by what the nodes say and measure now."""
        await view.measure_links(problem, hosts)
        answers = await view.ask_all(sorted(set(hosts.values())), Needs(cores=0.0, memory_mb=0.0))
        servers = {node: answer.server or Server() for node, answer in answers.items()}
        return float(latency_by_queueing(problem, hosts, view.latency_ms, servers).longest_ms[0])

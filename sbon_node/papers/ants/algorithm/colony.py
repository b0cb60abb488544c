"""A leader and its ants (ANTS, section 3.2) over local cells.

Routing ants find paths, scouts try placements along them, and the best is enforced. The ants' own files define the steps at a
cell; this file only carries ants from cell to cell.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from sbon_node.papers.ants.algorithm import routing, scouting
from sbon_node.papers.ants.algorithm.cell import Cell, Quote
from sbon_node.papers.ants.algorithm.chain import Chain
from sbon_node.papers.ants.algorithm.routing import RoutingAnt
from sbon_node.papers.ants.algorithm.scouting import EnforcementAnt, PathLatency, ScoutingAnt, Site
from sbon_node.placement.model.queueing import MAX_LOAD
from sbon_protocol.api.placement import Assignment, Candidate

FAILURES = 3
"""Scouts of different greed that must fail on a path before a scout discourages others."""
LEAST_ALPHA = 0.3
FLATTER, BEYOND = 0.25, 4
"""Changes with each further try: scouts heed pheromones less, and may go more hops past the destination."""


class Scouted(NamedTuple):
    """A placement of a chain as scouts report it. ``cost_ms`` is ``latency_ms`` of the chain plus the extra waiting of others."""

    chain: Chain
    sites: tuple[Site, ...]
    cost_ms: float
    latency_ms: float

    def hosts(self) -> dict[str, str]:
        """Return the node of each operator."""
        tasks = self.chain.tasks
        return {tasks[number].operator: site.node for site in self.sites for number in range(site.first, site.last)}

    def own(self) -> Scouted:
        """Return the report for the tasks that it does not leave to a running one."""
        passed = scouting.passed_by(self.chain, self.sites)
        fed_ms = 0.0 if passed is None else passed.fed_ms
        return Scouted(*scouting.own_part(self.chain, self.sites), self.cost_ms - fed_ms, self.latency_ms - fed_ms)


def assigned(reports: Sequence[Scouted], among: str) -> list[Assignment]:
    """Return the assignments of the first report; candidates are the nodes of all, with the least cost reported there."""
    best, least = reports[0], dict[str, dict[str, float]]()
    for report in reports:
        for operator, node in report.hosts().items():
            costs = least.setdefault(operator, {})
            costs[node] = min(costs.get(node, report.cost_ms), report.cost_ms)
    why = f"least latency by queueing ({best.latency_ms:.1f} ms for {best.chain.id}) of {len(reports)} {among}"
    assignments = []
    for operator, node in best.hosts().items():
        ranked = sorted(least[operator].items(), key=lambda pair: (pair[1], pair[0]))
        candidates = tuple(Candidate(node=one, distance_ms=0.0, accepted=True, predicted=cost) for one, cost in ranked)
        assignments.append(Assignment(operator=operator, node=node, reason=why, candidates=candidates))
    return assignments


class Colony:
    """All cells and their ants. ``path_ms`` returns the latency between two cells by the shortest path."""

    def __init__(self, cells: Mapping[str, Cell], path_ms: PathLatency, rng: random.Random) -> None:
        self.cells, self._path_ms, self._rng = cells, path_ms, rng

    def route(self, source: str, destination: str, ants: int, now: float = 0.0) -> int:
        """Send routing ants; return how many arrived."""
        arrived = 0
        for _ in range(ants if source != destination else 0):
            ant: RoutingAnt | None = RoutingAnt(destination=destination, path=(source,))
            node = source
            while ant is not None and node != destination:
                ant, node = routing.forward(self.cells[node], ant, self._rng, now)
                ant = routing.arrive(self.cells[node], ant)
            if ant is not None:
                arrived += 1
                before: str | None = ant.path[ant.at]
                while before is not None:
                    ant, before = routing.backward(self.cells[before], ant, now)
        return arrived

    def scout(
        self, chain: Chain, scouts: int, *, threshold_ms: float | None = None, strays: int = 0, now: float = 0.0
    ) -> list[Scouted]:
        """Send scouts, each with its own greed and alpha; return the reports of complete placements, best first.

        The greater ``strays``, the farther scouts leave the paths of the routing ants.
        """
        reports: list[Scouted] = []
        memory = _Memory(chain, self.cells, self._path_ms)
        for number in range(scouts):
            ant = ScoutingAnt(
                chain=chain,
                greed=self._rng.randint(1, max(1, len(chain.tasks))),
                most_load=self._rng.uniform(LEAST_ALPHA, MAX_LOAD),
                threshold_ms=threshold_ms,
                flat=min(1.0, strays * FLATTER),
                beyond=strays * BEYOND,
            )
            report = self._scouted(ant, number, memory, now)
            reports += [] if report is None else [report]
        return sorted(reports, key=lambda report: report.cost_ms)

    def enforce(self, report: Scouted) -> bool:
        """Book the report's tasks; return whether all sites still cost what was reported."""
        ant = EnforcementAnt(chain=report.chain, sites=report.sites)
        while ant.at < len(ant.sites):
            after = scouting.enforce(self.cells[ant.sites[ant.at].node], ant)
            if after is None:
                while ant.at > 0:
                    ant = scouting.withdraw(self.cells[ant.sites[ant.at - 1].node], ant)
                return False
            ant = after
        return True

    def place(self, chain: Chain, routing_ants: int, scouts: int, tries: int, now: float = 0.0) -> list[Scouted]:
        """Return the reports of the first successful try, best first; none if all tries fail.

        Each try sends both kinds of ants again, and its scouts stray farther.
        """
        for number in range(tries):
            self.route(chain.source, chain.destination, routing_ants, now)
            reports = self.scout(chain, scouts, strays=number, now=now)
            if reports:
                return reports
        return []

    def _scouted(self, ant: ScoutingAnt, number: int, memory: _Memory, now: float) -> Scouted | None:
        next_node: str | None
        ant, next_node = scouting.follows(self.cells[ant.chain.source], ant, number)
        next_node = next_node or ant.chain.source
        while next_node is not None:
            cell = self.cells[next_node]
            ant = scouting.prospect(cell, ant)
            ant, next_node = scouting.onward(cell, ant, self._rng, now)
        if not ant.complete:
            if ant.path[-1] == ant.chain.destination and scouting.fail(self.cells[ant.path[-1]], ant, FAILURES):
                for node in reversed(ant.path):
                    scouting.discourage(self.cells[node], ant, now)
            return None
        for node in reversed(ant.path):
            ant = memory.balanced(self.cells[node], ant)
        latency_ms = scouting.latency_ms(ant.chain, ant.sites, self._path_ms)
        cost_ms = latency_ms + sum(site.others_ms for site in ant.sites)
        return Scouted(ant.chain, ant.sites, cost_ms, latency_ms)


class _Memory:
    """A cache for scouts of one chain, most of which come to the same placements."""

    def __init__(self, chain: Chain, cells: Mapping[str, Cell], path_ms: PathLatency) -> None:
        self._chain, self._cells, self._path_ms = chain, cells, path_ms
        self._costs: dict[tuple[str, ...], float] = {}
        self._balanced: dict[tuple[str, tuple[Site, ...]], tuple[Site, ...]] = {}

    def balanced(self, cell: Cell, ant: ScoutingAnt) -> ScoutingAnt:
        """Return :func:`~sbon_node.papers.ants.algorithm.scouting.balance` of the ant, from the cache if known."""
        key = cell.name, ant.sites
        if key not in self._balanced:
            self._balanced[key] = scouting.balance(cell, ant, self._quote, self._cost_of).sites
        sites = self._balanced[key]
        return ant if sites == ant.sites else msgspec.structs.replace(ant, sites=sites)

    def _quote(self, node: str, first: int, last: int) -> Quote:
        return self._cells[node].quote(self._chain, first, last)

    def _cost_of(self, hosts: tuple[str, ...]) -> float:
        if hosts not in self._costs:
            self._costs[hosts] = scouting.cost_ms(self._chain, hosts, self._quote, self._path_ms)
        return self._costs[hosts]

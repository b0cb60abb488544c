"""HYBRID: coordinates select a few candidates for each operator, and measurements decide. Ours; it begins where SBON ends.

1. Virtual coordinates minimise the network usage of the whole query, sum DR x Lat
   (:mod:`~sbon_node.placement.solvers.geometric_median`), instead of RELAXATION's sum DR x Lat^2.
2. The pool consists of the nodes nearest to each virtual coordinate and the query's own endpoints.
3. For each operator and each node of the pool, the least cost of the whole query with the operator there is computed from
   estimated latencies (min-marginals, :mod:`~sbon_node.placement.solvers.elimination`).
4. The latencies between these nodes and the pinned ends of the operator's links are measured, the most promising nodes first
   (:mod:`~sbon_node.placement.selection.race`), with a budget of all latencies of ``candidates`` nodes. The candidates are the
   fully measured nodes, the consumer's node under a bound on delay, and the node that seems best. The ``finalists`` with the
   least cost by measurements remain for each operator.
5. The latencies between the finalists of linked operators are measured. Then the estimated links of the best placement among all
   candidates are measured, until it has none.
6. The hosts are asked for capacity. If one refuses, all candidates are asked for their free capacity, and the search continues
from 3
   without those that have too little. If an operator has no candidate left, a new pool, twice as large, takes other nodes.

:mod:`~sbon_node.placement.solvers.exact` handles queries that are not trees, bounds on delay, hosts that several operators of the
query would overload, and objectives with delay. Where nothing may be measured, the estimates decide, and the reasons say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from sbon_node.placement.model.instance import Floats, Instance, Ints, numbers
from sbon_node.placement.model.latency_matrix import LatencyMatrix
from sbon_node.placement.model.network_view import UNKNOWN_MS, NetworkView, Point
from sbon_node.placement.model.objective import network_usage
from sbon_node.placement.model.problem import Operator, PlacementProblem
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.selection.mapping import delay_bound, finish
from sbon_node.placement.selection.race import ROUNDS, Race
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.exact import Solution, solve
from sbon_node.placement.solvers.geometric_median import median_positions
from sbon_node.placement.solvers.sensitivity import paths_of
from sbon_node.placement.strategies.sbon.relaxation import pinned_positions
from sbon_protocol.api.placement import Assignment, Candidate, Placement
from sbon_protocol.errors import SbonError

REFINEMENTS, BUDGET = 4, 5
"""Rounds that add candidates, and the limit of measured pairs for each candidate and operator."""
SETTLINGS = 4
"""Rounds that measure the estimated links of the best placement."""

LEAST, TOGETHER = 80, 840
"""Least nodes around each virtual coordinate if operators are many, and most around all of them together.

Beyond the total, each operator gets fewer nodes than the settings say, but at least ``LEAST``.
"""
KEPT = 120
"""Nodes of the pool kept for each operator, by the estimates; the others are not considered again."""
MOST_NODES = 2_000
"""Most nodes of a pool.

Its latencies are all-pairs tables of some 50 bytes a pair. Where nodes are full, a new pool takes other nodes.
"""

MOST_ENTRIES, HOPS = 2_000_000, 2
"""Most entries of all-pairs tables over the pool, one table for each operator.

Beyond that, an operator considers only nodes near it and near the operators up to ``HOPS`` links away.
"""


async def hybrid(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query.

    Raises :class:`SbonError` ``no-capacity``, ``no-coordinate``, or ``delay-bound`` where no placement keeps the bound.
    """
    before = view.probes
    names = [operator.id for operator in problem.operators]
    rests = median_positions(names, problem.edges, pinned_positions(problem, view))
    capacity = KnownCapacity(problem, view)
    wide = min(settings.pool, max(LEAST, TOGETHER // max(1, len(names))))
    while True:
        search = _Search(problem, view, settings, rests, capacity, wide)
        result = await search.run()
        if result is not None:
            predicted = network_usage(problem, result.hosts(), result.estimated_ms)
            return finish("hybrid", problem, assignments(result, rests, capacity), view, before, predicted, capacity.cores())
        if search.last:
            raise await search.refusal()
        wide *= 2


class _Search:
    """A search over one pool, with ``wide`` nodes around each virtual coordinate."""

    def __init__(
        self,
        problem: PlacementProblem,
        view: NetworkView,
        settings: PlacementSettings,
        rests: dict[str, Point],
        capacity: KnownCapacity,
        wide: int,
    ) -> None:
        self._problem, self._view, self._settings, self._rests, self._room = problem, view, settings, rests, capacity
        near = {name: view.nearest(rest, wide, exclude=capacity.rejected[name]) for name, rest in rests.items()}
        hosts, ends = view.nodes(), set(problem.pinned.values())
        self._everyone = wide >= len(hosts)
        self._cut = len({node for some in near.values() for node, _ in some}) > MOST_NODES
        if self._cut:
            near = {name: some[: max(1, MOST_NODES // len(near))] for name, some in near.items()}
        self._distances = {name: dict(some) for name, some in near.items()}
        unknown = [node for node in (hosts if self._everyone else sorted(ends)) if view.coordinate(node) is None]
        pool = {node for some in self._distances.values() for node in some} | (ends.intersection(hosts) - set(unknown))
        if self._everyone:
            pool.update(sorted(set(unknown).intersection(hosts))[: max(0, MOST_NODES - len(pool))])
        self._pool = sorted(pool)
        self._latencies = LatencyMatrix(view, sorted(pool | ends), lost=[node for node in unknown if node not in ends])
        self._closest: Solution | None = None
        """The best solution that broke a bound; None where an operator had no candidate."""

    async def run(self) -> SearchResult | None:
        """Return the best placement that keeps all bounds and whose hosts have capacity."""
        if self._problem.bounds.max_delay_ms is not None and any(operator.load for operator in self._problem.operators):
            await self._room.learn(self._pool)
        while True:
            self._closest, instance = None, self._instance()
            if not all(len(candidates) for candidates in instance.candidates):
                return None
            wide = instance.narrowed(_best(instance, (await self._solved(instance)).least, KEPT))
            predicted = await self._solved(wide)
            first = await self._refine(wide, await self._choose(wide, predicted))
            finalists = _best(first, (await self._solved(first)).least, self._settings.finalists)
            last = first.narrowed(finalists, self._latencies.believed_ms())
            await self._measure_links(last)
            solution = await self._settle(first, last)
            if not solution.feasible:
                self._closest = solution
                return None
            if await self._room.grants(first.named(solution.hosts.tolist())):
                return SearchResult(self._latencies, self._distances, len(self._pool), wide, predicted, first, solution)
            await self._room.learn({first.nodes[host] for candidates in first.candidates for host in candidates.tolist()})

    @property
    def last(self) -> bool:
        """Whether no other pool can have more nodes."""
        more = self._cut and self._closest is None and all(self._distances.values())
        return self._everyone and not more

    async def refusal(self) -> SbonError:
        """Return the error that states why no placement was accepted."""
        for operator in self._problem.operators:
            if not any(node not in self._room.rejected[operator.id] for node in self._pool):
                return await self._room.refusal(operator, self._all_distances(operator))
        bound = self._problem.bounds.max_delay_ms
        if self._closest is not None and bound is not None and self._closest.delay_ms > bound:
            return delay_bound(bound, self._closest.delay_ms)
        return await self._room.nowhere(self._all_distances(self._problem.operators[0]))

    def _all_distances(self, operator: Operator) -> dict[str, float]:
        return dict(self._view.nearest(self._rests[operator.id], len(self._view.nodes())))

    def _instance(self) -> Instance:
        """Return the pool as known now, without nodes that have too little capacity for an operator."""
        operators = self._problem.operators
        within = self._reach() if len(self._pool) ** 2 * len(operators) > MOST_ENTRIES else {}
        number = {node: i for i, node in enumerate(self._latencies.nodes)}
        able: dict[tuple[frozenset[str], frozenset[str]], Ints] = {}
        candidates = []
        for operator in operators:
            near = within.get(operator.id, frozenset(self._pool))
            key = near, frozenset(self._room.rejected[operator.id])
            if key not in able:
                able[key] = numbers(sorted(key[0] - key[1]), number)
            candidates.append(able[key])
        nodes = self._latencies.nodes
        loads_ms = self._room.loads_ms(nodes)
        return Instance(self._problem, nodes, self._latencies.ms, candidates, self._room.free(nodes), loads_ms=loads_ms)

    def _reach(self) -> dict[str, frozenset[str]]:
        """Return the nodes that each operator of a large query considers.

        These are the nodes near its virtual coordinate and near those of operators up to ``HOPS`` links away, and the nodes that
        are in the pool for another reason.
        """
        others = frozenset(self._pool).difference(*self._distances.values())
        reach = {name: others.union(near) for name, near in self._distances.items()}
        for _ in range(HOPS):
            before = dict(reach)
            for edge in self._problem.edges:
                if edge.source in reach and edge.target in reach:
                    reach[edge.source] |= before[edge.target]
                    reach[edge.target] |= before[edge.source]
        return reach

    async def _choose(self, instance: Instance, predicted: Solution) -> Instance:
        """Return the candidates: nodes whose latencies to pinned ends are measured; where none can be, as many by estimates."""
        race, solution = Race(self._latencies, self._settings.candidates), predicted
        for _ in range(ROUNDS if self._settings.measure else 0):
            if not await race.round(instance, solution):
                break
            instance = instance.narrowed(instance.candidates, self._latencies.believed_ms())
            solution = await self._solved(instance)
        blind = self._latencies.trouble or not self._settings.measure
        chosen = []
        for operator, best in enumerate(_best(instance, solution.least, self._settings.candidates)):
            if not blind and len(instance.pinned_neighbours(operator)):
                whole = race.whole(instance, operator)
                few = best[: self._settings.finalists]
                best = np.concatenate([whole, few, instance.at_home(instance.candidates[operator])])
            chosen.append(np.unique(best))
        return instance.narrowed(chosen, self._latencies.believed_ms())

    async def _refine(self, instance: Instance, first: Instance) -> Instance:
        """Add, round by round, the nodes of the pool that look best by all measurements.

        Their cost is that to the current ends of the operator's links.
        """
        budget = BUDGET * self._settings.candidates * len(instance.candidates)
        for _ in range(REFINEMENTS):
            links = first.inner_links()
            if not links or not self._settings.measure or self._latencies.trouble:
                break
            believed = self._latencies.believed_ms()
            now = (await self._solved(first.narrowed(first.candidates, believed))).hosts
            await self._latencies.measure([(int(now[operator]), int(now[other])) for operator, other in links])
            fresh = []
            wide = await self._solved(instance.narrowed(instance.candidates, believed))
            for least, hosts, known in zip(wide.least, instance.candidates, first.candidates, strict=True):
                order = hosts[np.argsort(least, kind="stable")]
                fresh.append(order[~np.isin(order, known)][: self._settings.finalists])
            added = first.narrowed(fresh)
            pairs = [
                (end, int(host))
                for op, hosts in enumerate(fresh)
                for host in hosts
                for end in first.pinned_neighbours(op).tolist()
            ]
            for operator, other in links:
                pairs += [(int(host), int(now[other])) for host in fresh[operator]]
                pairs += [(int(host), int(now[operator])) for host in fresh[other]]
            if self._latencies.asked + len(pairs) > budget:
                break
            await self._latencies.measure(pairs)
            first = first.narrowed(
                [np.concatenate(both) for both in zip(first.candidates, added.candidates, strict=True)],
                self._latencies.believed_ms(),
            )
        return first

    async def _measure_links(self, last: Instance) -> None:
        if self._settings.measure:
            await self._latencies.measure(
                (int(a), int(b))
                for operator, other in last.inner_links()
                for a in last.candidates[operator]
                for b in last.candidates[other]
            )

    async def _settle(self, first: Instance, last: Instance) -> Solution:
        """Return the best placement of all candidates once its links are measured; of finalists after ``SETTLINGS`` rounds."""
        for _ in range(SETTLINGS):
            first = first.narrowed(first.candidates, self._latencies.believed_ms())
            solution = await self._solved(first)
            links = paths_of(first, solution.hosts)
            if not self._settings.measure or self._latencies.trouble or not any(self._latencies.open[link] for link in links):
                return solution
            await self._latencies.measure(links)
        believed = self._latencies.believed_ms()
        least = (await self._solved(first.narrowed(first.candidates, believed))).least
        return (await self._solved(last.narrowed(last.candidates, believed)))._replace(least=least)

    async def _solved(self, instance: Instance) -> Solution:
        return await self._view.compute(partial(solve, instance))


def _best(instance: Instance, least: list[Floats], k: int) -> list[Ints]:
    """Return the k cheapest candidates of each operator, best first. Under a bound on delay, the consumers' nodes are added."""
    candidates = []
    for hosts, costs in zip(instance.candidates, least, strict=True):
        best = hosts[np.argsort(costs, kind="stable")[:k]]
        candidates.append(np.concatenate([best, np.setdiff1d(instance.at_home(hosts), best)]))
    return candidates


# -- The reasons of a hybrid placement: every candidate with its estimated and its measured cost ----------------------


class SearchResult(NamedTuple):
    """A placement and the instances that it came from.

    ``predicted`` solves ``wide``, the nodes of the pool that seemed best by the estimates. ``solution`` solves ``first``, the
    candidates. ``distances`` are milliseconds from each operator's virtual coordinate to the nodes near it. ``pooled`` is the
    number of nodes in the pool.
    """

    latencies: LatencyMatrix
    distances: Mapping[str, Mapping[str, float]]
    pooled: int
    wide: Instance
    predicted: Solution
    first: Instance
    solution: Solution

    def hosts(self) -> dict[str, str]:
        return self.first.named(self.solution.hosts.tolist())

    def estimated_ms(self, a: str, b: str) -> float:
        """Return the estimate from before any measurement."""
        return float(self.latencies.estimated_ms[self.first.number[a], self.first.number[b]])

    def measured(self, operator: int) -> Ints:
        """Return the operator's candidates whose latencies to pinned neighbours are measured.

        Without pinned neighbours, those to the hosts of linked operators count.
        """
        candidates, ends = self.first.candidates[operator], self.first.pinned_neighbours(operator)
        if not len(ends):
            ends = self.solution.hosts[[sum(link) - operator for link in self.first.inner_links() if operator in link]]
        return candidates[self.latencies.measured[ends[:, None], candidates].all(axis=0)]


def assignments(result: SearchResult, rests: Mapping[str, Point], capacity: KnownCapacity) -> list[Assignment]:
    """Return each operator's assignment with its reason and all candidates, best first."""
    return [
        Assignment(
            operator=name,
            node=node,
            reason=_reason(result, index, name, node),
            virtual=rests[name],
            candidates=tuple(_candidates(result, index, name, capacity)),
        )
        for index, (name, node) in enumerate(result.hosts().items())
    ]


def _candidates(result: SearchResult, index: int, name: str, capacity: KnownCapacity) -> list[Candidate]:
    predicted = dict(zip(result.wide.candidates[index].tolist(), result.predicted.least[index].tolist(), strict=True))
    known = dict(zip(result.first.candidates[index].tolist(), result.solution.least[index].tolist(), strict=True))
    measured = set(result.measured(index).tolist())
    candidates = []
    for host in sorted(known, key=lambda host: (known[host], result.first.nodes[host])):
        node = result.first.nodes[host]
        refused = capacity.reason(name, node)
        candidates.append(
            Candidate(
                node=node,
                distance_ms=result.distances[name].get(node, UNKNOWN_MS),
                accepted=not refused,
                reason=refused,
                predicted=predicted.get(host),
                measured=known[host] if host in measured else None,
            )
        )
    return candidates


def _reason(result: SearchResult, index: int, name: str, node: str) -> str:
    many, measured = len(result.first.candidates[index]), len(result.measured(index)) or "none"
    why = f"least cost of {many}, {measured} of them measured, of {result.pooled} near the best point for it"
    if node in result.distances[name]:
        why += f" ({result.distances[name][node]:.1f} ms from it in the cost space)"
    return f"{why}; not all measured: {result.latencies.trouble}" if result.latencies.trouble else why

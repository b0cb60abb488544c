"""HYBRID: coordinates find a few candidates for each operator, measurements choose among them. Ours; it begins where SBON ends.

1. Virtual places minimise the network usage of the whole query, sum DR x Lat (:mod:`~sbon_node.placement.geometric`), and not
   RELAXATION's sum DR x Lat^2.
2. The nodes nearest to each virtual place, and the query's own endpoints, are the pool.
3. For each operator and each node of the pool, the least cost of the whole query with the operator there is computed by estimated
   latencies (min-marginals, :mod:`~sbon_node.placement.elimination`).
4. The ways between these and the pinned ends of the operator's links are measured, those first of whom may turn out the best
   (:mod:`~sbon_node.placement.race`), as many at most as ``candidates`` have. The candidates are those that are measured whole,
   the consumer's node under a bound on delay, and who seems best; by what they cost now the best ``finalists`` of each stay.
5. The ways between the finalists of operators that are linked are measured; then those of the best placement among all candidates
   that are only estimated, until the best has none.
6. The hosts are asked for room. Where one refuses, all candidates are asked what they have left, and it goes on from 3 without
   those that have too little; where an operator has no candidate left, there is another pool, twice as large, of the others.

Queries that are no trees, bounds on delay, hosts that several operators of the query would overload, and objectives with delay
are :mod:`~sbon_node.placement.solver`'s matter. Where nothing may be measured, the estimates decide, and the reasons say so.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from sbon_node.errors import SbonError
from sbon_node.placement.geometric import median_places
from sbon_node.placement.hybrid_reasons import Found, assignments
from sbon_node.placement.instance import Floats, Instance, Ints, numbers
from sbon_node.placement.mapping import delay_bound, finish
from sbon_node.placement.network_view import NetworkView, Point
from sbon_node.placement.objective import network_usage
from sbon_node.placement.problem import Operator, Placement, PlacementProblem
from sbon_node.placement.race import ROUNDS, Race
from sbon_node.placement.room import Room
from sbon_node.placement.sensitivity import ways_of
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solver import Solution, solve
from sbon_node.placement.strategies.relaxation import pinned_places
from sbon_node.placement.ways import Ways

REFINEMENTS, BUDGET = 4, 5
"""Rounds in which candidates are added, as long as fewer than so many pairs for each candidate and operator are measured."""
SETTLINGS = 4
"""How often ways of the best placement that are only estimated are measured."""

LEAST, TOGETHER = 80, 840
"""Nodes around each virtual place where operators are many, and around all of them together: beyond that each has fewer than the
settings say, though not fewer than so many."""
KEPT = 120
"""Of the pool for each operator, by the estimates; the others are not reckoned with again."""
MOST_NODES = 2_000
"""In a pool, whose ways are tables of all by all, some 50 bytes each; where nodes are full it is made anew, of others."""

MOST_ENTRIES, HOPS = 2_000_000, 2
"""Of tables of the whole pool by itself, one for each operator: where there would be more, an operator is reckoned with only at
what is near it and the operators so many links away."""


async def hybrid(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Raises :class:`SbonError` ``no-room``, ``no-coordinate``, or ``delay-bound`` where nothing found keeps to the bound."""
    before = view.questions
    names = [operator.id for operator in problem.operators]
    rests = median_places(names, problem.edges, pinned_places(problem, view))
    room = Room(problem, view)
    wide = min(settings.pool, max(LEAST, TOGETHER // max(1, len(names))))
    while True:
        search = _Search(problem, view, settings, rests, room, wide)
        found = await search.run()
        if found is not None:
            predicted = network_usage(problem, found.hosts(), found.estimated_ms)
            return finish("hybrid", problem, assignments(found, rests, room), view, before, predicted, room.cores())
        if search.last:
            raise await search.refusal()
        wide *= 2


class _Search:
    """One pool, ``wide`` nodes around each virtual place."""

    def __init__(
        self,
        problem: PlacementProblem,
        view: NetworkView,
        settings: PlacementSettings,
        rests: dict[str, Point],
        room: Room,
        wide: int,
    ) -> None:
        self._problem, self._view, self._settings, self._rests, self._room = problem, view, settings, rests, room
        near = {name: view.nearest(rest, wide, exclude=room.rejected[name]) for name, rest in rests.items()}
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
        self._ways = Ways(view, sorted(pool | ends), lost=[node for node in unknown if node not in ends])
        self._closest: Solution | None = None
        """What broke a bound; None where an operator had no candidate."""

    async def run(self) -> Found | None:
        """The best placement that keeps to all bounds, and whose hosts have room."""
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
            last = first.narrowed(finalists, self._ways.believed_ms())
            await self._measure_links(last)
            solution = await self._settle(first, last)
            if not solution.feasible:
                self._closest = solution
                return None
            if await self._room.grants(first.named(solution.hosts.tolist())):
                return Found(self._ways, self._distances, len(self._pool), wide, predicted, first, solution)
            await self._room.learn({first.nodes[host] for candidates in first.candidates for host in candidates.tolist()})

    @property
    def last(self) -> bool:
        """Whether no other pool can have more."""
        more = self._cut and self._closest is None and all(self._distances.values())
        return self._everyone and not more

    async def refusal(self) -> SbonError:
        """What kept every placement from being taken."""
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
        """The pool as it is known now, without the nodes that have too little room for an operator."""
        operators = self._problem.operators
        within = self._reach() if len(self._pool) ** 2 * len(operators) > MOST_ENTRIES else {}
        number = {node: i for i, node in enumerate(self._ways.nodes)}
        able: dict[tuple[frozenset[str], frozenset[str]], Ints] = {}
        candidates = []
        for operator in operators:
            near = within.get(operator.id, frozenset(self._pool))
            key = near, frozenset(self._room.rejected[operator.id])
            if key not in able:
                able[key] = numbers(sorted(key[0] - key[1]), number)
            candidates.append(able[key])
        return Instance(self._problem, self._ways.nodes, self._ways.ms, candidates, self._room.free(self._ways.nodes))

    def _reach(self) -> dict[str, frozenset[str]]:
        """Of a large query's pool what each operator is reckoned with at: the nodes near its own virtual place and near those of
        operators up to ``HOPS`` links away, and those that are in the pool for another reason."""
        others = frozenset(self._pool).difference(*self._distances.values())
        found = {name: others.union(near) for name, near in self._distances.items()}
        for _ in range(HOPS):
            before = dict(found)
            for edge in self._problem.edges:
                if edge.source in found and edge.target in found:
                    found[edge.source] |= before[edge.target]
                    found[edge.target] |= before[edge.source]
        return found

    async def _choose(self, instance: Instance, predicted: Solution) -> Instance:
        """The candidates: those whose ways to what is pinned are measured, and as many by the estimates where none can be."""
        race, solution = Race(self._ways, self._settings.candidates), predicted
        for _ in range(ROUNDS if self._settings.measure else 0):
            if not await race.round(instance, solution):
                break
            instance = instance.narrowed(instance.candidates, self._ways.believed_ms())
            solution = await self._solved(instance)
        blind = self._ways.trouble or not self._settings.measure
        chosen = []
        for operator, best in enumerate(_best(instance, solution.least, self._settings.candidates)):
            if not blind and len(instance.pinned_neighbours(operator)):
                whole = race.whole(instance, operator)
                few = best[: self._settings.finalists]
                best = np.concatenate([whole, few, instance.at_home(instance.candidates[operator])])
            chosen.append(np.unique(best))
        return instance.narrowed(chosen, self._ways.believed_ms())

    async def _refine(self, instance: Instance, first: Instance) -> Instance:
        """Adds, round by round, what looks best of the pool by all that was measured, to the ends of its links as they are
        now."""
        budget = BUDGET * self._settings.candidates * len(instance.candidates)
        for _ in range(REFINEMENTS):
            links = first.inner_links()
            if not links or not self._settings.measure or self._ways.trouble:
                break
            believed = self._ways.believed_ms()
            now = (await self._solved(first.narrowed(first.candidates, believed))).hosts
            await self._ways.measure([(int(now[one]), int(now[other])) for one, other in links])
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
            for one, other in links:
                pairs += [(int(host), int(now[other])) for host in fresh[one]]
                pairs += [(int(host), int(now[one])) for host in fresh[other]]
            if self._ways.asked + len(pairs) > budget:
                break
            await self._ways.measure(pairs)
            first = first.narrowed(
                [np.concatenate(both) for both in zip(first.candidates, added.candidates, strict=True)], self._ways.believed_ms()
            )
        return first

    async def _measure_links(self, last: Instance) -> None:
        if self._settings.measure:
            await self._ways.measure(
                (int(a), int(b))
                for one, other in last.inner_links()
                for a in last.candidates[one]
                for b in last.candidates[other]
            )

    async def _settle(self, first: Instance, last: Instance) -> Solution:
        """The best of all candidates once every link of it is measured; where that is not so after ``SETTLINGS``, of the
        finalists."""
        for _ in range(SETTLINGS):
            first = first.narrowed(first.candidates, self._ways.believed_ms())
            solution = await self._solved(first)
            links = ways_of(first, solution.hosts)
            if not self._settings.measure or self._ways.trouble or not any(self._ways.open[link] for link in links):
                return solution
            await self._ways.measure(links)
        believed = self._ways.believed_ms()
        least = (await self._solved(first.narrowed(first.candidates, believed))).least
        return (await self._solved(last.narrowed(last.candidates, believed)))._replace(least=least)

    async def _solved(self, instance: Instance) -> Solution:
        return await self._view.compute(partial(solve, instance))


def _best(instance: Instance, least: list[Floats], k: int) -> list[Ints]:
    """Of each operator the k candidates that cost least, the best one first, and the consumers' nodes under a bound on delay."""
    found = []
    for hosts, costs in zip(instance.candidates, least, strict=True):
        best = hosts[np.argsort(costs, kind="stable")[:k]]
        found.append(np.concatenate([best, np.setdiff1d(instance.at_home(hosts), best)]))
    return found

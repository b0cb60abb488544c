"""The best placement over the candidates of an instance.

It is exact where the objective is a sum over links and its optimum keeps the bounds, as for most queries. Otherwise it is the
best of several trade-offs, improved move by move.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from sbon_node.placement.model.instance import Floats, Instance, Ints
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.solvers.elimination import Elimination, TooWideError
from sbon_node.placement.solvers.moves import Moves

TRADE_OFFS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Extra charges for a millisecond of any link, in favour of delay. The unit is the mean rate of the query's links."""
CONDITIONINGS = 6
"""Rounds with the links outside a wide query's tree fixed at their ends of the last round."""
SWEEPS = 20
MOST_EXCHANGED = 5_000
"""Most placements tried at once that exchange the hosts of operators. If there were more, none is tried."""
OUT_OF_BOUNDS = 1e6
"""Penalty for exceeding a bound by 100 %, in multiples of the greatest cost of a placement.

A placement that breaks a bound is worse than any that keeps the bound, and than any nearer to it, at any cost.
"""


class Solution(NamedTuple):
    """A placement, its cost, and the least costs by candidate.

    ``hosts`` [operators] are node numbers, ``cost`` is the objective, and ``feasible`` says whether it keeps all bounds.
    ``least`` holds for each operator, by candidate, about the least cost with the operator there. That is the objective's
    additive part plus ``per_ms`` for each millisecond of any link. ``per_ms`` is greater than 0 where that led nearer to the
    bounds or to the objective.
    """

    hosts: Ints
    cost: float
    delay_ms: float
    feasible: bool
    least: list[Floats]
    per_ms: float = 0.0


def solve(instance: Instance) -> Solution:
    """Return the best solution, or the nearest to the bounds that the search reaches; every operator needs a candidate."""
    hosts, least = _additive(instance, 0.0)
    solution = _solution(instance, hosts, least)
    if solution.feasible and instance.problem.objective.additive:
        return solution
    bounded = instance.problem.bounds.max_delay_ms is not None or not instance.problem.objective.additive
    charged = 0.0
    if bounded:
        mean = float(instance.rates.mean()) * max(instance.problem.objective.usage, 1e-9) / 1000.0
        trades = [share * mean for share in TRADE_OFFS]
        traded = [_additive(instance, per_ms) for per_ms in trades]
        starts = [hosts, *(descent for descent, _ in traded)]
        ranked = sorted(range(len(starts)), key=lambda i: (penalised(instance, starts[i][None])[0], i))
        least, charged = [least, *(costs for _, costs in traded)][ranked[0]], [0.0, *trades][ranked[0]]
        starts = [*(starts[i] for i in ranked[:3]), _homeward(instance)]
        improved = [descend(instance, start) for start in starts]
        hosts = min(improved, key=lambda row: float(penalised(instance, row[None])[0]))
    else:
        hosts = Moves(instance, hosts).improve()
    return _solution(instance, hosts, least)._replace(per_ms=charged)


def _homeward(instance: Instance) -> Ints:
    """Return every operator at its candidate nearest to the consumers: it mostly keeps the bound on delay if any does."""
    sinks = instance.sinks()
    nearest = (hosts[instance.latency_ms[hosts][:, sinks].sum(axis=1).argmin()] for hosts in instance.candidates)
    return np.array(list(nearest), dtype=int)


def descend(instance: Instance, hosts: Ints) -> Ints:
    """Move operators until no move improves the placement.

    A move takes one operator, or two linked operators to one host, wherever that is best. If the result still breaks a bound,
    operators exchange hosts, or one takes another's host, and the other goes elsewhere.
    """
    current = float(penalised(instance, hosts[None])[0])
    moves = [(operator,) for operator in range(len(hosts))] + instance.inner_links()
    for _ in range(SWEEPS):
        before = current
        for operators in moves:
            common = instance.candidates[operators[0]]
            for other in operators[1:]:
                common = np.intersect1d(common, instance.candidates[other])
            if not len(common):
                continue
            moved = np.repeat(hosts[None], len(common), axis=0)
            moved[:, list(operators)] = common[:, None]
            costs = penalised(instance, moved)
            best = int(costs.argmin())
            if costs[best] < current - least_gain(instance, current):
                hosts, current = moved[best], float(costs[best])
        if current >= before:
            many = len(hosts) * sum(len(candidates) for candidates in instance.candidates)
            if current < instance.scale or many > MOST_EXCHANGED:
                break
            moved = _exchanged(instance, hosts)
            costs = penalised(instance, moved)
            best = int(costs.argmin())
            if costs[best] >= current - least_gain(instance, current):
                break
            hosts, current = moved[best], float(costs[best])
    return hosts


def _exchanged(instance: Instance, hosts: Ints) -> Ints:
    """Return this placement, and those in which an operator takes another's host, which goes to a candidate, [k, operators]."""
    rows = [hosts[None]]
    for guest, candidates in enumerate(instance.candidates):
        for operator, may in enumerate(instance.candidates):
            if hosts[operator] != hosts[guest] and hosts[guest] in may:
                moved = np.repeat(hosts[None], len(candidates), axis=0)
                moved[:, operator], moved[:, guest] = hosts[guest], candidates
                rows.append(moved)
    return np.concatenate(rows)


def _additive(instance: Instance, per_ms: float) -> tuple[Ints, list[Floats]]:
    """Return the best placement by links alone, and the least costs by candidate. ``per_ms`` is charged for each millisecond."""
    unary, pairwise = instance.factors(per_ms)
    try:
        exact = Elimination(unary, pairwise)
        return _hosts(instance, exact.solution()), exact.marginals()
    except TooWideError:
        spanning = _tree(instance, pairwise)
    dropped = {pair: costs for pair, costs in pairwise.items() if pair not in spanning}
    best, lowest, least = None, np.inf, []
    chosen: list[int] | None = None
    for _ in range(CONDITIONINGS):
        charged = [costs.copy() for costs in unary]
        for (operator, other), costs in dropped.items():
            charged[operator] += costs.min(axis=1) if chosen is None else costs[:, chosen[other]]
            charged[other] += costs.min(axis=0) if chosen is None else costs[chosen[operator]]
        tree = Elimination(charged, {pair: pairwise[pair] for pair in spanning})
        chosen = tree.solution()
        hosts = _hosts(instance, chosen)
        cost = float(instance.evaluate(hosts[None]).additive[0])
        if cost < lowest:
            best, lowest, least = hosts, cost, tree.marginals()
    assert best is not None
    return (descend(instance, best) if per_ms == 0.0 else best), least


def _tree(instance: Instance, pairwise: dict[tuple[int, int], Floats]) -> set[tuple[int, int]]:
    """Return a spanning forest of the linked pairs, highest rates first (Kruskal, 1956)."""
    rates: dict[tuple[int, int], float] = dict.fromkeys(pairwise, 0.0)
    for source, target, rate in zip(instance.sources.tolist(), instance.targets.tolist(), instance.rates.tolist(), strict=True):
        pair = (min(source, target), max(source, target))
        if pair in rates:
            rates[pair] += rate
    root = list(range(len(instance.operators)))

    def top(vertex: int) -> int:
        while root[vertex] != vertex:
            vertex = root[vertex]
        return vertex

    spanning = set()
    for pair in sorted(rates, key=lambda p: (-rates[p], p)):
        top_of_first, other = top(pair[0]), top(pair[1])
        if top_of_first != other:
            root[top_of_first] = other
            spanning.add(pair)
    return spanning


def _hosts(instance: Instance, chosen: list[int]) -> Ints:
    return np.array([candidates[i] for candidates, i in zip(instance.candidates, chosen, strict=True)], dtype=int)


def penalised(instance: Instance, hosts: Ints) -> Floats:
    """Return the objective of placements [k, operators], or a far greater penalty where a bound is broken, [k].

    The penalty depends only on the excess. If costs counted, all operators would stay crowded where that is cheap.
    """
    cost = instance.evaluate(hosts)
    bound = instance.problem.bounds.max_delay_ms
    beyond = cost.overload if bound is None else cost.overload + np.maximum(cost.delay_ms - bound, 0.0) / max(bound, 1e-3)
    penalty: Floats = instance.total(cost) + OUT_OF_BOUNDS * instance.scale * beyond
    return penalty


def least_gain(instance: Instance, penalty: float) -> float:
    """Return the least gain that counts, for placements with about this penalised cost."""
    return 1e-9 * min(abs(penalty), instance.scale)


def _solution(instance: Instance, hosts: Ints, least: list[Floats]) -> Solution:
    cost = instance.evaluate(hosts[None])
    bound = instance.problem.bounds.max_delay_ms
    delay_ms = float(cost.delay_ms[0])
    feasible = float(cost.overload[0]) == 0.0 and (bound is None or delay_ms <= bound + 1e-9)
    return Solution(hosts, float(instance.total(cost)[0]), delay_ms, feasible, least)


WIDTH = 16
"""Cheapest hosts considered for each operator, where delay counts or is bounded."""


def improved(instance: Instance, start: Ints) -> Ints:
    """Improve a placement by sums over links; where delay counts, that result or the start by the whole objective as well."""
    better = Moves(instance, start).improve()
    if instance.problem.objective.additive and instance.problem.bounds.max_delay_ms is None:
        return better
    descents = []
    for hosts in (start, better):
        few = [np.union1d(candidate_nodes, hosts) for candidate_nodes in Moves(instance, hosts).cheapest(WIDTH)]
        descents.append(descend(instance.narrowed(few), hosts))
    costs = penalised(instance, np.array(descents))
    return descents[int(costs.argmin())]


def feasible(instance: Instance, hosts: Ints) -> bool:
    """Return whether every host has capacity for its operators, and the delay is within the bound."""
    cost, bound = instance.evaluate(hosts[None]), instance.problem.bounds.max_delay_ms
    return bool(cost.overload[0] == 0.0 and (bound is None or cost.delay_ms[0] <= bound + 1e-9))


async def repaired(view: NetworkView, instance: Instance, wished: Ints) -> Ints | None:
    """Improve the placement in which each operator is at its candidate nearest to ``wished`` [operators].

    Return None if the result breaks a bound; another placement may still keep them all. Every operator needs a candidate.
    """
    ms = instance.latency_ms
    near = [int(can[ms[host, can].argmin()]) for host, can in zip(wished.tolist(), instance.candidates, strict=True)]
    hosts = await view.compute(partial(improved, instance, np.array(near, dtype=int)))
    return hosts if feasible(instance, hosts) else None

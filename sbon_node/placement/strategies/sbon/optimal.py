"""OPTIMAL: the placement of least cost over all hosts, by known latencies (SBON, section 4.1).

The paper tries all placements. This strategy eliminates one operator after another; on a tree that is a dynamic program over
operators and hosts (:mod:`~sbon_node.placement.solvers.elimination`). Where a host has too little capacity for all its operators,
it uses branch and bound on that. It solves an integer program (:mod:`~sbon_node.placement.solvers.milp`) where branches are too
many, the delay is bounded or charged, or the query is so far from a tree that tables would not fit. Both methods cover only hosts
that can be in an optimum: a host is excluded for an operator if the whole query with the operator there costs more, bounds
ignored, than a placement that keeps all bounds.
"""

import heapq
import itertools
from functools import partial
from typing import NamedTuple

import numpy as np

from sbon_node.placement.model.instance import Floats, Instance, Ints, numbers
from sbon_node.placement.model.latency_matrix import all_pairs_ms
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.selection.mapping import finish
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.elimination import Elimination, TooWideError
from sbon_node.placement.solvers.exact import solve
from sbon_node.placement.solvers.milp import EXACT_S, Optimum, integer_optimum
from sbon_protocol.api.placement import Assignment, Placement
from sbon_protocol.errors import SbonError

MAX_BRANCHES = 400
MAX_ENTRIES = 1_000_000_000
"""Most entries of the tables of all branches. Beyond either limit, the integer program decides."""


async def optimal(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Ask the hosts of the optimum for capacity; if one refuses, ask all nodes, and take the optimum with these capacities.

    Raises :class:`SbonError` ``no-capacity``, ``delay-bound``, ``too-large``, ``unsupported-objective`` where latency by queueing
    is requested, or ``input-missing`` where the integer program is needed and highspy is not installed.
    """
    before = view.probes
    capacity = KnownCapacity(problem, view)
    hosts = view.nodes()
    nodes = sorted({*hosts, *problem.pinned.values()})
    latency_ms = await all_pairs_ms(view, nodes, "optimal")
    number = {node: i for i, node in enumerate(nodes)}
    while True:
        candidates = [
            numbers([node for node in hosts if node not in capacity.rejected[operator.id]], number)
            for operator in problem.operators
        ]
        for operator, left in zip(problem.operators, candidates, strict=True):
            if not len(left):
                raise await capacity.refusal(operator, {})
        loads_ms = capacity.loads_ms(nodes)
        instance = Instance(problem, nodes, latency_ms, candidates, capacity.free(nodes), loads_ms=loads_ms)
        solution = await view.compute(partial(optimum, instance, settings.exact_s))
        if solution is None:
            raise await _infeasible(instance, capacity, view)
        node_of = instance.named(solution.hosts.tolist())
        if await capacity.grants(node_of):
            reason = f"least cost of all placements on {len(hosts)} nodes"
            assignments = [Assignment(operator=operator, node=node, reason=reason) for operator, node in node_of.items()]
            return finish("optimal", problem, assignments, view, before)
        await capacity.learn(hosts)


def optimum(instance: Instance, limit_s: float = EXACT_S) -> Optimum | None:
    """Return the best placement that keeps all bounds; None if there is none. Every operator needs a candidate.

    Raises :class:`SbonError` ``too-large``, also where an integer program takes more than ``limit_s``.
    """
    try:
        exact = Elimination(*instance.factors())
    except TooWideError:
        return integer_optimum(instance, limit_s)
    best, bound, weights = _best(instance, exact), instance.problem.bounds.max_delay_ms, instance.problem.objective
    if not instance.operators and bound is not None:
        return Optimum(best.hosts, exact.least) if best.delay_ms[0] <= bound else None
    in_time = weights.additive and (bound is None or best.delay_ms[0] <= bound)
    if in_time and best.overload[0] == 0.0:
        return Optimum(best.hosts, float(best.additive[0]))
    reached = solve(instance)
    if reached.feasible:
        fixed = float(best.additive[0]) - exact.least
        most = reached.cost - fixed + 1e-9 * abs(reached.cost)
        instance = instance.narrowed([c[least <= most] for c, least in zip(instance.candidates, exact.marginals(), strict=True)])
    if weights.additive and bound is None:
        try:
            return _branched(instance)
        except _TooManyBranchesError:
            pass
    return integer_optimum(instance, limit_s)


class _Best(NamedTuple):
    """The best placement without regard to capacity, with the costs of :class:`~sbon_node.placement.model.instance.Cost`, [1]."""

    hosts: Ints
    additive: Floats
    delay_ms: Floats
    overload: Floats
    latency_ms: Floats


class _TooManyBranchesError(Exception):
    """There are too many branches; an integer program is better."""


def _best(instance: Instance, exact: Elimination) -> _Best:
    chosen = exact.solution()
    hosts: Ints = np.array([c[i] for c, i in zip(instance.candidates, chosen, strict=True)], dtype=int)
    return _Best(hosts, *instance.evaluate(hosts[None]))


def _branched(instance: Instance) -> Optimum | None:
    """Find the optimum by branch and bound over hosts with too little capacity.

    Each branch excludes another operator of the crowded host and keeps those before it there. The branch whose best placement
    costs least is explored first, so the first placement within all capacities is the optimum.
    """
    order = itertools.count()
    open_: list[tuple[float, int, Instance, _Best]] = []

    def look(branch: Instance) -> None:
        if all(len(candidates) for candidates in branch.candidates):
            bound = _best(branch, Elimination(*branch.factors()))
            heapq.heappush(open_, (float(bound.additive[0]), next(order), branch, bound))

    look(instance)
    for _ in range(min(MAX_BRANCHES, MAX_ENTRIES // _entries(instance))):
        if not open_:
            return None
        cost, _, branch, bound = heapq.heappop(open_)
        if bound.overload[0] == 0.0:
            return Optimum(bound.hosts, cost)
        host, crowd = _crowded(branch, bound.hosts)
        candidates = list(branch.candidates)
        for operator in crowd:
            elsewhere = list(candidates)
            elsewhere[operator] = candidates[operator][candidates[operator] != host]
            look(branch.narrowed(elsewhere))
            candidates[operator] = np.array([host])
    raise _TooManyBranchesError


def _entries(instance: Instance) -> int:
    """Return the entries of a branch's tables, one table for each pair of linked operators."""
    sizes = [len(candidates) for candidates in instance.candidates]
    return max(sum(sizes), sum(sizes[source] * sizes[other] for source, other in instance.inner_links()))


def _crowded(instance: Instance, hosts: Ints) -> tuple[int, list[int]]:
    """Return the first host with too little capacity, and its operators."""
    for host in hosts.tolist():
        crowd = np.flatnonzero(hosts == host)
        if (instance.needs[crowd].sum(axis=0) > instance.free[host] + 1e-9).any():
            return host, [int(operator) for operator in crowd]
    raise AssertionError("no host is overloaded")


async def _infeasible(instance: Instance, capacity: KnownCapacity, view: NetworkView) -> SbonError:
    bound = instance.problem.bounds.max_delay_ms
    if bound is not None:
        fastest = (await view.compute(partial(solve, instance))).delay_ms
        if fastest > bound:
            takes = f"the fastest found takes {fastest:.1f} ms, {fastest - bound:.1f} ms too long"
            message = f"no placement keeps to {bound:g} ms; {takes}"
            hint = "allow more delay, or add nodes near the sources or the consumer"
            return SbonError("delay-bound", message, where="max_delay_ms", hint=hint)
    return await capacity.nowhere()

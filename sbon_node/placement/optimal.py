"""OPTIMAL: the placement of least cost over all hosts, by the latencies that are known (SBON, section 4.1).

Not by trying all placements, as the paper does, but by eliminating one operator after another, which on a tree is a dynamic
programme over operators and hosts (:mod:`~sbon_node.placement.elimination`). Where an operator's best host has no room, the delay
is bounded or charged, or the query is so far from a tree that tables would not fit, an integer programme is solved
(:mod:`~sbon_node.placement.programme`) over the hosts that can be in an optimum: no host is for an operator with which the whole
query costs more, all bounds left aside, than a placement that keeps to them.
"""

from __future__ import annotations

import numpy as np

from sbon_node.errors import SbonError
from sbon_node.placement.elimination import Elimination, TooWideError
from sbon_node.placement.instance import Instance, Ints, numbers
from sbon_node.placement.mapping import finish
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import Assignment, Placement, PlacementProblem
from sbon_node.placement.programme import Optimum, integer_optimum
from sbon_node.placement.room import Room
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solver import solve


async def optimal(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Asks the hosts of the optimum for room; where one refuses, all nodes, and takes the optimum with that.

    Raises :class:`SbonError` ``no-room``, ``delay-bound``, ``too-large``, or ``input-missing`` where the integer programme is
    needed and highspy not installed.
    """
    before = view.questions
    room = Room(problem, view)
    hosts = view.nodes()
    nodes = sorted({*hosts, *problem.pinned.values()})
    latency_ms = view.latencies_ms(nodes, nodes)
    number = {node: i for i, node in enumerate(nodes)}
    while True:
        candidates = [
            numbers([node for node in hosts if node not in room.rejected[operator.id]], number) for operator in problem.operators
        ]
        for operator, left in zip(problem.operators, candidates, strict=True):
            if not len(left):
                raise await room.refusal(operator, {})
        instance = Instance(problem, nodes, latency_ms, candidates, room.free(nodes))
        found = optimum(instance)
        if found is None:
            raise await _infeasible(instance, room)
        placed = instance.named(found.hosts.tolist())
        if await room.grants(placed):
            reason = f"least cost of all placements on {len(hosts)} nodes"
            return finish(
                "optimal", problem, [Assignment(operator=o, node=n, reason=reason) for o, n in placed.items()], view, before
            )
        await room.learn(hosts)


def optimum(instance: Instance) -> Optimum | None:
    """The best placement that keeps to all bounds; None where there is none. Every operator needs a candidate."""
    try:
        exact = Elimination(*instance.factors())
    except TooWideError:
        return integer_optimum(instance)
    chosen = exact.solution()
    hosts: Ints = np.array([c[i] for c, i in zip(instance.candidates, chosen, strict=True)], dtype=int)
    cost = instance.evaluate(hosts[None])
    bound, weights = instance.problem.bounds.max_delay_ms, instance.problem.objective
    if weights.additive and cost.overload[0] == 0.0 and (bound is None or cost.delay_ms[0] <= bound):
        return Optimum(hosts, float(cost.additive[0]))
    reached = solve(instance)
    if not reached.feasible:
        return integer_optimum(instance)
    fixed = float(cost.additive[0]) - exact.least
    most = reached.cost - fixed + 1e-9 * abs(reached.cost)
    return integer_optimum(
        instance.narrowed([c[least <= most] for c, least in zip(instance.candidates, exact.marginals(), strict=True)])
    )


async def _infeasible(instance: Instance, room: Room) -> SbonError:
    bound = instance.problem.bounds.max_delay_ms
    if bound is not None:
        fastest = solve(instance).delay_ms
        if fastest > bound:
            message = f"no placement keeps to {bound:g} ms; the fastest found takes {fastest:.1f} ms"
            hint = "allow more delay, or add nodes near the sources or the consumer"
            return SbonError("delay-bound", message, where="max_delay_ms", hint=hint)
    return await room.refusal(instance.problem.operators[0], {})

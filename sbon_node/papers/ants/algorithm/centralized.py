"""CENTRALIZED: steepest descent with knowledge of all nodes (Pandit, Strom, Buttner, Ginis).

ANTS compares with it in section 4. It begins with all operators on the single node where that costs least. It takes the best of
all moves of one operator as long as a move is better. The paper leaves the beginning open. If the result breaks a bound, or
capacity is short, several operators move at once (:mod:`~sbon_node.placement.solvers.exact`). It minimises the problem's
objective; with latency by queueing, this is the method that ANTS compares with.
"""

from functools import partial

import numpy as np

from sbon_node.placement.model.instance import RESOURCES, Instance, Ints, numbers
from sbon_node.placement.model.latency_matrix import all_pairs_ms
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.model.queueing import Server
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.selection.discovery import ask_offers
from sbon_node.placement.selection.mapping import finish
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.exact import feasible, least_gain, penalised, repaired
from sbon_protocol.api.placement import Assignment, Placement

MOST_STEPS = 10_000


async def centralized(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query; every node is asked for its load and capacity. Raises :class:`SbonError` ``no-capacity``."""
    before = view.probes
    if not problem.operators:
        return finish("centralized", problem, [], view, before)
    capacity, hosts = KnownCapacity(problem, view), view.nodes()
    nodes = sorted({*hosts, *problem.pinned.values()})
    latency_ms, number = await all_pairs_ms(view, nodes, "centralized"), {node: i for i, node in enumerate(nodes)}
    offers = await ask_offers(problem, view, hosts)
    offered = np.full((len(nodes), RESOURCES), np.inf)
    for node, offer in offers.items():
        offered[number[node], :3] = offer.free.amounts
    servers = [offers[node].server if node in offers else Server() for node in nodes]
    while True:
        free = np.minimum(offered, capacity.free(nodes))
        candidates = [numbers([n for n in hosts if n not in capacity.rejected[o.id]], number) for o in problem.operators]
        instance = Instance(problem, nodes, latency_ms, candidates, free, servers)
        fitting = [_fitting(instance, operator) for operator in range(len(candidates))]
        for operator, left in zip(problem.operators, fitting, strict=True):
            if not len(left):
                raise await capacity.refusal(operator, {})
        chosen = await view.compute(partial(steepest_descent, instance.narrowed(fitting)))
        why = f"steepest descent over {len(hosts)} nodes"
        if not feasible(instance, chosen) and (moved := await repaired(view, instance.narrowed(fitting), chosen)) is not None:
            chosen, why = moved, f"{why}, and moves of several at once, as it kept to no bounds alone"
        if instance.evaluate(chosen[None]).overload[0] > 0.0:
            raise await capacity.nowhere()
        assigned = instance.named(chosen.tolist())
        if await capacity.grants(assigned):
            assignments = [Assignment(operator=operator, node=node, reason=why) for operator, node in assigned.items()]
            return finish("centralized", problem, assignments, view, before)


def steepest_descent(instance: Instance) -> Ints:
    """Descend from the best single host until no move of one operator is better. Each operator stays among its candidates."""
    everywhere = np.unique(np.concatenate(instance.candidates))
    starts = np.stack([_nearest(instance, operator, everywhere) for operator in range(len(instance.candidates))], axis=1)
    costs = penalised(instance, starts)
    hosts: Ints = starts[int(costs.argmin())]
    current = float(costs.min())
    for _ in range(MOST_STEPS):
        moves = np.concatenate([_moved(hosts, operator, candidates) for operator, candidates in enumerate(instance.candidates)])
        costs = penalised(instance, moves)
        best = int(costs.argmin())
        if costs[best] >= current - least_gain(instance, current):
            break
        hosts, current = moves[best], float(costs[best])
    return hosts


def _moved(hosts: Ints, operator: int, candidates: Ints) -> Ints:
    """Return one placement for each candidate of the operator: [candidates, operators]."""
    moves = np.repeat(hosts[None], len(candidates), axis=0)
    moves[:, operator] = candidates
    return moves


def _nearest(instance: Instance, operator: int, nodes: Ints) -> Ints:
    """Return for each of ``nodes`` the operator's nearest candidate, the node itself if it is a candidate."""
    candidates = instance.candidates[operator]
    nearest: Ints = candidates[instance.latency_ms[np.ix_(nodes, candidates)].argmin(axis=1)]
    return nearest


def _fitting(instance: Instance, operator: int) -> Ints:
    """Return the operator's candidates that have capacity for it alone."""
    candidates = instance.candidates[operator]
    fitting: Ints = candidates[(instance.needs[operator] <= instance.free[candidates] + 1e-9).all(axis=1)]
    return fitting

"""CENTRALIZED: steepest descent over all nodes by somebody who knows them all (Pandit, Strom, Buttner, Ginis, as ANTS compares
with it in section 4).

It begins with all operators on the one node where that costs least, and takes the best of all moves of one operator, as long as
one is better. The paper leaves the beginning open. Where that ends beyond a bound, or where room is short, several are moved at
once (:mod:`~sbon_node.placement.repair`). What is minimised is the problem's objective; with latency by queueing this is
what ANTS compares with.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from sbon_node.placement.all_pairs import all_pairs_ms
from sbon_node.placement.instance import RESOURCES, Floats, Instance, Ints, numbers
from sbon_node.placement.mapping import finish
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.offers import ask_offers
from sbon_node.placement.problem import Assignment, Placement, PlacementProblem
from sbon_node.placement.queueing import Server
from sbon_node.placement.repair import feasible, repaired
from sbon_node.placement.room import Room
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solver import least_gain, penalised

MOST_STEPS = 10_000


async def centralized(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Asks every node how busy it is and what it has room for. Raises :class:`SbonError` ``no-room``."""
    before = view.questions
    if not problem.operators:
        return finish("centralized", problem, [], view, before)
    room, hosts = Room(problem, view), view.nodes()
    nodes = sorted({*hosts, *problem.pinned.values()})
    latency_ms, number = await all_pairs_ms(view, nodes, "centralized"), {node: i for i, node in enumerate(nodes)}
    offers = await ask_offers(problem, view, hosts)
    told = np.full((len(nodes), RESOURCES), np.inf)
    for node, offer in offers.items():
        told[number[node], :3] = offer.free.cores, offer.free.memory_mb, offer.free.bandwidth_bytes_s
    servers = [offers[node].server if node in offers else Server() for node in nodes]
    while True:
        free = np.minimum(told, room.free(nodes))
        candidates = [numbers([n for n in hosts if n not in room.rejected[o.id]], number) for o in problem.operators]
        instance = Instance(problem, nodes, latency_ms, candidates, free, servers)
        fitting = [_fitting(instance, operator) for operator in range(len(candidates))]
        for operator, left in zip(problem.operators, fitting, strict=True):
            if not len(left):
                raise await room.refusal(operator, {})
        found = await view.compute(partial(steepest_descent, instance.narrowed(fitting)))
        why = f"steepest descent over {len(hosts)} nodes"
        if not feasible(instance, found) and (moved := await repaired(view, instance.narrowed(fitting), found)) is not None:
            found, why = moved, f"{why}, and moves of several at once, as it kept to no bounds alone"
        if instance.evaluate(found[None]).overload[0] > 0.0:
            raise await room.nowhere()
        placed = instance.named(found.tolist())
        if await room.grants(placed):
            return finish(
                "centralized", problem, [Assignment(operator=o, node=n, reason=why) for o, n in placed.items()], view, before
            )


def steepest_descent(instance: Instance) -> Ints:
    """From the best single host for all operators, each where it may be, to where no move of one operator is better."""
    everywhere = np.unique(np.concatenate(instance.candidates))
    starts = np.stack([_nearest(instance, operator, everywhere) for operator in range(len(instance.candidates))], axis=1)
    costs = _costs(instance, starts)
    hosts: Ints = starts[int(costs.argmin())]
    current = float(costs.min())
    for _ in range(MOST_STEPS):
        moves = np.concatenate([_moved(hosts, operator, candidates) for operator, candidates in enumerate(instance.candidates)])
        costs = _costs(instance, moves)
        best = int(costs.argmin())
        if costs[best] >= current - least_gain(instance, current):
            break
        hosts, current = moves[best], float(costs[best])
    return hosts


def _costs(instance: Instance, hosts: Ints) -> Floats:
    return penalised(instance, instance.evaluate(hosts))


def _moved(hosts: Ints, operator: int, candidates: Ints) -> Ints:
    """One placement for each candidate of the operator: [candidates, operators]."""
    found = np.repeat(hosts[None], len(candidates), axis=0)
    found[:, operator] = candidates
    return found


def _nearest(instance: Instance, operator: int, nodes: Ints) -> Ints:
    """For each of ``nodes`` the operator's candidate that is nearest to it, itself if it is one."""
    candidates = instance.candidates[operator]
    found: Ints = candidates[instance.latency_ms[np.ix_(nodes, candidates)].argmin(axis=1)]
    return found


def _fitting(instance: Instance, operator: int) -> Ints:
    """The operator's candidates that have room for it alone."""
    candidates = instance.candidates[operator]
    found: Ints = candidates[(instance.needs[operator] <= instance.free[candidates] + 1e-9).all(axis=1)]
    return found

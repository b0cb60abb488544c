"""Repair of placements that break a bound, by moves of operators. Strategies use it where their own search keeps no bound."""

from __future__ import annotations

from functools import partial

import numpy as np

from sbon_node.placement.model.instance import Instance, Ints
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.solvers.exact import descend, penalised
from sbon_node.placement.solvers.moves import Moves

WIDTH = 16
"""Cheapest hosts considered for each operator, where delay counts or is bounded."""


def improved(instance: Instance, start: Ints) -> Ints:
    """Improve a placement by sums over links.

    Where delay counts or is bounded, both that result and the start are improved by the whole objective, and the better is
    returned.
    """
    better = Moves(instance, start).improve()
    if instance.problem.objective.additive and instance.problem.bounds.max_delay_ms is None:
        return better
    descents = []
    for hosts in (start, better):
        few = [np.union1d(candidate_nodes, hosts) for candidate_nodes in Moves(instance, hosts).cheapest(WIDTH)]
        descents.append(descend(instance.narrowed(few), hosts))
    costs = penalised(instance, instance.evaluate(np.array(descents)))
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

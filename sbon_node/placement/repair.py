"""Placements moved, operator by operator, until they keep to all bounds, where a strategy's own way to them has found none."""

from __future__ import annotations

from functools import partial

import numpy as np

from sbon_node.placement.instance import Instance, Ints
from sbon_node.placement.moves import Moves
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.solver import descend, penalised

WIDTH = 16
"""Of each operator so many of the cheapest hosts are looked at, where delay counts or is bounded."""


def improved(instance: Instance, start: Ints) -> Ints:
    """By sums over links; where delay counts or is bounded, from there and from the start on by the whole objective."""
    better = Moves(instance, start).improve()
    if instance.problem.objective.additive and instance.problem.bounds.max_delay_ms is None:
        return better
    found = []
    for hosts in (start, better):
        few = [np.union1d(wishes, hosts) for wishes in Moves(instance, hosts).cheapest(WIDTH)]
        found.append(descend(instance.narrowed(few), hosts))
    costs = penalised(instance, instance.evaluate(np.array(found)))
    return found[int(costs.argmin())]


def feasible(instance: Instance, hosts: Ints) -> bool:
    """Whether every host has room for what is there, and the delay is within the bound."""
    cost, bound = instance.evaluate(hosts[None]), instance.problem.bounds.max_delay_ms
    return bool(cost.overload[0] == 0.0 and (bound is None or cost.delay_ms[0] <= bound + 1e-9))


async def repaired(view: NetworkView, instance: Instance, wished: Ints) -> Ints | None:
    """From ``wished`` [operators] on, each operator at the nearest of its candidates; None where that leads to no placement
    within all bounds, which is not to say that there is none. Every operator needs a candidate."""
    ms = instance.latency_ms
    near = [int(can[ms[host, can].argmin()]) for host, can in zip(wished.tolist(), instance.candidates, strict=True)]
    found = await view.compute(partial(improved, instance, np.array(near, dtype=int)))
    return found if feasible(instance, found) else None

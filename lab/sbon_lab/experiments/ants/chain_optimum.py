"""Exact least queueing latency of a chain of tasks, by a dynamic program over (tasks done, node).

Consecutive tasks at a node form a flow there; then a message moves to another node by the shortest path. The cost of a flow,
with its effect on others' waits, depends on the node and these tasks alone, so that states need no more. If the optimum
returned to an earlier node, the program would miss that the two flows share it; the result is then a lower bound.
"""

from typing import NamedTuple

import numpy as np

from sbon_lab.experiments.harness.network import Floats, Ints
from sbon_node.papers.ants.algorithm.chain import Chain
from sbon_node.placement.model.queueing import MAX_LOAD, Flow, Traffic, latency_ms, traffic_of, waiting_ms


class ChainOptimum(NamedTuple):
    """``hosts`` are node numbers by task. ``cost_ms`` is the latency from source to destination plus the added waits of
    others.

    ``exact`` is false if the placement leaves a node and returns to it.
    """

    hosts: list[int]
    cost_ms: float
    exact: bool


def chain_optimum(
    chain: Chain, source: int, destination: int, between_ms: Floats, speeds: Floats, others: Traffic, hosts: Ints
) -> ChainOptimum | None:
    """Return the optimum, or None if no placement keeps all loads to ``MAX_LOAD``.

    ``between_ms`` [n, n] is one-way; ``speeds`` and ``others``' traffic [n] are of all nodes; only ``hosts`` may host.
    """
    many = len(chain.tasks)
    apart = between_ms.copy()
    np.fill_diagonal(apart, np.inf)
    may = np.zeros(len(speeds), dtype=np.bool_)
    may[hosts] = True
    arrived: list[Floats] = [between_ms[source]]
    done: list[Floats] = [np.full(len(speeds), np.inf)]
    begun: list[Ints] = [np.zeros(len(speeds), dtype=int)]
    came: list[Ints] = [np.zeros(len(speeds), dtype=int)]
    for last in range(1, many + 1):
        costs = np.stack([arrived[first] + _segment(chain, first, last, speeds, others, may) for first in range(last)])
        begun.append(costs.argmin(axis=0))
        done.append(costs.min(axis=0))
        moves = done[last][:, None] + apart
        came.append(moves.argmin(axis=0))
        arrived.append(moves.min(axis=0))
    node = int((done[many] + between_ms[:, destination]).argmin())
    cost_ms = float(done[many][node] + between_ms[node, destination])
    if not np.isfinite(cost_ms):
        return None
    chosen_nodes, last, rows = [0] * many, many, 0
    while last > 0:
        first = int(begun[last][node])
        chosen_nodes[first:last] = [node] * (last - first)
        node, last, rows = int(came[first][node]), first, rows + 1
    return ChainOptimum(chosen_nodes, cost_ms, rows == len(set(chosen_nodes)))


def _segment(chain: Chain, first: int, last: int, speeds: Floats, others: Traffic, may: np.ndarray) -> Floats:
    """Return the joint cost of tasks first .. last - 1 at each node, [n]."""
    flow = chain.flow(first, last)
    load = others.load + traffic_of(flow, speeds).load
    cost = latency_ms(flow, speeds, others) + delayed_ms(flow, speeds, others)
    costs: Floats = np.where(may & (load <= MAX_LOAD + 1e-12), cost, np.inf)
    return costs


def delayed_ms(flow: Flow, speed: Floats | float, others: Traffic) -> Floats:
    """Return the extra waiting time of the other flows' messages due to ``flow``, summed (section 3.7)."""
    delay: Floats = others.flows * (waiting_ms(others.plus(traffic_of(flow, speed))) - waiting_ms(others))
    return delay

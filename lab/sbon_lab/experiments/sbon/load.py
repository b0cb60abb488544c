"""What the load dimension is worth (``sbon experiment load``): a fifth of the nodes is busy, and queries arrive and leave.

Each query is placed twice, in two worlds that know nothing of each other: by the cost space of latency and load (SBON, section
3.1.1), and by latency alone. Its operators keep their hosts busy until it leaves. A batch of an operator needs ``BATCH_MS`` of a
core; at a machine with more runnable processes than cores all share them, and a batch takes the longer. The latency of batches
is that of the longest way from a producer to the consumer, with the batches of the operators on it.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sbon_lab.experiments.coordinates.embedding import refitted
from sbon_lab.experiments.harness.columns import ci95, count, mean, percentile, table
from sbon_lab.experiments.harness.experiment import PlacementExperiment, Point
from sbon_lab.experiments.harness.network import Floats
from sbon_lab.experiments.harness.network_model import NetworkModel, NetworkModelView, number_of
from sbon_lab.experiments.harness.trials import place, true_latency
from sbon_lab.experiments.harness.workload import query
from sbon_node.overlay.space.settings import SpaceSettings
from sbon_node.placement.model.objective import longest_delay_ms, network_usage
from sbon_node.placement.settings import PlacementSettings

STRATEGIES = ("hybrid", "relaxation")
COSTS = ("latency and load", "latency")
SIZES = (1, 3)
"""Operators of the queries, in turn."""
BUSY, BUSY_LOAD = 0.2, (2.0, 10.0)
"""Share of busy nodes, and their runnable processes per core without any query."""
OPERATOR_LOAD, BATCH_MS = 0.25, 20.0
"""Runnable processes per core of an operator, and core time of its batches."""
STAYS = 60
"""Arrivals of other queries until a query leaves."""


class Key(NamedTuple):
    """Key of a row."""

    strategy: str
    cost: str
    topology: str


class Outcome(NamedTuple):
    """A query's usage in bytes in transit, the latency of its batches, and whether an operator is at a busy node."""

    usage: float
    batch_ms: float
    at_busy: bool
    probes: int


class Parameters(NamedTuple):
    strategies: tuple[str, ...] = STRATEGIES


def measure(point: Point[Parameters]) -> Iterator[tuple[Key, Outcome]]:
    network = point.network
    network_model = NetworkModel(network, refitted(network, SpaceSettings().dimensions, point.seed), np.arange(network.nodes))
    rng = np.random.default_rng((point.seed, 61))
    background = np.where(rng.random(network.nodes) < BUSY, rng.uniform(*BUSY_LOAD, network.nodes), 0.0)
    for strategy in point.parameters.strategies:
        for cost in COSTS:
            point.notify(f"{strategy} by {cost}")
            key = Key(strategy, cost, network.name)
            for outcome in _arrivals(point, network_model, background, key):
                yield key, outcome


def _arrivals(point: Point[Parameters], network_model: NetworkModel, background: Floats, key: Key) -> Iterator[Outcome]:
    """Place one query after another; the first ``STAYS`` fill the network and are not counted."""
    network, load = network_model.network, background.copy()
    rng = np.random.default_rng((point.seed, 62))
    weight_ms = SpaceSettings().load_weight_ms * (key.cost != COSTS[1])
    running: deque[list[int]] = deque()
    for number in range(STAYS + point.queries):
        problem = query(SIZES[number % len(SIZES)], network.nodes, rng)
        view = NetworkModelView(network_model, number, loads_ms=weight_ms * load)
        hosts, probes, _ = place(problem, key.strategy, view, PlacementSettings())
        at = [number_of(node) for node in hosts.values()]
        np.add.at(load, at, OPERATOR_LOAD)
        running.append(at)
        if len(running) > STAYS:
            np.subtract.at(load, running.popleft(), OPERATOR_LOAD)
        if number >= STAYS:
            batches_ms = {operator: BATCH_MS * max(1.0, load[number_of(node)]) for operator, node in hosts.items()}
            latency = true_latency(network)
            late_ms = longest_delay_ms(problem, hosts, latency, batches_ms)
            yield Outcome(network_usage(problem, hosts, latency), late_ms, bool(background[at].any()), probes)


EXPERIMENT = PlacementExperiment(
    name="load",
    measure=measure,
    parameters=Parameters(),
    topologies=lambda parameters: ("ts100",),
    queries=200,
    seeds=(1, 2, 3, 4, 5),
    order=lambda key: (key.topology, STRATEGIES.index(key.strategy), COSTS.index(key.cost)),
    rows=table(
        {
            "batch_ms_mean": mean(lambda outcome: outcome.batch_ms, 1),
            "batch_ms_ci95": ci95(lambda outcome: outcome.batch_ms, 1),
            "batch_ms_p95": percentile(lambda outcome: outcome.batch_ms, 95, 1),
            "usage_mean": mean(lambda outcome: outcome.usage, 1),
            "at_busy_pct": mean(lambda outcome: 100.0 * outcome.at_busy, 1),
            "probes_mean": mean(lambda outcome: outcome.probes, 1),
            "queries": count(),
        }
    ),
)

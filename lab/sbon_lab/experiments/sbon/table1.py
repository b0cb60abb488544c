"""SBON's Table 1 and Figures 8 and 9 (``sbon experiment sbon-table1``): network costs of six placements of an aggregator.

The paper's set-up (section 4.1): 1,550 nodes in a transit-stub topology of 878 ms, four producers of 2 KB/s and a consumer at
random nodes, one operator with a selectivity of 1/8, placed on one of the 50 transit routers; RANDOM takes any node.
RELAXATION and IP MULTICAST see Vivaldi's coordinates, 3-D with 32 neighbours and samples that are 10 % off, as nodes of the
time had them. ``hybrid`` is ours, with coordinates by refit, 5-D and height. The usage penalty is usage / that of the optimum
- 1. The delay penalty is the longest path from a producer through the operator to the consumer / the longest direct path - 1.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sbon_lab.experiments.coordinates.embedding import refitted, vivaldi_positions
from sbon_lab.experiments.harness.columns import ci95, count, mean, percentile, table
from sbon_lab.experiments.harness.experiment import PlacementExperiment, Point
from sbon_lab.experiments.harness.network_model import NetworkModel, NetworkModelView
from sbon_lab.experiments.harness.pictures import Distribution, Picture
from sbon_lab.experiments.harness.trials import Trial, best_hosts, judged, place
from sbon_lab.experiments.harness.workload import aggregator
from sbon_node.placement.settings import PlacementSettings

PAPER = {
    "optimal": (0, 13),
    "relaxation": (15, 24),
    "ip-multicast": (27, 0),
    "producer": (43, 75),
    "consumer": (60, 0),
    "random": (81, 76),
}
"""The paper's usage and delay penalties, per cent."""
STRATEGIES = (*PAPER, "hybrid")
NOISE = 0.1
DIMENSIONS = 5
MOST_PCT = 200


class Key(NamedTuple):
    strategy: str
    topology: str


class Parameters(NamedTuple):
    """None."""


def measure(point: Point[Parameters]) -> Iterator[tuple[Key, Trial]]:
    """Place all queries by all strategies. If the network has no routers, all nodes may host."""
    network, seed = point.network, point.seed
    point.notify("coordinates")
    hosts = network.routers if len(network.routers) else np.arange(network.nodes)
    network_models = {
        "relaxation": NetworkModel(network, vivaldi_positions(network, seed, noise=NOISE), hosts),
        "hybrid": NetworkModel(network, refitted(network, DIMENSIONS, seed), hosts),
        "any": NetworkModel(network, None, np.arange(network.nodes)),
    }
    network_models |= dict.fromkeys(("optimal", "ip-multicast"), network_models["relaxation"])
    rng = np.random.default_rng((seed, 41))
    for number in range(point.queries):
        problem = aggregator(network.nodes, rng)
        best = best_hosts(problem, network_models["relaxation"])
        for strategy in STRATEGIES:
            if strategy == "ip-multicast" and network.route is None:
                continue
            network_model = network_models.get(strategy, network_models["any"])
            chosen_hosts, probes, cpu_ms = best, 0, 0.0
            if strategy != "optimal":
                chosen_hosts, probes, cpu_ms = place(
                    problem, strategy, NetworkModelView(network_model, number), PlacementSettings()
                )
            trial = judged(problem, network, chosen_hosts, best, probes, cpu_ms)
            key = Key(strategy, network.name)
            point.lines.write(problem, network_model, chosen_hosts, trial, **key._asdict(), seed=seed, query=number)
            yield key, trial


def _usage_pct(trial: Trial) -> float:
    return 100 * trial.penalty


def _delay_pct(trial: Trial) -> float:
    return 100 * trial.delay_penalty


def _paper(key: Key, column: int) -> int | None:
    return PAPER[key.strategy][column] if key.strategy in PAPER else None


def _distribution(number: int, of: Any, quantity: str) -> Picture:
    axes = {"xlabel": f"{quantity} (%)", "ylabel": "share of queries", "title": "{topology}", "xlim": (None, MOST_PCT)}
    return Picture(f"{{topology}}-figure{number}", [[Distribution(of, lambda key: str(key.strategy), axes, least_zero=True)]])


EXPERIMENT = PlacementExperiment(
    name="sbon-table1",
    measure=measure,
    parameters=Parameters(),
    topologies=lambda parameters: ("ts1550",),
    queries=100,
    seeds=(1, 2, 3, 4, 5),
    rows=table(
        {
            "usage_penalty_pct": mean(_usage_pct, 2),
            "usage_ci95_pct": ci95(_usage_pct, 2),
            "paper_usage_penalty_pct": lambda key, by_seed: _paper(key, 0),
            "delay_penalty_pct": mean(_delay_pct, 2),
            "delay_ci95_pct": ci95(_delay_pct, 2),
            "paper_delay_penalty_pct": lambda key, by_seed: _paper(key, 1),
            "usage_p80_pct": percentile(_usage_pct, 80, 2),
            "probes_mean": mean(lambda trial: trial.probes, 1),
            "queries": count(),
        }
    ),
    pictures=(
        _distribution(8, _usage_pct, "Network usage beyond the optimum's"),
        _distribution(9, _delay_pct, "Delay beyond the longest direct path's"),
    ),
)

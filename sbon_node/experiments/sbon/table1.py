"""SBON's Table 1 and Figures 8 and 9 (``sbon experiment sbon-table1``): network costs of six placements of an aggregator.

The paper's set-up (section 4.1): 1,550 nodes in a transit-stub topology of 878 ms, four producers of 2 KB/s and a consumer at
random nodes, one operator with a selectivity of 1/8, placed on one of the 50 transit routers; RANDOM takes any node.
RELAXATION and IP MULTICAST see Vivaldi's coordinates, 3-D with 32 neighbours and samples that are 10 % off, as nodes of the
time had them. ``hybrid`` is ours, with coordinates by refit, 5-D and height. The usage penalty is usage / that of the optimum
- 1. The delay penalty is the longest path from a producer through the operator to the consumer / the longest direct path - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sbon_node.experiments.coordinates.embedding import refitted, vivaldi_positions
from sbon_node.experiments.harness.network import Network
from sbon_node.experiments.harness.network_choice import networks_of
from sbon_node.experiments.harness.network_model import NetworkModel, NetworkModelView
from sbon_node.experiments.harness.trials import Dump, Trial, best_hosts, judged, place, summary
from sbon_node.experiments.harness.workload import aggregator
from sbon_node.placement.settings import PlacementSettings

NAME = "sbon-table1"
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
TOPOLOGY, QUERIES, SEEDS = "ts1550", 100, (1, 2, 3, 4, 5)

Trials = dict[str, dict[str, list[list[Trial]]]]
"""Trials by topology and strategy, for each seed."""


def run(
    data: Sequence[Path] = (),
    topologies: Sequence[str] = (),
    *,
    queries: int = QUERIES,
    seeds: Sequence[int] = SEEDS,
    dump: Path | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Any], Trials]:
    """Return ``{"name", "rows"}``, and all trials. If a network has no routers, all nodes may host."""
    trials: Trials = {}
    lines = Dump(dump, NAME)
    for seed in seeds:
        for network in networks_of(data, topologies or (() if data else (TOPOLOGY,)), seed):
            told(f"{network.name}, seed {seed}")
            found = trials.setdefault(network.name, {})
            for strategy, each in _of_network(network, queries, seed, lines).items():
                found.setdefault(strategy, []).append(each)
    lines.close()
    rows = [_row(topology, strategy, each) for topology, found in trials.items() for strategy, each in found.items()]
    return {"name": NAME, "rows": rows}, trials


def _of_network(network: Network, queries: int, seed: int, lines: Dump) -> dict[str, list[Trial]]:
    hosts = network.routers if len(network.routers) else np.arange(network.nodes)
    network_models = {
        "relaxation": NetworkModel(network, vivaldi_positions(network, seed, noise=NOISE), hosts),
        "hybrid": NetworkModel(network, refitted(network, DIMENSIONS, seed), hosts),
        "any": NetworkModel(network, None, np.arange(network.nodes)),
    }
    rng, found = np.random.default_rng((seed, 41)), dict[str, list[Trial]]()
    for number in range(queries):
        problem = aggregator(network.nodes, rng)
        best = best_hosts(problem, network_models["relaxation"])
        for strategy in STRATEGIES:
            if strategy == "ip-multicast" and network.route is None:
                continue
            network_model = network_models[
                "relaxation" if strategy == "ip-multicast" else strategy if strategy in network_models else "any"
            ]
            placed, probes, cpu_ms = best, 0, 0.0
            if strategy != "optimal":
                placed, probes, cpu_ms = place(problem, strategy, NetworkModelView(network_model, number), PlacementSettings())
            trial = judged(problem, network, placed, best, probes, cpu_ms)
            found.setdefault(strategy, []).append(trial)
            shown = network_models["relaxation"] if strategy == "optimal" else network_model
            lines.write(problem, shown, placed, trial, strategy=strategy, topology=network.name, seed=seed, query=number)
    return found


def _row(topology: str, strategy: str, trials: list[list[Trial]]) -> dict[str, Any]:
    usage, usage_ci = summary(trials, lambda trial: trial.penalty)
    delay, delay_ci = summary(trials, lambda trial: trial.delay_penalty)
    paper = PAPER.get(strategy, (None, None))
    every = [trial for seed in trials for trial in seed]
    return {
        "strategy": strategy,
        "topology": topology,
        "usage_penalty_pct": round(usage, 2),
        "usage_ci95_pct": None if usage_ci is None else round(usage_ci, 2),
        "paper_usage_penalty_pct": paper[0],
        "delay_penalty_pct": round(delay, 2),
        "delay_ci95_pct": None if delay_ci is None else round(delay_ci, 2),
        "paper_delay_penalty_pct": paper[1],
        "usage_p80_pct": round(100 * float(np.percentile([trial.penalty for trial in every], 80)), 2),
        "probes_mean": round(float(np.mean([trial.probes for trial in every])), 1),
        "queries": len(every),
    }

"""ANTS's Figures 2, 3 and 4 and its Table 1 (``sbon experiment ants``), and the accuracy of its queueing model.

The paper's set-up (section 4), as far as it is given: a transit-stub topology, servers and links of several classes, queries
of tasks in a row between a producer and a consumer at random nodes, 200 routing and 50 scouting ants for each query. The
default networks have 208 nodes. The paper prints numbers for Table 1 alone; on the others it says that ants are near the
optimum, and better than the other two strategies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sbon_node.experiments.ants.adaptation import by_arrivals, by_beta, by_rate
from sbon_node.experiments.ants.quality import LOADED, Sample, Samples, by_nodes, by_queries, by_tasks
from sbon_node.experiments.ants.queue_simulation import SimulatedFlow, simulated_latency_ms
from sbon_node.experiments.harness.network_choice import networks_of
from sbon_node.experiments.harness.trials import Dump, interval
from sbon_node.placement.model.queueing import Service, latency_ms, no_traffic, traffic_of

NAME = "ants"
PARTS = ("2a", "2b", "3a", "3b", "4", "table1", "queue")
AXES = {
    "2a": "tasks",
    "2b": "queries",
    "3a": "seconds",
    "3b": "seconds",
    "4": "nodes",
    "table1": "beta",
    "queue": "load",
}
PAPER = {1.1: (15, 0.0), 1.25: (10, 25.87), 1.5: (7, 59.23), 1.75: (2, 78.67), 2.0: (1, 101.23)}
"""Values of Table 1 by beta: placement updates, and latency loss in ms."""
LOADS, BURSTINESS, MESSAGES = (0.3, 0.5, 0.7, 0.8, 0.9), (0.5, 0.8, 1.0, 2.0, 4.0), 400_000
TOPOLOGY, QUERIES, SEEDS = "ts208", 100, (1, 2, 3)

Trials = dict[str, list[Samples]]
"""Samples by network, for each seed."""


def run(
    data: Sequence[Path] = (),
    topologies: Sequence[str] = (),
    *,
    queries: int = QUERIES,
    seeds: Sequence[int] = SEEDS,
    parts: Sequence[str] = PARTS,
    dump: Path | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Any], Trials]:
    """Return ``{"name", "rows"}``, and all samples. Figure 4 makes networks of its own; the queue needs none."""
    trials: Trials = {}
    lines = Dump(dump, NAME)
    for seed in seeds:
        for network in networks_of(data, topologies or (() if data else (TOPOLOGY,)), seed):
            found: Samples = {}
            if "2a" in parts:
                found |= by_tasks(network, seed, queries, lines, told)
            if "2b" in parts:
                found |= by_queries(network, seed, queries, lines, told)
            if "3a" in parts:
                found |= by_rate(network, seed, queries, lines, told)
            if "3b" in parts:
                found |= by_arrivals(network, seed, queries, lines, told)
            if "table1" in parts:
                found |= by_beta(network, seed, queries, lines, told)
            trials.setdefault(network.name, []).append(found)
        if "4" in parts:
            trials.setdefault("transit-stub", []).append(by_nodes(seed, queries * LOADED // QUERIES, lines, told))
        if "queue" in parts:
            told(f"queue, seed {seed}")
            trials.setdefault("queue", []).append(by_load(seed))
    lines.close()
    keys = {(topology, key): None for topology, each in trials.items() for found in each for key in found}
    ordered = sorted(keys, key=lambda one: (one[0], PARTS.index(one[1][0])))
    return {
        "name": NAME,
        "rows": [_row(topology, key, [found[key] for found in trials[topology]]) for topology, key in ordered],
    }, trials


def by_load(seed: int) -> Samples:
    """Compare the queueing model's latencies with a message-by-message simulation, by load, at a single server.

    Three flows of several tasks share the server; messages arrive with different irregularity. The result is that of the
    worst flow.
    """
    rng = np.random.default_rng((seed, 67))
    found: Samples = {}
    for burstiness in BURSTINESS:
        for load in LOADS:
            flows = [_flow(rng, burstiness) for _ in range(3)]
            speed = sum(float(traffic_of(flow.flow()).load) for flow in flows) / load
            simulated = simulated_latency_ms(flows, speed, MESSAGES, rng)
            modelled = []
            for flow in flows:
                others = no_traffic()
                for other in flows:
                    if other is not flow:
                        others = others.plus(traffic_of(other.flow(), speed))
                modelled.append(float(latency_ms(flow.flow(), speed, others)))
            worst = max(range(3), key=lambda number: abs(modelled[number] / simulated[number] - 1.0))
            found["queue", f"arrivals' scv {burstiness:g}", load] = Sample(modelled[worst], simulated[worst], queries=3)
    return found


def _flow(rng: np.random.Generator, burstiness: float) -> SimulatedFlow:
    tasks = [
        (Service(mean_ms=float(rng.uniform(1, 10)), scv=float(rng.uniform(0, 1))), float(rng.uniform(0.5, 1.5)))
        for _ in range(int(rng.integers(1, 4)))
    ]
    return SimulatedFlow(rate_s=float(rng.uniform(10, 50)), tasks=tasks, arrival_scv=burstiness)


def _row(topology: str, key: tuple[str, str, float], samples: Sequence[Sample]) -> dict[str, Any]:
    figure, strategy, at = key
    latencies = [one.latency_ms for one in samples if one.latency_ms is not None]
    beyond = [100 * (one.latency_ms / one.exact_ms - 1) for one in samples if one.latency_ms is not None and one.exact_ms]
    paper = PAPER.get(at, (None, None)) if figure == "table1" else (None, None)
    return {
        "figure": figure,
        "topology": topology,
        "strategy": strategy,
        "axis": AXES[figure],
        "at": at,
        "latency_ms": _mean(latencies),
        "latency_ci95_ms": _interval(latencies),
        "beyond_exact_pct": _mean(beyond),
        "beyond_exact_ci95_pct": _interval(beyond),
        "failed_pct": _mean([100 * one.failed for one in samples if one.failed is not None]),
        "updates": _mean([one.updates for one in samples if one.updates is not None]),
        "paper_updates": paper[0],
        "loss_ms": _mean([one.loss_ms for one in samples if one.loss_ms is not None]),
        "paper_loss_ms": paper[1],
        "queries": sum(one.queries for one in samples),
    }


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 3) if values else None


def _interval(values: Sequence[float]) -> float | None:
    found = interval(values)
    return None if found is None else round(found, 3)

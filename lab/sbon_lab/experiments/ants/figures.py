"""ANTS's Figures 2, 3 and 4 and its Table 1 (``sbon experiment ants``), reuse of tasks, and the accuracy of its queueing model.

The known part of the paper's set-up (section 4): a transit-stub topology, servers and links of several classes, queries
of tasks in a row between a producer and a consumer at random nodes, 200 routing and 50 scouting ants for each query. The
default networks have 208 nodes. The paper prints numbers for Table 1 alone; on the others it says that ants are near the
optimum, and better than the other two strategies.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sbon_lab.experiments.ants.adaptation import by_arrivals, by_beta, by_rate
from sbon_lab.experiments.ants.quality import LOADED, Sample, Samples, by_nodes, by_queries, by_tasks
from sbon_lab.experiments.ants.queue_simulation import SimulatedFlow, simulated_latency_ms
from sbon_lab.experiments.ants.reuse import by_reuse
from sbon_lab.experiments.harness.columns import ci95, mean, table, total
from sbon_lab.experiments.harness.experiment import PlacementExperiment, Point
from sbon_lab.experiments.harness.pictures import Lines, Picture
from sbon_node.placement.model.queueing import Service, latency_ms, no_traffic, traffic_of

PARTS = ("2a", "2b", "3a", "3b", "4", "table1", "reuse", "queue")
AXES = {
    "2a": "tasks",
    "2b": "queries",
    "3a": "seconds",
    "3b": "seconds",
    "4": "nodes",
    "table1": "beta",
    "reuse": "queries",
    "queue": "load",
}
PAPER = {1.1: (15, 0.0), 1.25: (10, 25.87), 1.5: (7, 59.23), 1.75: (2, 78.67), 2.0: (1, 101.23)}
"""Values of Table 1 by beta: placement updates, and latency loss in ms."""
LOADS, BURSTINESS, MESSAGES = (0.3, 0.5, 0.7, 0.8, 0.9), (0.5, 0.8, 1.0, 2.0, 4.0), 400_000
QUERIES = 100


class Key(NamedTuple):
    figure: str
    topology: str
    strategy: str
    axis: str
    at: float


class Parameters(NamedTuple):
    parts: tuple[str, ...] = PARTS


BY_NETWORK = {"2a": by_tasks, "2b": by_queries, "3a": by_rate, "3b": by_arrivals, "table1": by_beta, "reuse": by_reuse}


def measure(point: Point[Parameters]) -> Iterator[tuple[Key, Sample]]:
    """Measure the parts. Figure 4 makes networks of its own, and the queue needs none: each once a seed."""
    parts, seed = point.parameters.parts, point.seed
    for part, of in BY_NETWORK.items():
        if part in parts:
            yield from _keyed(point.network.name, of(point.network, seed, point.queries, point.lines, point.notify))
    if "4" in parts and point.first:
        queries = point.queries * LOADED // QUERIES
        yield from _keyed("transit-stub", by_nodes(seed, queries, point.lines, point.notify))
    if "queue" in parts and point.first:
        point.notify("queue")
        yield from _keyed("queue", by_load(seed))


def _keyed(topology: str, samples: Samples) -> Iterator[tuple[Key, Sample]]:
    for (figure, strategy, at), sample in samples.items():
        yield Key(figure, topology, strategy, AXES[figure], at), sample


def by_load(seed: int) -> Samples:
    """Compare the queueing model's latencies with a message-by-message simulation, by load, at a single server.

    Three flows of several tasks share the server; messages arrive with different irregularity. The result is that of the
    worst flow.
    """
    rng = np.random.default_rng((seed, 67))
    samples: Samples = {}
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
            samples["queue", f"arrivals' scv {burstiness:g}", load] = Sample(modelled[worst], simulated[worst], queries=3)
    return samples


def _flow(rng: np.random.Generator, burstiness: float) -> SimulatedFlow:
    tasks = [
        (Service(mean_ms=float(rng.uniform(1, 10)), scv=float(rng.uniform(0, 1))), float(rng.uniform(0.5, 1.5)))
        for _ in range(int(rng.integers(1, 4)))
    ]
    return SimulatedFlow(rate_s=float(rng.uniform(10, 50)), tasks=tasks, arrival_scv=burstiness)


def _latency_ms(sample: Sample) -> float | None:
    return sample.latency_ms


def _beyond_pct(sample: Sample) -> float | None:
    """Latency beyond the exact optimum's."""
    return 100 * (sample.latency_ms / sample.exact_ms - 1) if sample.latency_ms is not None and sample.exact_ms else None


def _paper(key: Key, column: int) -> float | None:
    return PAPER[key.at][column] if key.figure == "table1" else None


def _picture(part: str, name: str, y: str, label: str, axis: str, scale: str = "linear") -> Picture:
    spread = "latency_ci95_ms" if y == "latency_ms" else None
    axes = {"xlabel": axis, "ylabel": label, "title": "{topology}", "yscale": scale}
    return Picture(name, [[Lines("at", y, "{strategy}", spread, axes=axes)]], where=lambda row: row["figure"] == part)


EXPERIMENT = PlacementExperiment(
    name="ants",
    measure=measure,
    parameters=Parameters(),
    topologies=lambda parameters: ("ts208",),
    queries=QUERIES,
    seeds=(1, 2, 3),
    order=lambda key: (key.topology, PARTS.index(key.figure)),
    rows=table(
        {
            "latency_ms": mean(_latency_ms, 3),
            "latency_ci95_ms": ci95(_latency_ms, 3),
            "beyond_exact_pct": mean(_beyond_pct, 3),
            "beyond_exact_ci95_pct": ci95(_beyond_pct, 3),
            "failed_pct": mean(lambda outcome: None if outcome.failed is None else 100 * outcome.failed, 3),
            "updates": mean(lambda outcome: outcome.updates, 3),
            "paper_updates": lambda key, by_seed: _paper(key, 0),
            "loss_ms": mean(lambda outcome: outcome.loss_ms, 3),
            "paper_loss_ms": lambda key, by_seed: _paper(key, 1),
            "reused_pct": mean(lambda outcome: None if outcome.reused is None else 100 * outcome.reused, 3),
            "busy_cores": mean(lambda outcome: outcome.busy_cores, 3),
            "in_transit": mean(lambda outcome: outcome.in_transit, 3),
            "queries": total(lambda outcome: outcome.queries),
        }
    ),
    pictures=(
        _picture("2a", "{topology}-figure2a", "latency_ms", "latency of a query (ms)", "tasks of the query"),
        _picture("2b", "{topology}-figure2b", "latency_ms", "mean latency (ms)", "queries", "log"),
        _picture("3a", "{topology}-figure3a", "latency_ms", "latency of the query (ms)", "seconds"),
        _picture("3b", "{topology}-figure3b", "latency_ms", "mean latency (ms)", "seconds"),
        _picture("4", "{topology}-figure4", "failed_pct", "queries without a place (%)", "nodes"),
        _picture("table1", "{topology}-table1", "updates", "moves of the query", "beta"),
        _picture("queue", "queue", "beyond_exact_pct", "model beyond the simulated queue (%)", "load"),
    ),
)

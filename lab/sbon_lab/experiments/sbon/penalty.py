"""Cost of placements above the optimum (``sbon experiment penalty``): strategies, query sizes, networks, and adverse
conditions.

Queries are SBON's aggregator (one operator) and complete binary trees, over producers at random nodes. If a network has
routers, operators are placed on these alone, and then on all nodes. The optimum is exact, over the same hosts, by true
latencies, with the same capacity. Variants: ``full``; ``no-pings``, by coordinates alone; ``view300``, with knowledge of 300
random hosts and the query's own ends, while the optimum may take all; ``noise10``, where a ping is 10 % off (the least of
three counts); ``capacities``, where half of the nodes are full and the others have room for four to eight operators.
Coordinates are refit's with height, in 3 and 5 dimensions.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sbon_lab.experiments.coordinates.embedding import refitted
from sbon_lab.experiments.harness.columns import ci95, count, mean, percentile, table
from sbon_lab.experiments.harness.experiment import PlacementExperiment, Point
from sbon_lab.experiments.harness.network import Floats, Ints, Network
from sbon_lab.experiments.harness.network_model import NetworkModel, NetworkModelView, number_of
from sbon_lab.experiments.harness.pictures import Lines, Picture
from sbon_lab.experiments.harness.trials import Trial, best_hosts, judged, place
from sbon_lab.experiments.harness.workload import CORES, query
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings

OPERATORS = (1, 3, 7, 15)
STRATEGIES = ("hybrid", "relaxation", "producer", "consumer", "random")
VARIANTS = ("full", "no-pings", "view300", "noise10", "capacities")
ONLY_HYBRID = ("no-pings", "noise10")
"""The other strategies measure nothing."""
DIMENSIONS = (3, 5)
KNOWN, NOISE = 300, 0.1
FULL, ROOM = 0.5, (4, 8)


class Key(NamedTuple):
    """Key of a row; ``hosts`` is the number of possible hosts."""

    strategy: str
    variant: str
    coordinates: str
    topology: str
    operators: int
    hosts: int


class Parameters(NamedTuple):
    operators: tuple[int, ...] = OPERATORS
    variants: tuple[str, ...] = VARIANTS


def measure(point: Point[Parameters]) -> Iterator[tuple[Key, Trial]]:
    network = point.network
    for dimensions in DIMENSIONS:
        point.notify(f"coordinates in {dimensions} dimensions")
        positions = refitted(network, dimensions, point.seed)
        for hosts in ([network.routers] if len(network.routers) else []) + [np.arange(network.nodes)]:
            for size in point.parameters.operators:
                point.notify(f"{dimensions} dimensions, {len(hosts)} hosts, {size} operators")
                yield from _of_size(point, NetworkModel(network, positions, hosts), f"{dimensions}d+h", size)


def _of_size(point: Point[Parameters], network_model: NetworkModel, coordinates: str, size: int) -> Iterator[tuple[Key, Trial]]:
    network = network_model.network
    rng = np.random.default_rng((point.seed, size, 51))
    for number in range(point.queries):
        problem = query(size, network.nodes, rng)
        free = _free(network, rng)
        drawn = rng.permutation(network_model.hosts)[:KNOWN]
        best = best_hosts(problem, network_model)
        for variant in point.parameters.variants:
            if variant == "view300" and len(network_model.hosts) <= KNOWN:
                continue
            room = free if variant == "capacities" else None
            least = best if room is None else best_hosts(problem, network_model, room)
            for strategy in STRATEGIES:
                if variant in ONLY_HYBRID and strategy != "hybrid":
                    continue
                view = NetworkModelView(
                    network_model,
                    number,
                    known=_known(network_model, problem, drawn) if variant == "view300" else None,
                    noise=NOISE if variant == "noise10" else 0.0,
                    free=room,
                )
                settings = PlacementSettings(measure=variant != "no-pings")
                hosts, probes, cpu_ms = place(problem, strategy, view, settings)
                trial = judged(problem, network, hosts, least, probes, cpu_ms)
                key = Key(strategy, variant, coordinates, network.name, size, len(network_model.hosts))
                labels: dict[str, Any] = {**key._asdict(), "seed": point.seed, "query": number}
                if room is not None:
                    labels |= {"free_cores": room[network_model.hosts].round(3).tolist(), "cores_needed": CORES}
                point.lines.write(problem, network_model, hosts, trial, **labels)
                yield key, trial


def _known(network_model: NetworkModel, problem: PlacementProblem, drawn: Ints) -> Ints:
    """Return the drawn hosts and the query's ends that may host: a placing node has to know these."""
    return np.union1d(drawn, np.intersect1d(network_model.hosts, [number_of(node) for node in problem.pinned.values()]))


def _free(network: Network, rng: np.random.Generator) -> Floats:
    """Return free cores: none at half of the nodes, room for four to eight operators at the others."""
    room = CORES * rng.integers(ROOM[0], ROOM[1] + 1, network.nodes)
    free: Floats = np.where(rng.random(network.nodes) < FULL, 0.0, room)
    return free


def _penalty_pct(trial: Trial) -> float:
    return 100 * trial.penalty


def _order(key: Key) -> tuple[Any, ...]:
    variant = VARIANTS.index(key.variant)
    return key.topology, key.hosts, key.operators, variant, STRATEGIES.index(key.strategy), key.coordinates


def _lines(label: str, column: str, value: str, axes: dict[str, str]) -> Lines:
    """Draw the rows in which ``column`` is ``value``."""
    x, y, spread = "operators", "penalty_mean_pct", "penalty_ci95_pct"
    return Lines(x, y, label, spread, lambda row: row[column] == value, {"xlabel": "operators", **axes})


EXPERIMENT = PlacementExperiment(
    name="penalty",
    measure=measure,
    parameters=Parameters(),
    topologies=lambda parameters: ("ts1550",),
    queries=8,
    seeds=(1, 2),
    order=_order,
    rows=table(
        {
            "penalty_mean_pct": mean(_penalty_pct, 2),
            "penalty_ci95_pct": ci95(_penalty_pct, 2),
            "penalty_p90_pct": percentile(_penalty_pct, 90, 2),
            "delay_pct": mean(lambda trial: 100 * trial.delay_penalty, 2),
            "probes_mean": mean(lambda trial: trial.probes, 1),
            "cpu_ms": mean(lambda trial: trial.cpu_ms, 1),
            "queries": count(),
        }
    ),
    pictures=(
        Picture(
            "{topology}-{hosts}",
            [
                [
                    _lines(
                        "{strategy}, {coordinates}",
                        "variant",
                        "full",
                        {
                            "yscale": "log",
                            "ylabel": "mean usage beyond the optimum's (%)",
                            "title": "{topology}, {hosts} hosts",
                        },
                    ),
                    _lines("{variant}, {coordinates}", "strategy", "hybrid", {"title": "hybrid"}),
                ]
            ],
            each=("topology", "hosts"),
        ),
    ),
)

"""Cost of placements above the optimum (``sbon experiment penalty``): strategies, query sizes, networks, and adverse
conditions.

Queries are SBON's aggregator (one operator) and complete binary trees, over producers at random nodes. If a network has
routers, operators are placed on these alone, and then on all nodes. The optimum is exact, over the same hosts, by true
latencies, with the same capacity. Variants: ``full``; ``no-pings``, by coordinates alone; ``view300``, with knowledge of 300
random hosts and the query's own ends, while the optimum may take all; ``noise10``, where a ping is 10 % off (the least of
three counts); ``capacities``, where half of the nodes are full and the others have room for four to eight operators.
Coordinates are refit's with height, in 3 and 5 dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbon_node.experiments.coordinates.embedding import refitted
from sbon_node.experiments.harness.network import Floats, Ints, Network
from sbon_node.experiments.harness.network_choice import networks_of
from sbon_node.experiments.harness.network_model import NetworkModel, NetworkModelView, number_of
from sbon_node.experiments.harness.trials import Dump, Trial, best_hosts, judged, place, summary
from sbon_node.experiments.harness.workload import CORES, query
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings

NAME = "penalty"
OPERATORS = (1, 3, 7, 15)
STRATEGIES = ("hybrid", "relaxation", "producer", "consumer", "random")
VARIANTS = ("full", "no-pings", "view300", "noise10", "capacities")
ONLY_HYBRID = ("no-pings", "noise10")
"""The other strategies measure nothing."""
DIMENSIONS = (3, 5)
KNOWN, NOISE = 300, 0.1
FULL, ROOM = 0.5, (4, 8)
TOPOLOGY, QUERIES, SEEDS = "ts1550", 8, (1, 2)


class Key(NamedTuple):
    """Key of a row; ``hosts`` is the number of possible hosts."""

    strategy: str
    variant: str
    coordinates: str
    topology: str
    operators: int
    hosts: int


Trials = dict[Key, list[list[Trial]]]
"""Trials by key, for each seed."""


def run(
    data: Sequence[Path] = (),
    topologies: Sequence[str] = (),
    *,
    queries: int = QUERIES,
    seeds: Sequence[int] = SEEDS,
    operators: Sequence[int] = OPERATORS,
    variants: Sequence[str] = VARIANTS,
    dump: Path | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Any], Trials]:
    """Return ``{"name", "rows"}``, and all trials."""
    trials: Trials = {}
    lines = Dump(dump, NAME)
    for seed in seeds:
        for network in networks_of(data, topologies or (() if data else (TOPOLOGY,)), seed):
            everyone = np.arange(network.nodes)
            for dimensions in DIMENSIONS:
                told(f"{network.name}, seed {seed}: coordinates in {dimensions} dimensions")
                places = refitted(network, dimensions, seed)
                for hosts in ([network.routers] if len(network.routers) else []) + [everyone]:
                    network_model = NetworkModel(network, places, hosts)
                    for size in operators:
                        told(f"{network.name}, seed {seed}, {dimensions} dimensions, {len(hosts)} hosts, {size} operators")
                        for key, trial in _of_network_model(
                            network_model, f"{dimensions}d+h", size, queries, seed, variants, lines
                        ):
                            by_seed = trials.setdefault(key, [])
                            if len(by_seed) < seeds.index(seed) + 1:
                                by_seed.append([])
                            by_seed[-1].append(trial)
    lines.close()
    return {"name": NAME, "rows": [_row(key, trials[key]) for key in sorted(trials, key=_order)]}, trials


def _of_network_model(
    network_model: NetworkModel, coordinates: str, size: int, queries: int, seed: int, variants: Sequence[str], lines: Dump
) -> Iterator[tuple[Key, Trial]]:
    network = network_model.network
    rng = np.random.default_rng((seed, size, 51))
    for number in range(queries):
        problem = query(size, network.nodes, rng)
        free = _free(network, rng)
        drawn = rng.permutation(network_model.hosts)[:KNOWN]
        best = best_hosts(problem, network_model)
        for variant in variants:
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
                placed, probes, cpu_ms = place(problem, strategy, view, settings)
                trial = judged(problem, network, placed, least, probes, cpu_ms)
                key = Key(strategy, variant, coordinates, network.name, size, len(network_model.hosts))
                _write(lines, problem, network_model, placed, trial, key, seed, number, room)
                yield key, trial


def _known(network_model: NetworkModel, problem: PlacementProblem, drawn: Ints) -> Ints:
    """Return the drawn hosts and the query's ends that may host: a placing node has to know these."""
    return np.union1d(drawn, np.intersect1d(network_model.hosts, [number_of(node) for node in problem.pinned.values()]))


def _free(network: Network, rng: np.random.Generator) -> Floats:
    """Return free cores: none at half of the nodes, room for four to eight operators at the others."""
    room = CORES * rng.integers(ROOM[0], ROOM[1] + 1, network.nodes)
    found: Floats = np.where(rng.random(network.nodes) < FULL, 0.0, room)
    return found


def _write(
    lines: Dump,
    problem: PlacementProblem,
    network_model: NetworkModel,
    placed: dict[str, str],
    trial: Trial,
    key: Key,
    seed: int,
    number: int,
    room: Floats | None,
) -> None:
    labels: dict[str, Any] = key._asdict() | {"seed": seed, "query": number}
    if room is not None:
        labels |= {"free_cores": room[network_model.hosts].round(3).tolist(), "cores_needed": CORES}
    lines.write(problem, network_model, placed, trial, **labels)


def _row(key: Key, trials: list[list[Trial]]) -> dict[str, Any]:
    penalty, interval = summary(trials, lambda trial: trial.penalty)
    every = [trial for seed in trials for trial in seed]
    return {
        **key._asdict(),
        "penalty_mean_pct": round(penalty, 2),
        "penalty_ci95_pct": None if interval is None else round(interval, 2),
        "penalty_p90_pct": round(100 * float(np.percentile([trial.penalty for trial in every], 90)), 2),
        "delay_pct": round(summary(trials, lambda trial: trial.delay_penalty)[0], 2),
        "probes_mean": round(float(np.mean([trial.probes for trial in every])), 1),
        "cpu_ms": round(float(np.mean([trial.cpu_ms for trial in every])), 1),
        "queries": len(every),
    }


def _order(key: Key) -> tuple[Any, ...]:
    variant = VARIANTS.index(key.variant)
    return key.topology, key.hosts, key.operators, variant, STRATEGIES.index(key.strategy), key.coordinates

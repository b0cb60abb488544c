"""How much more than the optimum placements cost (``sbon experiment penalty``): strategies, query sizes, networks, and hardships.

Queries are SBON's aggregator (one operator) and complete binary trees, over producers at random nodes. Where a network has
routers, operators are placed on these alone, and then on all nodes. The optimum is exact, over the same hosts, by true latencies,
with the same room. Variants: ``full``; ``no-pings``, by coordinates alone; ``view300``, knowing 300 hosts at random, and the
query's own ends, of all that the optimum may take; ``noise10``, where a ping is 10 % off (the least of three counts);
``capacities``, where half of the nodes are full and the others have room for four to eight operators. Coordinates are refit's
with height, in 3 and 5 dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbon_node.experiments.embedding import refitted
from sbon_node.experiments.ground import Ground, GroundView, number_of
from sbon_node.experiments.network import Floats, Ints, Network
from sbon_node.experiments.network_choice import networks_of
from sbon_node.experiments.trials import Dump, Trial, best_hosts, judged, place, summary
from sbon_node.experiments.workload import CORES, query
from sbon_node.placement.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings

NAME = "penalty"
OPERATORS = (1, 3, 7, 15)
STRATEGIES = ("hybrid", "relaxation", "producer", "consumer", "random")
VARIANTS = ("full", "no-pings", "view300", "noise10", "capacities")
ONLY_HYBRID = ("no-pings", "noise10")
"""The others measure nothing."""
DIMENSIONS = (3, 5)
KNOWN, NOISE = 300, 0.1
FULL, ROOM = 0.5, (4, 8)
TOPOLOGY, QUERIES, SEEDS = "ts1550", 8, (1, 2)


class Key(NamedTuple):
    """Of a row; ``hosts`` is how many may host."""

    strategy: str
    variant: str
    coordinates: str
    topology: str
    operators: int
    hosts: int


Trials = dict[Key, list[list[Trial]]]
"""For each seed."""


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
    """``{"name", "rows"}``, and all trials."""
    trials: Trials = {}
    lines = Dump(dump, NAME)
    for seed in seeds:
        for network in networks_of(data, topologies or (() if data else (TOPOLOGY,)), seed):
            everyone = np.arange(network.nodes)
            for dimensions in DIMENSIONS:
                told(f"{network.name}, seed {seed}: coordinates in {dimensions} dimensions")
                places = refitted(network, dimensions, seed)
                for hosts in ([network.routers] if len(network.routers) else []) + [everyone]:
                    ground = Ground(network, places, hosts)
                    for size in operators:
                        told(f"{network.name}, seed {seed}, {dimensions} dimensions, {len(hosts)} hosts, {size} operators")
                        for key, trial in _of_ground(ground, f"{dimensions}d+h", size, queries, seed, variants, lines):
                            by_seed = trials.setdefault(key, [])
                            if len(by_seed) < seeds.index(seed) + 1:
                                by_seed.append([])
                            by_seed[-1].append(trial)
    lines.close()
    return {"name": NAME, "rows": [_row(key, trials[key]) for key in sorted(trials, key=_order)]}, trials


def _of_ground(
    ground: Ground, coordinates: str, size: int, queries: int, seed: int, variants: Sequence[str], lines: Dump
) -> Iterator[tuple[Key, Trial]]:
    network = ground.network
    rng = np.random.default_rng((seed, size, 51))
    for number in range(queries):
        problem = query(size, network.nodes, rng)
        free = _free(network, rng)
        drawn = rng.permutation(ground.hosts)[:KNOWN]
        best = best_hosts(problem, ground)
        for variant in variants:
            if variant == "view300" and len(ground.hosts) <= KNOWN:
                continue
            room = free if variant == "capacities" else None
            least = best if room is None else best_hosts(problem, ground, room)
            for strategy in STRATEGIES:
                if variant in ONLY_HYBRID and strategy != "hybrid":
                    continue
                view = GroundView(
                    ground,
                    number,
                    known=_known(ground, problem, drawn) if variant == "view300" else None,
                    noise=NOISE if variant == "noise10" else 0.0,
                    free=room,
                )
                settings = PlacementSettings(measure=variant != "no-pings")
                placed, questions, cpu_ms = place(problem, strategy, view, settings)
                trial = judged(problem, network, placed, least, questions, cpu_ms)
                key = Key(strategy, variant, coordinates, network.name, size, len(ground.hosts))
                _write(lines, problem, ground, placed, trial, key, seed, number, room)
                yield key, trial


def _known(ground: Ground, problem: PlacementProblem, drawn: Ints) -> Ints:
    """Those and the ends of the query that may host: whoever places it has to know where these are."""
    return np.union1d(drawn, np.intersect1d(ground.hosts, [number_of(node) for node in problem.pinned.values()]))


def _free(network: Network, rng: np.random.Generator) -> Floats:
    """Cores left: nothing at half of the nodes, room for four to eight operators at the others."""
    room = CORES * rng.integers(ROOM[0], ROOM[1] + 1, network.nodes)
    found: Floats = np.where(rng.random(network.nodes) < FULL, 0.0, room)
    return found


def _write(
    lines: Dump,
    problem: PlacementProblem,
    ground: Ground,
    placed: dict[str, str],
    trial: Trial,
    key: Key,
    seed: int,
    number: int,
    room: Floats | None,
) -> None:
    labels: dict[str, Any] = key._asdict() | {"seed": seed, "query": number}
    if room is not None:
        labels |= {"free_cores": room[ground.hosts].round(3).tolist(), "cores_needed": CORES}
    lines.write(problem, ground, placed, trial, **labels)


def _row(key: Key, trials: list[list[Trial]]) -> dict[str, Any]:
    penalty, interval = summary(trials, lambda trial: trial.penalty)
    every = [trial for seed in trials for trial in seed]
    return {
        **key._asdict(),
        "penalty_mean_pct": round(penalty, 2),
        "penalty_ci95_pct": None if interval is None else round(interval, 2),
        "penalty_p90_pct": round(100 * float(np.percentile([trial.penalty for trial in every], 90)), 2),
        "delay_pct": round(summary(trials, lambda trial: trial.delay_penalty)[0], 2),
        "questions_mean": round(float(np.mean([trial.questions for trial in every])), 1),
        "cpu_ms": round(float(np.mean([trial.cpu_ms for trial in every])), 1),
        "queries": len(every),
    }


def _order(key: Key) -> tuple[Any, ...]:
    variant = VARIANTS.index(key.variant)
    return key.topology, key.hosts, key.operators, variant, STRATEGIES.index(key.strategy), key.coordinates

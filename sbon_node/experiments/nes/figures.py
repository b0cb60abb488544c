"""NES's strategies on a hierarchy (``sbon experiment nes``): Bottom-Up, Top-Down, IFCOP by iterations, and local search on
top.

A filter at each of 2 to 32 sources, their streams merged two by two, rates and selectivities at random. If the network is a
hierarchy (``edge-fog-cloud``), sources are leaves and the sink is a root. Otherwise all are at random nodes, and the
hierarchy is the tree of shortest paths over the overlay. A random share of every node's cores, up to ``load``, is taken. The
strategies know the exact latencies; ``hybrid``, beside them, has coordinates and measures.

The lower bound is the exact optimum over all nodes with unlimited capacity; ``optimum`` is exact with the actual capacity,
where computed. Usage counts direct links between hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbon_node.errors import SbonError
from sbon_node.experiments.coordinates.embedding import refitted
from sbon_node.experiments.harness.network import Floats, Network
from sbon_node.experiments.harness.network_choice import networks_of
from sbon_node.experiments.harness.network_model import NetworkModel, NetworkModelView, number_of
from sbon_node.experiments.harness.trials import Dump, Trial, best_hosts, exact_usage, interval, judged, place
from sbon_node.experiments.harness.workload import CORES, branches
from sbon_node.placement.settings import PlacementSettings

NAME = "nes"
SOURCES = (2, 4, 8, 16, 32)
ITERATIONS = (1, 10, 100, 1000)
STRATEGIES = ("bottom-up", "top-down", "ifcop", "local-search", "hybrid")
EXACT_SOURCES = 8
"""Number of sources beyond which the exact optimum with capacity is left out."""
LOAD = 0.8
DIMENSIONS = 5
TOPOLOGY, QUERIES, SEEDS = "edge-fog-cloud", 10, (1, 2, 3)


class Key(NamedTuple):
    """Key of a row; ``iterations`` are IFCOP's, None for others."""

    topology: str
    sources: int
    strategy: str
    iterations: int | None


class Outcome(NamedTuple):
    """Result of a query: ``trial`` against the lower bound, None without capacity; optimum; and ``overloaded`` hosts.

    The optimum is the usage of the optimum with capacity, None if unknown.
    """

    trial: Trial | None
    optimum: float | None
    overloaded: int


Outcomes = dict[Key, list[list[Outcome]]]
"""Outcomes by key, for each seed."""


def run(
    data: Sequence[Path] = (),
    topologies: Sequence[str] = (),
    *,
    queries: int = QUERIES,
    seeds: Sequence[int] = SEEDS,
    sources: Sequence[int] = SOURCES,
    iterations: Sequence[int] = ITERATIONS,
    load: float = LOAD,
    dump: Path | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Any], Outcomes]:
    """Return ``{"name", "rows"}``, and all outcomes.

    Raises :class:`SbonError` ``bad-matrix``, ``unknown-topology`` or ``too-few-nodes``.
    """
    found: Outcomes = {}
    lines = Dump(dump, NAME)
    for position, seed in enumerate(seeds):
        for network in networks_of(data, topologies or (() if data else (TOPOLOGY,)), seed):
            told(f"{network.name}, seed {seed}: coordinates")
            everyone = np.arange(network.nodes)
            known, guessed = (NetworkModel(network, p, everyone) for p in (None, refitted(network, DIMENSIONS, seed)))
            for many in sources:
                if many >= network.nodes:
                    raise SbonError("too-few-nodes", f"{network.name} has {network.nodes} nodes", where="--sources")
                told(f"{network.name}, seed {seed}, {many} sources")
                for key, outcome in _of_size(known, guessed, many, queries, seed, iterations, load, lines):
                    by_seed = found.setdefault(key, [])
                    by_seed.extend([] for _ in range(position + 1 - len(by_seed)))
                    by_seed[position].append(outcome)
    lines.close()
    return {"name": NAME, "rows": [_row(key, found[key]) for key in found]}, found


def _of_size(
    known: NetworkModel,
    guessed: NetworkModel,
    sources: int,
    queries: int,
    seed: int,
    iterations: Sequence[int],
    load: float,
    lines: Dump,
) -> Iterator[tuple[Key, Outcome]]:
    network = known.network
    rng = np.random.default_rng((seed, sources, 61))
    for number in range(queries):
        problem = branches(*_ends(network, sources, rng), rng)
        free = network.cores * (1 - load * rng.random(network.nodes))
        lower = best_hosts(problem, known)
        optimum = exact_usage(problem, known, free) if sources <= EXACT_SOURCES else None
        for strategy in STRATEGIES:
            for count in iterations if strategy == "ifcop" else (None,):
                settings = PlacementSettings() if count is None else PlacementSettings(iterations=count)
                network_model = guessed if strategy == "hybrid" else known
                key = Key(network.name, sources, strategy, count)
                view = NetworkModelView(network_model, number, free=free)
                labels: dict[str, Any] = {**key._asdict(), "seed": seed, "query": number, "optimum_with_capacity": optimum}
                labels |= {"free_cores": free.round(6).tolist(), "cores_needed": CORES}
                try:
                    placed, probes, cpu_ms = place(problem, strategy, view, settings)
                except SbonError as error:
                    if error.code != "no-capacity":
                        raise
                    lines.refused(problem, network_model, error.code, view.probes, **labels)
                    yield key, Outcome(None, optimum, 0)
                    continue
                trial = judged(problem, network, placed, lower, probes, cpu_ms)
                lines.write(problem, network_model, placed, trial, **labels)
                yield key, Outcome(trial, optimum, _overloaded(placed, free))


def _ends(network: Network, sources: int, rng: np.random.Generator) -> tuple[list[int], int]:
    """Return the nodes of the sources, and of the sink."""
    if network.parents is None:
        drawn = rng.permutation(network.nodes)[: sources + 1].tolist()
        return drawn[:-1], drawn[-1]
    leaves = np.setdiff1d(np.arange(network.nodes), network.parents)
    return rng.permutation(leaves)[:sources].tolist(), int(rng.choice(np.flatnonzero(network.parents < 0)))


def _overloaded(placed: dict[str, str], free: Floats) -> int:
    used = np.zeros(len(free))
    np.add.at(used, [number_of(node) for node in placed.values()], CORES)
    return int((used > free + 1e-9).sum())


def _row(key: Key, outcomes: list[list[Outcome]]) -> dict[str, Any]:
    placed = [[(one.trial, one.optimum) for one in seed if one.trial is not None] for seed in outcomes]
    every = [one for seed in placed for one in seed]
    ratios = [[trial.penalty + 1 for trial, _ in seed] for seed in placed if seed]
    exact = [trial.usage / optimum for trial, optimum in every if optimum is not None]
    spread = interval([float(np.mean(seed)) for seed in ratios])
    return {
        **key._asdict(),
        "operators": 2 * key.sources - 1,
        "ratio_mean": _rounded([ratio for seed in ratios for ratio in seed]),
        "ratio_ci95": None if spread is None else round(spread, 3),
        "optimum_ratio_mean": _rounded(exact),
        "overloaded": sum(one.overloaded for seed in outcomes for one in seed),
        "refused": sum(one.trial is None for seed in outcomes for one in seed),
        "probes_mean": _rounded([trial.probes for trial, _ in every], 1),
        "cpu_ms": _rounded([trial.cpu_ms for trial, _ in every], 1),
        "queries": sum(len(seed) for seed in outcomes),
    }


def _rounded(values: Sequence[float], digits: int = 3) -> float | None:
    return round(float(np.mean(values)), digits) if values else None

"""Costs of a placement in growing networks and queries (``sbon experiment scale``), and long sequences of queries.

``size``: SBON's query and trees of operators on transit-stub networks of 100 to 10,000 nodes, all of which may host. It gives
the CPU time, the peak memory, and the probes (nodes asked and pairs measured, each a message and its answer) of a placement;
and the penalty against the exact optimum, where its tables fit. ``sequence``: queries of 1, 3 and 7 operators in sequence,
none of which ends, on nodes whose capacity is just that of all queries' operators; a row for every hundred. ``ratio_mean`` is
usage / that of the optimum with unlimited capacity; ``optimum_ratio_mean`` compares every tenth query with the exact optimum
in the remaining capacity. Intervals are over seeds, where there are several.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbon_node.errors import SbonError
from sbon_node.experiments.coordinates.embedding import refitted
from sbon_node.experiments.harness.network import Floats, Network
from sbon_node.experiments.harness.network_choice import networks_of
from sbon_node.experiments.harness.network_model import NetworkModel, NetworkModelView, number_of
from sbon_node.experiments.harness.trials import Dump, Trial, best_hosts, exact_usage, interval, judged, place
from sbon_node.experiments.harness.workload import CORES, query
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import STRATEGIES as ALL

NAME = "scale"
TOPOLOGIES = ("ts100", "ts300", "ts1000", "ts1550", "ts3000", "ts10000")
OPERATORS = (1, 3, 7, 15, 31, 50)
STRATEGIES = ("hybrid", "relaxation")
SEQUENCE, SEQUENCE_ON, SIZES = 1000, "ts1550", (1, 3, 7)
"""Length of the sequence, its default network, and the numbers of operators in turn."""
BLOCK, EXACT_EVERY = 100, 10
EXACT_ENTRIES = 40_000_000
"""Most entries of hosts-by-hosts tables, one for each operator, for which the optimum is computed."""
DIMENSIONS = 5
QUERIES, SEEDS = 5, (1,)


class Key(NamedTuple):
    """Key of a row; in a sequence ``operators`` is 0 and ``first`` the number of its first query."""

    part: str
    strategy: str
    topology: str
    nodes: int
    operators: int
    first: int


class Outcome(NamedTuple):
    """``trial`` is None for a rejected query; ``memory_mb`` and ``optimum``, a usage, are None if unknown.

    ``filled`` is the share of all capacity that is taken after it.
    """

    seed: int
    trial: Trial | None
    memory_mb: float | None
    optimum: float | None
    filled: float


Outcomes = dict[Key, list[Outcome]]


def run(
    data: Sequence[Path] = (),
    topologies: Sequence[str] = (),
    *,
    queries: int = QUERIES,
    seeds: Sequence[int] = SEEDS,
    operators: Sequence[int] = OPERATORS,
    strategies: Sequence[str] = STRATEGIES,
    sequence: int = SEQUENCE,
    dump: Path | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Any], Outcomes]:
    """Return ``{"name", "rows"}``, and all outcomes; no ``operators`` or ``sequence`` 0 leave out a part.

    Raises :class:`SbonError` ``bad-matrix`` or ``unknown-topology``.
    """
    found: Outcomes = {}
    lines = Dump(dump, NAME)
    named = bool(data or topologies)
    for seed in seeds:
        chosen = topologies if named else TOPOLOGIES if operators else (SEQUENCE_ON,)
        for network in networks_of(data, chosen, seed):
            told(f"{network.name}, seed {seed}: coordinates")
            network_model = NetworkModel(network, refitted(network, DIMENSIONS, seed), np.arange(network.nodes))
            for strategy in strategies:
                for size in operators:
                    told(f"{network.name}, seed {seed}: {strategy}, {size} operators")
                    key = Key("size", strategy, network.name, network.nodes, size, 0)
                    found.setdefault(key, []).extend(_of_size(key, network_model, queries, seed, lines))
            if sequence and (named or network.name == SEQUENCE_ON):
                for key, outcome in _sequences(network_model, strategies, sequence, seed, lines, told):
                    found.setdefault(key, []).append(outcome)
    lines.close()
    return {"name": NAME, "rows": [_row(key, found[key]) for key in sorted(found)]}, found


def _of_size(key: Key, network_model: NetworkModel, queries: int, seed: int, lines: Dump) -> Iterator[Outcome]:
    network = network_model.network
    rng = np.random.default_rng((seed, key.operators, 71))
    problems = [query(key.operators, network.nodes, rng) for _ in range(queries)]
    peak_mb = _peak_mb(problems[0], key.strategy, NetworkModelView(network_model, 0))
    small = network.nodes**2 * key.operators <= EXACT_ENTRIES
    for number, problem in enumerate(problems):
        placed, probes, cpu_ms = place(problem, key.strategy, NetworkModelView(network_model, number), PlacementSettings())
        best = best_hosts(problem, network_model) if small else None
        trial = _judged(problem, network, placed, best, probes, cpu_ms)
        lines.write(problem, network_model, placed, trial, **key._asdict(), seed=seed, query=number)
        yield Outcome(seed, trial, peak_mb, None, 0.0)


def _judged(
    problem: PlacementProblem,
    network: Network,
    placed: dict[str, str],
    best: dict[str, str] | None,
    probes: int,
    cpu_ms: float,
) -> Trial:
    trial = judged(problem, network, placed, placed if best is None else best, probes, cpu_ms)
    return trial._replace(best=np.nan) if best is None else trial


def _peak_mb(problem: PlacementProblem, strategy: str, view: NetworkModelView) -> float:
    """Return the peak memory of a placement beyond the memory in use before; megabytes."""
    tracemalloc.start()
    try:
        asyncio.run(_placed(problem, strategy, view))
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


async def _placed(problem: PlacementProblem, strategy: str, view: NetworkModelView) -> None:
    await ALL[strategy](problem, view, PlacementSettings())


def _sequences(
    network_model: NetworkModel, strategies: Sequence[str], count: int, seed: int, lines: Dump, told: Callable[[str], None]
) -> Iterator[tuple[Key, Outcome]]:
    """Let all strategies place the same queries, each on separate nodes."""
    network = network_model.network
    rng = np.random.default_rng((seed, 72))
    problems = [query(SIZES[number % len(SIZES)], network.nodes, rng) for number in range(count)]
    demand = sum(len(problem.operators) for problem in problems)
    shares = rng.random(network.nodes)
    room = CORES * np.floor(shares / shares.sum() * demand + rng.random(network.nodes))
    left = {strategy: room.copy() for strategy in strategies}
    for number, problem in enumerate(problems):
        if number % BLOCK == 0:
            told(f"{network.name}, seed {seed}: query {number} of {count}")
        lower = best_hosts(problem, network_model)
        for strategy in strategies:
            free = left[strategy]
            key = Key("sequence", strategy, network.name, network.nodes, 0, number // BLOCK * BLOCK)
            view = NetworkModelView(network_model, number, free=free)
            labels: dict[str, Any] = {**key._asdict(), "seed": seed, "query": number, "cores_needed": CORES}
            labels["free_cores"] = free.round(6).tolist()
            try:
                placed, probes, cpu_ms = place(problem, strategy, view, PlacementSettings())
            except SbonError as error:
                if error.code != "no-capacity":
                    raise
                lines.refused(problem, network_model, error.code, view.probes, **labels)
                yield key, Outcome(seed, None, None, None, 1 - float(free.sum() / room.sum()))
                continue
            optimum = exact_usage(problem, network_model, free) if number % EXACT_EVERY == 0 else None
            trial = judged(problem, network, placed, lower, probes, cpu_ms)
            lines.write(problem, network_model, placed, trial, **labels, optimum_with_capacity=optimum)
            _take(free, placed)
            yield key, Outcome(seed, trial, None, optimum, 1 - float(free.sum() / room.sum()))


def _take(free: Floats, placed: dict[str, str]) -> None:
    np.subtract.at(free, [number_of(node) for node in placed.values()], CORES)
    if (free < -1e-9).any():
        raise AssertionError("a host has been given more than it had room for")


def _row(key: Key, outcomes: list[Outcome]) -> dict[str, Any]:
    trials = [one.trial for one in outcomes if one.trial is not None]
    beside = [trial.penalty + 1 for trial in trials if not np.isnan(trial.best)]
    exact = [one.trial.usage / one.optimum for one in outcomes if one.trial is not None and one.optimum is not None]
    cpu_ms = [trial.cpu_ms for trial in trials]
    by_seed: dict[int, list[Trial]] = {}
    for one in outcomes:
        if one.trial is not None:
            by_seed.setdefault(one.seed, []).append(one.trial)
    in_turn = key.part == "sequence"
    return {
        "part": key.part,
        "strategy": key.strategy,
        "topology": key.topology,
        "nodes": key.nodes,
        "operators": None if in_turn else key.operators,
        "first_query": key.first if in_turn else None,
        "cpu_ms": _rounded(np.mean, cpu_ms, 1),
        "cpu_ci95_ms": _spread(by_seed.values(), lambda trial: trial.cpu_ms, 1),
        "cpu_median_ms": _rounded(np.median, cpu_ms, 1),
        "memory_mb": _rounded(np.mean, [one.memory_mb for one in outcomes if one.memory_mb is not None], 2),
        "probes_mean": _rounded(np.mean, [trial.probes for trial in trials], 1),
        "ratio_mean": _rounded(np.mean, beside, 3),
        "ratio_ci95": _spread(by_seed.values(), lambda trial: trial.penalty + 1, 3),
        "optimum_ratio_mean": _rounded(np.mean, exact, 3),
        "filled_pct": _rounded(np.max, [100 * one.filled for one in outcomes], 1) if in_turn else None,
        "refused": sum(one.trial is None for one in outcomes),
        "queries": len(outcomes),
    }


def _spread(by_seed: Iterable[Sequence[Trial]], of: Callable[[Trial], float], digits: int) -> float | None:
    """Return the interval of the mean over seeds; None for a single seed, or if unknown."""
    found = interval([float(np.mean([of(trial) for trial in trials])) for trials in by_seed])
    return None if found is None or np.isnan(found) else round(found, digits)


def _rounded(of: Callable[[Sequence[float]], Any], values: Sequence[float], digits: int) -> float | None:
    return round(float(of(values)), digits) if len(values) else None

"""SAND's Figures 6 to 12 (``sbon experiment sand``): savings of its strategies against shipping every source whole to the
proxy.

The paper's set-up (section 6.1): transit-stub topologies of 14 transit domains and 500 ms, binary trees of operators with
depths of three to five, selectivities uniform from 0 to 1, sources' rates uniform from 1 to 10, and sources in a star about
the proxy, uniformly, or in a cluster. Latencies are exact; for Figure 6's cluster also by coordinates, refit's in 5
dimensions, and measurements. The bounds on delay, "120 and 300 ms, defined as a ratio of the average network diameter", are
ratios: 1.2 (tight) and 3 times (loose) the longest direct delay from a source to the proxy.

The bandwidth ratio is network usage / that of all operators at the proxy. The stretch is the longest path's delay / the
longest direct delay. The paper draws both without printing a number. ``in-network+`` is ours; ``optimal`` is exact over all
nodes, without a bound on delay, so under a bound it is a lower limit (with Figure 6 alone). Figures 6 and 7 have the same
queries, as have 9 and 10, and 11 and 12.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from sbon_node.errors import SbonError
from sbon_node.experiments.coordinates.embedding import refitted
from sbon_node.experiments.harness.network_choice import networks_of
from sbon_node.experiments.harness.network_model import NetworkModel, NetworkModelView
from sbon_node.experiments.harness.trials import Dump, Trial, best_hosts, interval, judged, place
from sbon_node.experiments.sand.workload import FAR, LIES, Lie, Shape, lie_of, tree
from sbon_node.model.objective import Bounds
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings

NAME = "sand"
TIGHT, LOOSE = 1.2, 3.0
DIMENSIONS = 5
BINARY = Shape(2, (3, 4, 5))
PAPERS = ("edge", "edge+", "in-network")
STRATEGIES = (*PAPERS, "in-network+")
ASDS = (0.05, 0.1, 0.2, 0.3)
"""Values of Figure 8, as shares of the diameter."""
BOUNDS = (1.0, 1.2, 1.5, 2.0, 3.0)
SHAPES = (Shape(2, (3,)), Shape(2, (5,)), Shape(3, (3,)))
"""Trees of Figure 9: a reference, a deeper tree and a wider tree."""
SELECTIVITIES = (0.25, 0.5, 0.75, 1.0)
"""Values of Figure 11: the greatest selectivity of each query."""
TOPOLOGY, QUERIES, SEEDS = "ts1064", 20, (1, 2, 3, 4, 5)
ROUNDING_MS = 1e-6
"""Tolerance for sums of latencies."""


class Cell(NamedTuple):
    """A strategy with its queries in a figure; ``latencies`` are exact, or by coordinates."""

    figure: str
    topology: str
    latencies: str
    sources: str
    shape: str
    selectivity: float
    asd_wanted: float
    bound: float | None
    strategy: str


class Outcome(NamedTuple):
    """Result of a query; ``trial`` is None if it was rejected. ``whole`` is the usage of all operators at the proxy.

    ``at`` counts operators at the proxy, at sources, and at other nodes.
    """

    trial: Trial | None
    whole: float
    kept: bool
    at: tuple[int, int, int]
    lie: Lie


Outcomes = dict[Cell, list[list[Outcome]]]
"""Outcomes by cell, for each seed."""


def run(
    data: Sequence[Path] = (),
    topologies: Sequence[str] = (),
    *,
    queries: int = QUERIES,
    seeds: Sequence[int] = SEEDS,
    figures: Sequence[int] = tuple(range(6, 13)),
    dump: Path | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Any], Outcomes]:
    """Return ``{"name", "rows"}``, and all outcomes."""
    outcomes: Outcomes = {}
    lines = Dump(dump, NAME)
    for seed in seeds:
        for network in networks_of(data, topologies or (() if data else (TOPOLOGY,)), seed):
            everyone = np.arange(network.nodes)
            for series in _series(figures):
                told(f"{network.name}, seed {seed}, figure {series.figure}, {series.sources}")
                places = refitted(network, DIMENSIONS, seed) if series.latencies == "coordinates" else None
                network_model = NetworkModel(network, places, everyone)
                rng = np.random.default_rng((seed, 61, series.salt))
                for number in range(queries):
                    problem = tree(series.shape, series.lie, series.selectivity, network.latency_ms, rng)
                    for cell, outcome in _of_query(network_model, series, problem, seed, number, lines):
                        by_seed = outcomes.setdefault(cell, [])
                        if len(by_seed) < seeds.index(seed) + 1:
                            by_seed.append([])
                        by_seed[-1].append(outcome)
    lines.close()
    return {"name": NAME, "rows": [_row(cell, each) for cell, each in outcomes.items()]}, outcomes


class _Series(NamedTuple):
    """Queries of the same kind, and the settings tried on each."""

    figure: str
    sources: str
    lie: Lie
    shape: Shape
    selectivity: float
    bounds: tuple[float, ...]
    strategies: tuple[str, ...]
    optimal: bool = False
    latencies: str = "true"

    @property
    def salt(self) -> int:
        """Return a seed that gives the same sources for the same kind of query."""
        return round(1e6 * self.lie.apd) + round(1e3 * self.lie.asd) + 10 * sum(self.shape.depths) + self.shape.fanout


def _series(figures: Sequence[int]) -> Iterator[_Series]:
    inside = ("in-network", "in-network+")
    if {6, 7} & set(figures):
        for sources, lie in LIES.items():
            yield _Series("6-7", sources, lie, BINARY, 1.0, (TIGHT, LOOSE), STRATEGIES, optimal=True)
        yield _Series("6-7", "cluster", LIES["cluster"], BINARY, 1.0, (TIGHT, LOOSE), STRATEGIES, latencies="coordinates")
    if 8 in figures:
        for asd in ASDS:
            yield _Series("8", "cluster", Lie(FAR, asd), BINARY, 1.0, (TIGHT, LOOSE), STRATEGIES)
    if {9, 10} & set(figures):
        for shape in SHAPES:
            yield _Series("9-10", "cluster", LIES["cluster"], shape, 1.0, BOUNDS, inside)
    if {11, 12} & set(figures):
        for sources in ("cluster", "star"):
            for selectivity in SELECTIVITIES:
                yield _Series("11-12", sources, LIES[sources], BINARY, selectivity, (LOOSE,), inside)


def _of_query(
    network_model: NetworkModel, series: _Series, problem: PlacementProblem, seed: int, number: int, lines: Dump
) -> Iterator[tuple[Cell, Outcome]]:
    network, consumer = network_model.network, problem.pinned["consumer"]
    lie = lie_of(problem, network.latency_ms)
    at_proxy = {operator.id: consumer for operator in problem.operators}
    whole = judged(problem, network, at_proxy, at_proxy, 0, 0.0)
    least = math.nan

    def outcome(
        bounded: PlacementProblem, bound: float | None, strategy: str, found: _Placed | None, asked: int = 0
    ) -> tuple[Cell, Outcome]:
        where = (series.figure, network.name, series.latencies, series.sources, series.shape.name)
        cell = Cell(*where, series.selectivity, series.lie.asd, bound, strategy)
        labels = {**cell._asdict(), "seed": seed, "query": number, "max_delay_ms": bounded.bounds.max_delay_ms}
        labels["baseline_usage"] = whole.usage
        if found is None:
            lines.refused(bounded, network_model, "delay-bound", asked, **labels)
            return cell, Outcome(None, whole.usage, False, (0, 0, 0), lie)
        trial = judged(bounded, network, found.hosts, at_proxy, found.probes, found.cpu_ms)
        trial = trial._replace(best=trial.usage if strategy == "optimal" else least)
        lines.write(bounded, network_model, found.hosts, trial, **labels)
        kept = bound is None or trial.delay_ms <= bound * whole.direct_ms + ROUNDING_MS
        return cell, Outcome(trial, whole.usage, kept, _where(bounded, found.hosts), lie)

    if series.optimal:
        best = outcome(problem, None, "optimal", _Placed(best_hosts(problem, network_model), 0, 0.0))
        assert best[1].trial is not None
        least = best[1].trial.usage
        yield best
    for bound in series.bounds:
        bounded = msgspec.structs.replace(problem, bounds=Bounds(max_delay_ms=bound * whole.direct_ms))
        for strategy in series.strategies:
            view = NetworkModelView(network_model, number)
            try:
                found = _Placed(*place(bounded, strategy, view, PlacementSettings()))
            except SbonError as error:
                if error.code != "delay-bound":
                    raise
                found = None
            yield outcome(bounded, bound, strategy, found, view.probes)


class _Placed(NamedTuple):
    """Result of :func:`~sbon_node.experiments.harness.trials.place`."""

    hosts: dict[str, str]
    probes: int
    cpu_ms: float


def _where(problem: PlacementProblem, placed: dict[str, str]) -> tuple[int, int, int]:
    proxy = problem.pinned["consumer"]
    sources = {node for vertex, node in problem.pinned.items() if vertex != "consumer"}
    at_proxy = sum(node == proxy for node in placed.values())
    at_sources = sum(node in sources for node in placed.values())
    return at_proxy, at_sources, len(placed) - at_proxy - at_sources


def _row(cell: Cell, outcomes: list[list[Outcome]]) -> dict[str, Any]:
    every = [outcome for seed in outcomes for outcome in seed]
    placed = [[(outcome, outcome.trial) for outcome in seed if outcome.trial is not None] for seed in outcomes]
    ratios = [sum(trial.usage for _, trial in seed) / sum(one.whole for one, _ in seed) for seed in placed if seed]
    stretches = [float(np.mean([trial.delay_ms / trial.direct_ms for _, trial in seed])) for seed in placed if seed]
    at = np.array([outcome.at for outcome in every]).sum(axis=0) / max(1, sum(sum(outcome.at) for outcome in every))
    trials = [trial for seed in placed for _, trial in seed]
    return {
        **cell._asdict(),
        "apd": round(float(np.mean([outcome.lie.apd for outcome in every])), 3),
        "asd": round(float(np.mean([outcome.lie.asd for outcome in every])), 3),
        "bandwidth_ratio": _mean(ratios),
        "bandwidth_ci95": _ci95(ratios),
        "stretch": _mean(stretches),
        "stretch_ci95": _ci95(stretches),
        "at_proxy_pct": round(100 * float(at[0]), 1),
        "at_sources_pct": round(100 * float(at[1]), 1),
        "in_network_pct": round(100 * float(at[2]), 1),
        "bound_kept": sum(outcome.kept for outcome in every),
        "refused": sum(outcome.trial is None for outcome in every),
        "probes_mean": round(float(np.mean([trial.probes for trial in trials])), 1) if trials else None,
        "cpu_ms": round(float(np.mean([trial.cpu_ms for trial in trials])), 1) if trials else None,
        "queries": len(every),
    }


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None


def _ci95(by_seed: Sequence[float]) -> float | None:
    found = interval(by_seed)
    return None if found is None else round(found, 4)

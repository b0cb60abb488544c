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

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from sbon_lab.experiments.coordinates.embedding import refitted
from sbon_lab.experiments.harness.columns import count, mean, seeds_ci95, seeds_mean, table, total
from sbon_lab.experiments.harness.experiment import PlacementExperiment, Point
from sbon_lab.experiments.harness.network_model import NetworkModel, NetworkModelView
from sbon_lab.experiments.harness.pictures import Lines, Panel, Picture, Row
from sbon_lab.experiments.harness.trials import Trial, best_hosts, judged, place
from sbon_lab.experiments.sand.workload import FAR, LIES, Lie, Shape, lie_of, tree
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.strategies import Bounds
from sbon_protocol.errors import SbonError

# -- Pictures of SAND's Figures 6 to 12: bars by positions of sources, lines over bounds, distances and selectivities --

RATIO, STRETCH = ("bandwidth_ratio", "bandwidth_ci95", "bandwidth ratio"), ("stretch", "stretch_ci95", "stretch")
PROXY, INSIDE = ("at_proxy_pct", None, "operators at the proxy (%)"), ("in_network_pct", None, "operators inside the network (%)")
Value = tuple[str, str | None, str]
"""A column, its confidence interval, and the axis's label."""


@dataclass(frozen=True)
class Bars:
    """Panel of groups of sources and bounds with a bar for each strategy; the optimum, without a bound, is in all groups of its
    sources.
    """

    value: Value

    def __call__(self, axes: Any, rows: list[Row], trials: Any) -> None:
        column, interval, label = self.value
        groups = list(dict.fromkeys((row["sources"], row["bound"]) for row in rows if row["bound"] is not None))
        strategies = list(dict.fromkeys(row["strategy"] for row in rows))
        width = 0.8 / len(strategies)
        for position, strategy in enumerate(strategies):
            own = [row for row in rows if row["strategy"] == strategy]
            rows_shown = [
                next(row for row in own if row["sources"] == at and row["bound"] in (None, bound)) for at, bound in groups
            ]
            across = [i + (position - (len(strategies) - 1) / 2) * width for i in range(len(groups))]
            around = [row[str(interval)] or 0.0 for row in rows_shown]
            axes.bar(across, [row[column] or 0.0 for row in rows_shown], width, yerr=around, capsize=2, label=strategy)
        axes.set_xticks(range(len(groups)), [f"{sources}\n{bound:g}x" for sources, bound in groups])
        axes.set(ylabel=label)
        axes.legend()


def _over(x: str, value: Value, label: str, xlabel: str) -> Lines:
    column, interval, ylabel = value
    return Lines(x, column, label, interval, axes={"xlabel": xlabel, "ylabel": ylabel})


def _picture(number: int, figures: str, panels: list[Panel], size: tuple[float, float] | None = None) -> Picture:
    """``figures`` names the rows that figures of the paper share."""
    shown = {"latencies": "true", "figure": figures}
    return Picture(f"{{topology}}-figure{number}", [panels], where=lambda row: shown.items() <= row.items(), size=size)


_TREES, _BOUND = "{strategy}, trees {shape}", "bound on delay (longest direct ones)"
_SOURCES, _SELECTIVITY = "{strategy}, {sources}", "greatest selectivity"
_DISTANCE = "average distance of sources (share of the diameter)"
PICTURES = (
    _picture(6, "6-7", [Bars(RATIO)]),
    _picture(7, "6-7", [Bars(STRETCH)]),
    _picture(8, "8", [_over("asd", RATIO, "{strategy}, {bound:g}x", _DISTANCE)]),
    _picture(9, "9-10", [_over("bound", RATIO, _TREES, _BOUND)]),
    _picture(10, "9-10", [_over("bound", STRETCH, _TREES, _BOUND)]),
    _picture(11, "11-12", [_over("selectivity", value, _SOURCES, _SELECTIVITY) for value in (RATIO, STRETCH)], (10, 4.5)),
    _picture(12, "11-12", [_over("selectivity", value, _SOURCES, _SELECTIVITY) for value in (PROXY, INSIDE)], (10, 4.5)),
)


# ---------------------------------------------------------------------------------------------------------------------

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

    ``at`` counts operators at the proxy, at sources, and at other nodes. ``messages`` and ``size_bytes`` are those between the
    coordinators, answers included in the size.
    """

    trial: Trial | None
    whole: float
    kept: bool
    at: tuple[int, int, int]
    lie: Lie
    messages: int
    size_bytes: int


class Parameters(NamedTuple):
    figures: tuple[int, ...] = tuple(range(6, 13))


def measure(point: Point[Parameters]) -> Iterator[tuple[Cell, Outcome]]:
    network, seed = point.network, point.seed
    everyone = np.arange(network.nodes)
    for series in _series(point.parameters.figures):
        point.notify(f"figure {series.figure}, {series.sources}")
        positions = refitted(network, DIMENSIONS, seed) if series.latencies == "coordinates" else None
        network_model = NetworkModel(network, positions, everyone)
        rng = np.random.default_rng((seed, 61, series.salt))
        for number in range(point.queries):
            problem = tree(series.shape, series.lie, series.selectivity, network.latency_ms, rng)
            yield from _of_query(point, network_model, series, problem, number)


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
    point: Point[Parameters], network_model: NetworkModel, series: _Series, problem: PlacementProblem, number: int
) -> Iterator[tuple[Cell, Outcome]]:
    network, consumer = network_model.network, problem.pinned["consumer"]
    lie = lie_of(problem, network.latency_ms)
    at_proxy = {operator.id: consumer for operator in problem.operators}
    baseline = judged(problem, network, at_proxy, at_proxy, 0, 0.0)
    least = math.nan

    def outcome(
        bounded: PlacementProblem, bound: float | None, strategy: str, placed_hosts: _Placed | None, view: NetworkModelView
    ) -> tuple[Cell, Outcome]:
        where = (series.figure, network.name, series.latencies, series.sources, series.shape.name)
        cell = Cell(*where, series.selectivity, series.lie.asd, bound, strategy)
        labels = {**cell._asdict(), "seed": point.seed, "query": number, "max_delay_ms": bounded.bounds.max_delay_ms}
        labels["baseline_usage"] = baseline.usage
        if placed_hosts is None:
            point.lines.refused(bounded, network_model, "delay-bound", view.probes, **labels)
            return cell, Outcome(None, baseline.usage, False, (0, 0, 0), lie, *_messages(view))
        trial = judged(bounded, network, placed_hosts.hosts, at_proxy, placed_hosts.probes, placed_hosts.cpu_ms)
        trial = trial._replace(best=trial.usage if strategy == "optimal" else least)
        point.lines.write(bounded, network_model, placed_hosts.hosts, trial, **labels)
        is_within = bound is None or trial.delay_ms <= bound * baseline.direct_ms + ROUNDING_MS
        return cell, Outcome(trial, baseline.usage, is_within, _where(bounded, placed_hosts.hosts), lie, *_messages(view))

    if series.optimal:
        hosts = _Placed(best_hosts(problem, network_model), 0, 0.0)
        best = outcome(problem, None, "optimal", hosts, NetworkModelView(network_model, number))
        assert best[1].trial is not None
        least = best[1].trial.usage
        yield best
    for bound in series.bounds:
        bounded = msgspec.structs.replace(problem, bounds=Bounds(max_delay_ms=bound * baseline.direct_ms))
        for strategy in series.strategies:
            view = NetworkModelView(network_model, number)
            try:
                result = _Placed(*place(bounded, strategy, view, PlacementSettings()))
            except SbonError as error:
                if error.code != "delay-bound":
                    raise
                result = None
            yield outcome(bounded, bound, strategy, result, view)


class _Placed(NamedTuple):
    """Result of :func:`~sbon_lab.experiments.harness.trials.place`."""

    hosts: dict[str, str]
    probes: int
    cpu_ms: float


def _messages(view: NetworkModelView) -> tuple[int, int]:
    return view.coordinators.counts.total(), view.coordinators.size_bytes


def _where(problem: PlacementProblem, hosts: dict[str, str]) -> tuple[int, int, int]:
    proxy = problem.pinned["consumer"]
    sources = {node for vertex, node in problem.pinned.items() if vertex != "consumer"}
    at_proxy = sum(node == proxy for node in hosts.values())
    at_sources = sum(node in sources for node in hosts.values())
    return at_proxy, at_sources, len(hosts) - at_proxy - at_sources


def _placed(seed: Sequence[Outcome]) -> list[tuple[Outcome, Trial]]:
    return [(outcome, outcome.trial) for outcome in seed if outcome.trial is not None]


def _ratio(seed: Sequence[Outcome]) -> float | None:
    """Usage of all queries of a seed / that of all their operators at the proxy."""
    with_trial = _placed(seed)
    return sum(trial.usage for _, trial in with_trial) / sum(outcome.whole for outcome, _ in with_trial) if with_trial else None


def _stretch(seed: Sequence[Outcome]) -> float | None:
    stretches = [trial.delay_ms / trial.direct_ms for _, trial in _placed(seed)]
    return float(np.mean(stretches)) if stretches else None


def _share_pct(position: int) -> Callable[[Any, Sequence[Sequence[Outcome]]], float]:
    """Return the column of operators at the proxy (0), at sources (1) or at other nodes (2)."""

    def column(key: Any, by_seed: Sequence[Sequence[Outcome]]) -> float:
        counts = [outcome.at for seed in by_seed for outcome in seed]
        return round(100 * float(sum(at[position] for at in counts) / max(1, sum(map(sum, counts)))), 1)

    return column


EXPERIMENT = PlacementExperiment(
    name="sand",
    measure=measure,
    parameters=Parameters(),
    topologies=lambda parameters: ("ts1064",),
    queries=20,
    seeds=(1, 2, 3, 4, 5),
    rows=table(
        {
            "apd": mean(lambda outcome: outcome.lie.apd, 3),
            "asd": mean(lambda outcome: outcome.lie.asd, 3),
            "bandwidth_ratio": seeds_mean(_ratio, 4),
            "bandwidth_ci95": seeds_ci95(_ratio, 4),
            "stretch": seeds_mean(_stretch, 4),
            "stretch_ci95": seeds_ci95(_stretch, 4),
            "at_proxy_pct": _share_pct(0),
            "at_sources_pct": _share_pct(1),
            "in_network_pct": _share_pct(2),
            "bound_kept": total(lambda outcome: outcome.kept),
            "refused": total(lambda outcome: outcome.trial is None),
            "probes_mean": mean(lambda outcome: outcome.trial and outcome.trial.probes, 1),
            "messages_mean": mean(lambda outcome: outcome.messages, 1),
            "messages_kb": mean(lambda outcome: outcome.size_bytes / 1000, 1),
            "cpu_ms": mean(lambda outcome: outcome.trial and outcome.trial.cpu_ms, 1),
            "queries": count(),
        }
    ),
    pictures=PICTURES,
)

"""OPB's Table I and Figures 3, 4 and 5 (``sbon experiment opb-table1``): placement under bounds on throughput and delay.

The application and the resources are :mod:`~sbon_lab.experiments.opb.workload`'s. A placement succeeds if the strategy finds
it and, by true latencies and with the work of all operators on a host, every host keeps up and the longest path keeps to the
bound: f_d times the longest direct path. Four parts:

- ``table1``: f_tp 1 .. 10, no bound on delay, resources by Zipf: Table I, Figure 3, and the discoveries of Figure 5 (a);
- ``delay``: f_d 1.1 .. 10 at f_tp = 5: Figures 4 (a) and 5 (b);
- ``throughput``: f_tp 1 .. 10 at f_d = 10: Figure 4 (b);
- ``usage``: each distribution of resources at f_tp = 5 without a bound on delay, for the ratio to the best response.

Latencies are known by ``coordinates`` alone, as in the paper; ``pinged``, where strategies may also measure pairs; or all
``measured``. Usage and delay cover the applications for which every strategy succeeded. The best response is a placement that
no move of an operator, or of two linked operators on the same host, improves: by true latencies, the best of those reached
from each strategy's placement. The exact optimum is given if the application is narrow enough for tables.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sbon_lab.experiments.coordinates.embedding import refitted
from sbon_lab.experiments.harness.columns import interval, rounded
from sbon_lab.experiments.harness.experiment import PlacementExperiment, Point
from sbon_lab.experiments.harness.network import Floats, Ints
from sbon_lab.experiments.harness.network_model import NetworkModel, NetworkModelView, name_of, number_of
from sbon_lab.experiments.harness.pictures import Lines, Panel, Picture, Row
from sbon_lab.experiments.harness.trials import Dump, true_latency
from sbon_lab.experiments.opb.workload import CAPACITIES, Application, application, capacities, some_nodes
from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.instance import RESOURCES, Instance
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.elimination import Elimination, TooWideError
from sbon_node.placement.solvers.exact import descend
from sbon_protocol.api.placement import Placement
from sbon_protocol.errors import SbonError

# -- Pictures of OPB's Figures 3, 4 and 5 with our results ------------------------------------------------------------

CONTENDERS = ("opb", "relaxation", "min-delay", "random", "hybrid")
"""Compared strategies; ``relaxation`` is the paper's SBON."""
REFERENCE = "best-response"
SEARCHING = ("opb", "relaxation", "min-delay")
"""Strategies whose discoveries are reported."""
SHOWN_F_TP = (1, 5, 10)
"""Values of f_tp in Figure 3."""


@dataclass(frozen=True)
class Shares:
    """Panel with the distribution of a figure over the applications that all strategies placed, at a factor of throughput."""

    of: Callable[[Any], float]
    f_tp: int
    axes: dict[str, str]

    def __call__(self, axes: Any, rows: list[Row], trials: Any) -> None:
        runs = [
            run
            for key, seeds in trials.items()
            if (key.cell.part, key.cell.f_tp) == ("table1", self.f_tp)
            for seed in seeds
            for run in seed
            if REFERENCE in run
        ]
        for strategy in CONTENDERS:
            values = np.sort([self.of(run[strategy]) for run in runs])
            axes.plot(values, np.linspace(0, 1, len(values)), label=strategy)
        axes.set(ylabel="share of placements", title=f"f_tp = {self.f_tp}", **self.axes)
        axes.legend(fontsize=7)


def _distributions() -> list[list[Panel]]:
    usage, delay = {"xlabel": "network usage (bytes in flight)", "xscale": "log"}, {"xlabel": "end-to-end delay (ms)"}
    return [
        [Shares(lambda outcome: outcome.usage, f_tp, usage) for f_tp in SHOWN_F_TP],
        [Shares(lambda outcome: outcome.delay_ms, f_tp, delay) for f_tp in SHOWN_F_TP],
    ]


def _success(part: str, latencies: str, x: str, scale: str) -> Lines:
    shown = {"part": part, "latencies": latencies}
    axes = {"xlabel": x, "ylabel": "placements that succeed (%)", "ylim": (0, 102), "title": "{topology}, {latencies}"}
    where = lambda row: shown.items() <= row.items() and row["strategy"] in CONTENDERS  # noqa: E731
    return Lines(x, "success_pct", "{strategy}", "success_ci95_pct", where, {**axes, "xscale": scale})


def _discoveries(part: str, x: str) -> Lines:
    shown = {"part": part, "latencies": "coordinates"}
    axes = {"xlabel": x, "ylabel": "resource discoveries", "ylim": (0, None), "title": "{topology}"}
    where = lambda row: shown.items() <= row.items() and row["strategy"] in SEARCHING  # noqa: E731
    return Lines(x, "discoveries_mean", "{strategy}", None, where, axes)


PICTURES = (
    Picture("{topology}-opb-figure3", _distributions(), where=lambda row: row["part"] == "table1", size=(12, 7)),
    Picture(
        "{topology}-opb-figure4",
        [
            [
                _success("delay", "coordinates", "f_d", "log"),
                _success("delay", "pinged", "f_d", "log"),
                _success("throughput", "coordinates", "f_tp", "linear"),
            ]
        ],
        where=lambda row: row["part"] in ("delay", "throughput"),
        size=(12, 4),
    ),
    Picture(
        "{topology}-opb-figure5",
        [[_discoveries("table1", "f_tp"), _discoveries("delay", "f_d")]],
        where=lambda row: row["part"] in ("delay", "table1"),
        size=(9, 4),
    ),
)


# ---------------------------------------------------------------------------------------------------------------------

PAPER: dict[str, tuple[tuple[float, float], ...]] = {
    "relaxation": (
        (7.56, 22.95), (16.83, 22.99), (29.77, 23.09), (46.39, 23.24), (82.49, 23.24),
        (104.8, 23.59), (227.1, 23.88), (204.7, 24.52), (238.9, 27.26), (252.1, 41.94),
    ),
    "min-delay": (
        (3.94, 22.44), (5.97, 22.48), (8.01, 22.57), (10.1, 22.72), (12.1, 22.98),
        (14.1, 23.38), (16.1, 23.98), (18.2, 24.96), (20.2, 26.67), (70.4, 30.10),
    ),
    "random": (
        (13.015, 23.73), (27.709, 26.29), (67.417, 23.01), (168.31, 27.04), (158.71, 26.19),
        (406.13, 25.41), (378.66, 27.91), (478.41, 26.14), (1319.1, 28.15), (1076.2, 38.63),
    ),
    "opb": (
        (3.95, 21.06), (4.02, 22.21), (4.05, 22.29), (4.08, 22.45), (4.11, 22.71),
        (4.14, 23.09), (3.95, 23.71), (10.75, 24.69), (22.62, 26.36), (64.26, 28.04),
    ),
}  # fmt: skip
"""Table I: network usage and end-to-end delay for f_tp 1 .. 10; it names no units."""
PAPER_DISCOVERIES = {"relaxation": 7.0, "min-delay": 7.0}
"""Figure 5; OPB's are at most 5."""
F_TP = tuple(range(1, 11))
F_D = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
FIXED_F_TP, FIXED_F_D = 5, 10.0
PARTS = ("table1", "delay", "throughput", "usage")
LATENCIES = ("coordinates", "pinged", "measured")
DIMENSIONS = 3


class Cell(NamedTuple):
    """A setting; ``f_d`` is None without a bound on delay."""

    part: str
    latencies: str
    capacities: str
    f_tp: int
    f_d: float | None


class Outcome(NamedTuple):
    """Result of a strategy and application; ``failed`` is the reason, empty on success. ``delay_ms`` includes processing."""

    failed: str
    usage: float = math.nan
    delay_ms: float = math.nan
    discoveries: int = 0
    probes: int = 0
    cpu_ms: float = 0.0


class Key(NamedTuple):
    topology: str
    cell: Cell


Run = dict[str, Outcome]
"""Outcomes of an application by strategy, with the best response and, where known, ``optimal``."""


def cells(parts: Sequence[str]) -> list[Cell]:
    """Return the cells in the order of their runs."""
    all_cells = [Cell("table1", "coordinates", "zipf", f_tp, None) for f_tp in F_TP]
    all_cells += [Cell("delay", known, "zipf", FIXED_F_TP, f_d) for known in ("coordinates", "pinged") for f_d in F_D]
    all_cells += [Cell("throughput", "coordinates", "zipf", f_tp, FIXED_F_D) for f_tp in F_TP]
    all_cells += [Cell("usage", known, kind, FIXED_F_TP, None) for known in LATENCIES for kind in CAPACITIES]
    return [cell for cell in all_cells if cell.part in parts]


class Parameters(NamedTuple):
    parts: tuple[str, ...] = PARTS


def measure(point: Point[Parameters]) -> Iterator[tuple[Key, Run]]:
    seed = point.seed
    network = some_nodes(point.network, np.random.default_rng((seed, 61)))
    point.notify("coordinates")
    positions, everyone = refitted(network, DIMENSIONS, seed), np.arange(network.nodes)
    network_models = {known: NetworkModel(network, positions, everyone, exact=known == "measured") for known in LATENCIES}
    free = {kind: capacities(kind, network.nodes, np.random.default_rng((seed, 62))) for kind in CAPACITIES}
    rng, optima = np.random.default_rng((seed, 63)), dict[int, Ints | None]()
    applications = [application(network.nodes, rng) for _ in range(point.queries)]
    for cell in cells(point.parameters.parts):
        point.notify(f"{cell.part}, f_tp {cell.f_tp}, f_d {cell.f_d}, {cell.capacities}")
        kind = free[cell.capacities]
        for run in _of_cell(cell, network_models[cell.latencies], kind, applications, seed, optima, point.lines):
            yield Key(network.name, cell), run


def _of_cell(
    cell: Cell,
    network_model: NetworkModel,
    free: Floats,
    applications: Sequence[Application],
    seed: int,
    optima: dict[int, Ints | None],
    lines: Dump,
) -> Iterator[Run]:
    """``optima`` are by application for a factor of throughput; they do not depend on known latencies or capacity."""
    for number, each in enumerate(applications):
        latency = true_latency(network_model.network)
        direct_ms = max(latency(node, each.pinned["consumer"]) for node in each.pinned.values())
        problem = each.problem(cell.f_tp, None if cell.f_d is None else cell.f_d * direct_ms)
        instance = _instance(problem, network_model, free)
        run: Run = {}
        hosts: dict[str, dict[str, str]] = {}
        for strategy in CONTENDERS:
            view = NetworkModelView(network_model, number, free=free)
            run[strategy], hosts[strategy] = _tried(problem, strategy, view, instance, cell.latencies == "pinged")
        for strategy, outcome in run.items():
            labels = {
                "strategy": strategy,
                "topology": network_model.network.name,
                "seed": seed,
                "query": number,
                **cell._asdict(),
            }
            _write(lines, problem, network_model, free, hosts[strategy], outcome, **labels)
        if all(not outcome.failed for outcome in run.values()):
            if cell.part == "usage" and number not in optima:
                optima[number] = _least(instance)
            run |= _references(instance, list(hosts.values()), optima[number] if cell.part == "usage" else None)
        yield run


def _tried(
    problem: PlacementProblem, strategy: str, view: NetworkModelView, instance: Instance, pinged: bool
) -> tuple[Outcome, dict[str, str]]:
    """Return the outcome, and the hosts, empty without a placement."""
    started = time.process_time()
    try:
        placement = asyncio.run(_placed(problem, strategy, view, PlacementSettings(measure=pinged)))
    except SbonError as error:
        if error.code not in ("no-capacity", "delay-bound"):
            raise
        return Outcome(error.code, probes=view.probes, cpu_ms=(time.process_time() - started) * 1000), {}
    cpu_ms = (time.process_time() - started) * 1000
    at = np.array([[instance.number[placement.hosts()[operator]] for operator in instance.operators]])
    cost = instance.evaluate(at)
    bound = problem.bounds.max_delay_ms
    failed = "overload" if cost.overload[0] else "late" if bound is not None and cost.delay_ms[0] > bound + 1e-6 else ""
    searches = _searches(placement) if strategy == "relaxation" else placement.discoveries
    usage, delay_ms = float(cost.additive[0]), float(cost.delay_ms[0])
    return Outcome(failed, usage, delay_ms, searches, view.probes, cpu_ms), placement.hosts()


async def _placed(problem: PlacementProblem, strategy: str, view: NetworkModelView, settings: PlacementSettings) -> Placement:
    return await STRATEGIES[strategy](problem, view, settings)


def _searches(placement: Placement) -> int:
    """Count searches for the k nearest, with k doubled on failure: SBON's discoveries, at least one for each operator."""
    k = PlacementSettings().k
    return sum(1 + max(0, math.ceil(math.log2(len(assignment.candidates) / k))) for assignment in placement.assignments)


def _instance(problem: PlacementProblem, network_model: NetworkModel, free: Floats) -> Instance:
    network = network_model.network
    room = np.full((network.nodes, RESOURCES), np.inf)
    room[:, : free.shape[1]] = free
    nodes = [name_of(node) for node in range(network.nodes)]
    return Instance(problem, nodes, network.latency_ms, [network_model.hosts] * len(problem.operators), room)


def _references(instance: Instance, placements: Sequence[dict[str, str]], least: Ints | None) -> Run:
    """Return the best response, and the optimum if its hosts have room."""
    starts = [np.array([instance.number[hosts[operator]] for operator in instance.operators]) for hosts in placements]
    settled = np.array([descend(instance, start) for start in starts])
    cost = instance.evaluate(settled)
    best = int(cost.additive.argmin())
    references = {REFERENCE: Outcome("", float(cost.additive[best]), float(cost.delay_ms[best]))}
    if least is not None:
        cost = instance.evaluate(least[None])
        if not cost.overload[0]:
            references["optimal"] = Outcome("", float(cost.additive[0]), float(cost.delay_ms[0]))
    return references


def _least(instance: Instance) -> Ints | None:
    """Return the hosts of least usage regardless of capacity; None if tables would be too large."""
    try:
        chosen = Elimination(*instance.factors()).solution()
    except TooWideError:
        return None
    return np.array([candidates[i] for candidates, i in zip(instance.candidates, chosen, strict=True)])


def _rows(key: Key, trials: Sequence[Sequence[Run]]) -> Iterator[dict[str, Any]]:
    every = [run for seed in trials for run in seed]
    compared = [[run for run in seed if REFERENCE in run] for seed in trials]
    together = [run for seed in compared for run in seed]
    for strategy in (*CONTENDERS, REFERENCE, "optimal"):
        with_strategy = [run for run in together if strategy in run]
        if strategy not in CONTENDERS and not with_strategy:
            continue
        tried = [run[strategy] for run in every if strategy in run]
        success = [100 * float(np.mean([not run[strategy].failed for run in seed])) for seed in trials if strategy in CONTENDERS]
        usage = [float(np.mean([run[strategy].usage for run in seed])) for seed in compared if seed and with_strategy == together]
        delay = [
            float(np.mean([run[strategy].delay_ms for run in seed])) for seed in compared if seed and with_strategy == together
        ]
        ratios = [run[strategy].usage / run[REFERENCE].usage for run in with_strategy]
        optimal = [run[strategy].usage / run["optimal"].usage for run in with_strategy if "optimal" in run]
        done = [outcome for outcome in tried if not outcome.failed]
        paper = PAPER[strategy][key.cell.f_tp - 1] if key.cell.part == "table1" and strategy in PAPER else (None, None)
        yield {
            "part": key.cell.part,
            "strategy": strategy,
            "topology": key.topology,
            **{field: getattr(key.cell, field) for field in ("latencies", "capacities", "f_tp", "f_d")},
            "success_pct": _rounded(success, 1),
            "success_ci95_pct": _interval(success, 1),
            "usage_bytes": _rounded(usage, 2),
            "usage_ci95_bytes": _interval(usage, 2),
            "paper_usage": paper[0],
            "delay_ms": _rounded(delay, 2),
            "delay_ci95_ms": _interval(delay, 2),
            "paper_delay": paper[1],
            "ratio_median": _percentile(ratios, 50),
            "ratio_p90": _percentile(ratios, 90),
            "optimum_ratio_median": _percentile(optimal, 50),
            "discoveries_mean": _rounded([outcome.discoveries for outcome in done] if strategy in SEARCHING else [], 2),
            "discoveries_max": max((outcome.discoveries for outcome in done), default=None) if strategy in SEARCHING else None,
            "paper_discoveries": PAPER_DISCOVERIES.get(strategy),
            "probes_mean": _rounded([outcome.probes for outcome in tried], 1) if strategy in CONTENDERS else None,
            "cpu_ms": _rounded([outcome.cpu_ms for outcome in tried], 1) if strategy in CONTENDERS else None,
            "compared": len(with_strategy),
            "queries": len(every),
        }


def _rounded(values: Sequence[float], digits: int) -> float | None:
    """Return the rounded mean."""
    return rounded(np.mean, values, digits)


def _interval(values: Sequence[float], digits: int) -> float | None:
    width = interval(values)
    return None if width is None else round(width, digits)


def _percentile(values: Sequence[float], share: float) -> float | None:
    return rounded(lambda array: np.percentile(array, share), values, 3)


def _write(
    lines: Dump,
    problem: PlacementProblem,
    network_model: NetworkModel,
    free: Floats,
    hosts: dict[str, str],
    outcome: Outcome,
    **labels: Any,
) -> None:
    """Write each operator's needs and load, and the capacity of the line's hosts without it; ``delay_ms`` includes it."""
    costs = {"usage": outcome.usage, "delay_ms": outcome.delay_ms, "probes": outcome.probes} if hosts else {}
    lines.record(
        problem,
        network_model,
        hosts,
        costs,
        **labels,
        failed=outcome.failed,
        max_delay_ms=problem.bounds.max_delay_ms,
        needs={operator.id: list(operator.needs.amounts) for operator in problem.operators},
        row_core_ms={operator.id: operator.row_core_ms for operator in problem.operators},
        free={node: free[number_of(node)].tolist() for node in sorted(set(hosts.values()))},
    )


EXPERIMENT = PlacementExperiment(
    name="opb-table1",
    measure=measure,
    parameters=Parameters(),
    topologies=lambda parameters: ("geometric",),
    queries=4,
    seeds=(1, 2, 3, 4, 5),
    rows=_rows,
    pictures=PICTURES,
)

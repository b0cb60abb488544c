"""NES's strategies on a hierarchy (``sbon experiment nes``): Bottom-Up, Top-Down, IFCOP by iterations, and local search on
top.

A filter at each of 2 to 32 sources, their streams merged two by two, rates and selectivities at random. If the network is a
hierarchy (``edge-fog-cloud``), sources are leaves and the sink is a root. Otherwise all are at random nodes, and the
hierarchy is the tree of shortest paths over the overlay. A random share of every node's cores, up to ``load``, is taken. The
strategies know the exact latencies; ``hybrid``, beside them, has coordinates and measures.

The lower bound is the exact optimum over all nodes with unlimited capacity; ``optimum`` is exact with the actual capacity,
where computed. Usage counts direct links between hosts.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sbon_lab.experiments.coordinates.embedding import refitted
from sbon_lab.experiments.harness.columns import ci95, count, mean, table, total
from sbon_lab.experiments.harness.experiment import PlacementExperiment, Point
from sbon_lab.experiments.harness.network import Floats, Network
from sbon_lab.experiments.harness.network_model import NetworkModel, NetworkModelView, number_of
from sbon_lab.experiments.harness.pictures import Lines, Picture
from sbon_lab.experiments.harness.trials import Trial, best_hosts, exact_usage, judged, place
from sbon_lab.experiments.harness.workload import CORES, branches
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.errors import SbonError

SOURCES = (2, 4, 8, 16, 32)
ITERATIONS = (1, 10, 100, 1000)
STRATEGIES = ("bottom-up", "top-down", "ifcop", "local-search", "hybrid")
EXACT_SOURCES = 8
"""Number of sources beyond which the exact optimum with capacity is left out."""
LOAD = 0.8
DIMENSIONS = 5


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

    @property
    def ratio(self) -> float | None:
        """Usage / lower bound."""
        return None if self.trial is None else self.trial.penalty + 1

    @property
    def optimum_ratio(self) -> float | None:
        return None if self.trial is None or self.optimum is None else self.trial.usage / self.optimum


class Parameters(NamedTuple):
    sources: tuple[int, ...] = SOURCES
    iterations: tuple[int, ...] = ITERATIONS
    load: float = LOAD


def measure(point: Point[Parameters]) -> Iterator[tuple[Key, Outcome]]:
    """Place queries of each size. Raise :class:`SbonError` ``too-few-nodes``."""
    network = point.network
    point.notify("coordinates")
    everyone = np.arange(network.nodes)
    known, guessed = (NetworkModel(network, p, everyone) for p in (None, refitted(network, DIMENSIONS, point.seed)))
    for sources in point.parameters.sources:
        if sources >= network.nodes:
            raise SbonError("too-few-nodes", f"{network.name} has {network.nodes} nodes", where="--sources")
        point.notify(f"{sources} sources")
        yield from _of_size(point, known, guessed, sources)


def _of_size(point: Point[Parameters], known: NetworkModel, guessed: NetworkModel, sources: int) -> Iterator[tuple[Key, Outcome]]:
    network = known.network
    rng = np.random.default_rng((point.seed, sources, 61))
    for number in range(point.queries):
        problem = branches(*_ends(network, sources, rng), rng)
        free = network.cores * (1 - point.parameters.load * rng.random(network.nodes))
        lower = best_hosts(problem, known)
        optimum = exact_usage(problem, known, free) if sources <= EXACT_SOURCES else None
        for strategy in STRATEGIES:
            for iterations in point.parameters.iterations if strategy == "ifcop" else (None,):
                settings = PlacementSettings() if iterations is None else PlacementSettings(iterations=iterations)
                network_model = guessed if strategy == "hybrid" else known
                key = Key(network.name, sources, strategy, iterations)
                view = NetworkModelView(network_model, number, free=free)
                labels: dict[str, Any] = {**key._asdict(), "seed": point.seed, "query": number}
                labels |= {"optimum_with_capacity": optimum, "free_cores": free.round(6).tolist(), "cores_needed": CORES}
                try:
                    hosts, probes, cpu_ms = place(problem, strategy, view, settings)
                except SbonError as error:
                    if error.code != "no-capacity":
                        raise
                    point.lines.refused(problem, network_model, error.code, view.probes, **labels)
                    yield key, Outcome(None, optimum, 0)
                    continue
                trial = judged(problem, network, hosts, lower, probes, cpu_ms)
                point.lines.write(problem, network_model, hosts, trial, **labels)
                yield key, Outcome(trial, optimum, _overloaded(hosts, free))


def _ends(network: Network, sources: int, rng: np.random.Generator) -> tuple[list[int], int]:
    """Return the nodes of the sources, and of the sink."""
    if network.parents is None:
        drawn = rng.permutation(network.nodes)[: sources + 1].tolist()
        return drawn[:-1], drawn[-1]
    leaves = np.setdiff1d(np.arange(network.nodes), network.parents)
    return rng.permutation(leaves)[:sources].tolist(), int(rng.choice(np.flatnonzero(network.parents < 0)))


def _overloaded(hosts: dict[str, str], free: Floats) -> int:
    used = np.zeros(len(free))
    np.add.at(used, [number_of(node) for node in hosts.values()], CORES)
    return int((used > free + 1e-9).sum())


def _panel(x: str, label: str, where: Any, axes: dict[str, str]) -> Lines:
    return Lines(x, "ratio_mean", label, "ratio_ci95", where, axes, ticks=True)


def _by_sources(axes: Any, rows: list[dict[str, Any]], trials: Any) -> None:
    """Draw all strategies, IFCOP with most iterations."""
    most = max(row["iterations"] or 0 for row in rows)
    described = {"xlabel": "sources", "ylabel": "usage / lower bound", "title": "{topology}"}
    _panel("sources", "{strategy}", lambda row: row["iterations"] in (None, most), described)(axes, rows, trials)


EXPERIMENT = PlacementExperiment(
    name="nes",
    measure=measure,
    parameters=Parameters(),
    topologies=lambda parameters: ("edge-fog-cloud",),
    queries=10,
    seeds=(1, 2, 3),
    rows=table(
        {
            "operators": lambda key, by_seed: 2 * key.sources - 1,
            "ratio_mean": mean(lambda outcome: outcome.ratio, 3),
            "ratio_ci95": ci95(lambda outcome: outcome.ratio, 3),
            "optimum_ratio_mean": mean(lambda outcome: outcome.optimum_ratio, 3),
            "overloaded": total(lambda outcome: outcome.overloaded),
            "refused": total(lambda outcome: outcome.trial is None),
            "probes_mean": mean(lambda outcome: outcome.trial and outcome.trial.probes, 1),
            "cpu_ms": mean(lambda outcome: outcome.trial and outcome.trial.cpu_ms, 1),
            "queries": count(),
        }
    ),
    pictures=(
        Picture(
            "{topology}-nes",
            [
                [
                    _by_sources,
                    _panel(
                        "iterations",
                        "{sources}",
                        lambda row: row["strategy"] == "ifcop",
                        {"xlabel": "iterations", "title": "ifcop, by sources"},
                    ),
                ]
            ],
        ),
    ),
)

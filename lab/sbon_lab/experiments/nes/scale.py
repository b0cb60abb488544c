"""Costs of a placement in growing networks and queries (``sbon experiment scale``), and long sequences of queries.

``size``: SBON's query and trees of operators on transit-stub networks of 100 to 10,000 nodes, which may all host. It gives
the CPU time, the peak memory, and the probes (nodes asked and pairs measured, each a message and its answer) of a placement;
and the penalty against the exact optimum, where its tables fit. ``sequence``: endless queries of 1, 3 and 7 operators in
sequence, on nodes whose capacity just suffices for all queries' operators; a row for every hundred. ``ratio_mean`` is
usage / that of the optimum with unlimited capacity; ``optimum_ratio_mean`` compares every tenth query with the exact optimum
in the remaining capacity. Intervals are over seeds, where there are several.
"""

import asyncio
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from sbon_lab.experiments.coordinates.embedding import refitted
from sbon_lab.experiments.harness.columns import ci95, count, mean, median, most, table, total
from sbon_lab.experiments.harness.experiment import PlacementExperiment, Point
from sbon_lab.experiments.harness.network import Floats, Network
from sbon_lab.experiments.harness.network_model import NetworkModel, NetworkModelView, number_of
from sbon_lab.experiments.harness.pictures import Lines, Picture
from sbon_lab.experiments.harness.trials import Trial, best_hosts, exact_usage, judged, place
from sbon_lab.experiments.harness.workload import CORES, query
from sbon_node.papers.table import STRATEGIES as ALL
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.errors import SbonError

TOPOLOGIES = ("ts100", "ts300", "ts1000", "ts1550", "ts3000", "ts10000")
OPERATORS = (1, 3, 7, 15, 31, 50)
STRATEGIES = ("hybrid", "relaxation")
SEQUENCE, SEQUENCE_ON, SIZES = 1000, "ts1550", (1, 3, 7)
"""Length of the sequence, its default network, and the numbers of operators in turn."""
BLOCK, EXACT_EVERY = 100, 10
EXACT_ENTRIES = 40_000_000
"""Most entries of hosts-by-hosts tables, one for each operator, for which the optimum is computed."""
DIMENSIONS = 5


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

    trial: Trial | None
    memory_mb: float | None = None
    optimum: float | None = None
    filled: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Usage / that of the optimum with unlimited capacity; NaN if unknown."""
        return None if self.trial is None else self.trial.penalty + 1

    @property
    def optimum_ratio(self) -> float | None:
        return None if self.trial is None or self.optimum is None else self.trial.usage / self.optimum


class Parameters(NamedTuple):
    """No ``operators`` or ``sequence`` 0 leave out a part."""

    operators: tuple[int, ...] = OPERATORS
    strategies: tuple[str, ...] = STRATEGIES
    sequence: int = SEQUENCE


def measure(point: Point[Parameters]) -> Iterator[tuple[Key, Outcome]]:
    network, parameters = point.network, point.parameters
    point.notify("coordinates")
    network_model = NetworkModel(network, refitted(network, DIMENSIONS, point.seed), np.arange(network.nodes))
    for strategy in parameters.strategies:
        for size in parameters.operators:
            point.notify(f"{strategy}, {size} operators")
            yield from _of_size(point, Key("size", strategy, network.name, network.nodes, size, 0), network_model)
    if parameters.sequence and (point.named or network.name == SEQUENCE_ON):
        yield from _sequences(point, network_model)


def _of_size(point: Point[Parameters], key: Key, network_model: NetworkModel) -> Iterator[tuple[Key, Outcome]]:
    network = network_model.network
    rng = np.random.default_rng((point.seed, key.operators, 71))
    problems = [query(key.operators, network.nodes, rng) for _ in range(point.queries)]
    peak_mb = _peak_mb(problems[0], key.strategy, NetworkModelView(network_model, 0))
    small = network.nodes**2 * key.operators <= EXACT_ENTRIES
    for number, problem in enumerate(problems):
        hosts, probes, cpu_ms = place(problem, key.strategy, NetworkModelView(network_model, number), PlacementSettings())
        best = best_hosts(problem, network_model) if small else None
        trial = _judged(problem, network, hosts, best, probes, cpu_ms)
        point.lines.write(problem, network_model, hosts, trial, **key._asdict(), seed=point.seed, query=number)
        yield key, Outcome(trial, peak_mb)


def _judged(
    problem: PlacementProblem,
    network: Network,
    hosts: dict[str, str],
    best: dict[str, str] | None,
    probes: int,
    cpu_ms: float,
) -> Trial:
    trial = judged(problem, network, hosts, hosts if best is None else best, probes, cpu_ms)
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


def _sequences(point: Point[Parameters], network_model: NetworkModel) -> Iterator[tuple[Key, Outcome]]:
    """Let all strategies place the same queries, each on separate nodes."""
    network, strategies, queries = network_model.network, point.parameters.strategies, point.parameters.sequence
    rng = np.random.default_rng((point.seed, 72))
    problems = [query(SIZES[number % len(SIZES)], network.nodes, rng) for number in range(queries)]
    demand = sum(len(problem.operators) for problem in problems)
    shares = rng.random(network.nodes)
    room = CORES * np.floor(shares / shares.sum() * demand + rng.random(network.nodes))
    left = {strategy: room.copy() for strategy in strategies}
    for number, problem in enumerate(problems):
        if number % BLOCK == 0:
            point.notify(f"query {number} of {queries}")
        lower = best_hosts(problem, network_model)
        for strategy in strategies:
            key = Key("sequence", strategy, network.name, network.nodes, 0, number // BLOCK * BLOCK)
            outcome = _next(point, key, number, problem, network_model, lower, left[strategy])
            yield key, outcome._replace(filled=1 - float(left[strategy].sum() / room.sum()))


def _next(
    point: Point[Parameters],
    key: Key,
    number: int,
    problem: PlacementProblem,
    network_model: NetworkModel,
    lower: dict[str, str],
    free: Floats,
) -> Outcome:
    """Place the next query of a sequence, and take its capacity from ``free``."""
    view = NetworkModelView(network_model, number, free=free)
    labels: dict[str, Any] = {**key._asdict(), "seed": point.seed, "query": number, "cores_needed": CORES}
    labels["free_cores"] = free.round(6).tolist()
    try:
        hosts, probes, cpu_ms = place(problem, key.strategy, view, PlacementSettings())
    except SbonError as error:
        if error.code != "no-capacity":
            raise
        point.lines.refused(problem, network_model, error.code, view.probes, **labels)
        return Outcome(None)
    optimum = exact_usage(problem, network_model, free) if number % EXACT_EVERY == 0 else None
    trial = judged(problem, network_model.network, hosts, lower, probes, cpu_ms)
    point.lines.write(problem, network_model, hosts, trial, **labels, optimum_with_capacity=optimum)
    _take(free, hosts)
    return Outcome(trial, optimum=optimum)


def _take(free: Floats, hosts: dict[str, str]) -> None:
    np.subtract.at(free, [number_of(node) for node in hosts.values()], CORES)
    if (free < -1e-9).any():
        raise AssertionError("a host has been given more than it had room for")


def _in_turn(key: Key) -> bool:
    return key.part == "sequence"


def _cpu_ms(outcome: Outcome) -> float | None:
    return None if outcome.trial is None else outcome.trial.cpu_ms


def _filled_pct(outcome: Outcome) -> float:
    return 100 * outcome.filled


def _filled(key: Key, by_seed: Sequence[Sequence[Outcome]]) -> float | None:
    filled: float | None = most(_filled_pct, 1)(key, by_seed)
    return filled if _in_turn(key) else None


def _by(x: str, of: str) -> list[Lines]:
    """Return the panels of a size's costs over ``x``, a line for each value of ``of``."""
    columns = {"cpu_ms": "processor (ms)", "memory_mb": "memory (MB)", "probes_mean": "probes"}
    title = f"{{strategy}}, by {x}"
    return [
        Lines(x, y, f"{{{of}}}", axes={"yscale": "log", "xlabel": x, "ylabel": label, "title": title}, ticks=True)
        for y, label in columns.items()
    ]


def _over_queries(y: str, label: str) -> Lines:
    return Lines("first_query", y, "{strategy}", axes={"xlabel": "query", "ylabel": label, "title": "{topology}"})


EXPERIMENT = PlacementExperiment(
    name="scale",
    measure=measure,
    parameters=Parameters(),
    topologies=lambda parameters: TOPOLOGIES if parameters.operators else (SEQUENCE_ON,),
    queries=5,
    seeds=(1,),
    order=lambda key: key,
    rows=table(
        {
            "operators": lambda key, by_seed: None if _in_turn(key) else key.operators,
            "first_query": lambda key, by_seed: key.first if _in_turn(key) else None,
            "cpu_ms": mean(_cpu_ms, 1),
            "cpu_ci95_ms": ci95(_cpu_ms, 1),
            "cpu_median_ms": median(_cpu_ms, 1),
            "memory_mb": mean(lambda outcome: outcome.memory_mb, 2),
            "probes_mean": mean(lambda outcome: outcome.trial and outcome.trial.probes, 1),
            "ratio_mean": mean(lambda outcome: outcome.ratio, 3),
            "ratio_ci95": ci95(lambda outcome: outcome.ratio, 3),
            "optimum_ratio_mean": mean(lambda outcome: outcome.optimum_ratio, 3),
            "filled_pct": _filled,
            "refused": total(lambda outcome: outcome.trial is None),
            "queries": count(),
        },
        fields=("part", "strategy", "topology", "nodes"),
    ),
    pictures=(
        Picture(
            "scale-{strategy}",
            [_by("nodes", "operators"), _by("operators", "nodes")],
            each=("strategy",),
            where=lambda row: row["part"] == "size",
            size=(12, 7),
        ),
        Picture(
            "{topology}-sequence",
            [
                [
                    _over_queries("ratio_mean", "usage / lower bound"),
                    _over_queries("cpu_ms", "processor (ms)"),
                    _over_queries("refused", "refused"),
                ]
            ],
            where=lambda row: row["part"] == "sequence",
            size=(12, 4),
        ),
    ),
)

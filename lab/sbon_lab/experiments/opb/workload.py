"""OPB's application and resources (OPB, section IV.A), for its experiments.

The paper's resources processor and memory are modelled; disks are not, because our operators need none. The paper's bandwidth
is that of node pairs, here that of each node. A core has a thousand of its processor units. The paper does not give the cost
of a tuple: here it is 1 to 3 units, with which the heaviest operators at ten times the throughput just fit on a node.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sbon_lab.experiments.harness.network import Floats, Network
from sbon_lab.experiments.harness.network_model import name_of
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.strategies import Bounds

SOURCES, READERS, TUPLES_S, TUPLE_BYTES = 2, 3, 5.0, 10.0
"""The application's sources, most readers of a vertex, and a source's tuple rate and size at a factor of 1."""
PHASES = (2, 2, 3)
"""Operators of each phase, in any order: seven in all."""
ROW_CORE_MS, MEMORY_MB = (1.0, 3.0), (100.0, 1000.0)
LEAST, MOST = 2000.0, 20_000.0
"""Range of a node's processor and memory."""
BANDWIDTH_BYTES_S, MEAN_BANDWIDTH_BYTES_S = (10e3, 10e6), 2e6
LEVELS = 10
NODES = 240
"""Number of nodes drawn at random from a larger network."""


def _exponential(rng: np.random.Generator, count: int, mean: float) -> Floats:
    """Return exponential values in 0 .. 1."""
    drawn: Floats = -mean * np.log(1 - rng.random(count) * (1 - np.exp(-1 / mean)))
    return drawn


def _zipf(rng: np.random.Generator, count: int) -> Floats:
    """Return Zipf-distributed levels; the lowest is the most frequent."""
    ranks = np.arange(1, LEVELS + 1)
    drawn: Floats = (rng.choice(LEVELS, count, p=(1 / ranks) / (1 / ranks).sum()) + rng.random(count)) / LEVELS
    return drawn


CAPACITIES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "uniform": lambda rng, count: rng.random(count),
    "exponential": lambda rng, count: _exponential(rng, count, 0.25),
    "normal": lambda rng, count: np.clip(rng.normal(0.5, 1 / 6, count), 0.0, 1.0),
    "zipf": _zipf,
    "equal": lambda rng, count: np.full(count, 0.5),
}
"""Distributions of resources over their range, 0 .. 1: the paper's four and a constant.

The paper calls the first of them random.
"""


def capacities(kind: str, count: int, rng: np.random.Generator) -> Floats:
    """Return cores, megabytes and bytes a second of every node, [count, 3]."""
    drawn = [LEAST + (MOST - LEAST) * CAPACITIES[kind](rng, count) for _ in range(2)]
    low, high = BANDWIDTH_BYTES_S
    bandwidth = low + (high - low) * _exponential(rng, count, MEAN_BANDWIDTH_BYTES_S / high)
    return np.column_stack([drawn[0] / 1000.0, drawn[1], bandwidth])


def some_nodes(network: Network, rng: np.random.Generator) -> Network:
    """Return ``NODES`` nodes of a larger network; any of them may host."""
    chosen = np.sort(rng.permutation(network.nodes)[:NODES])
    return Network(network.name, network.latency_ms[np.ix_(chosen, chosen)], np.empty(0, dtype=int), None, network.cores[chosen])


class Application(NamedTuple):
    """Two sources, seven operators, a sink. The operators in ``more`` send more at a greater throughput factor, the others
    less.
    """

    pinned: dict[str, str]
    links: tuple[tuple[str, str], ...]
    more: frozenset[str]
    row_core_ms: dict[str, float]
    memory_mb: dict[str, float]

    @property
    def operators(self) -> list[str]:
        """Return the operators in topological order."""
        return list(self.row_core_ms)

    def problem(self, factor: float, max_delay_ms: float | None = None) -> PlacementProblem:
        """Return the problem with ``factor`` (the paper's f_tp) times the throughput from each source."""
        into: dict[str, list[str]] = {
            name: [source for source, target in self.links if target == name] for name in self.operators
        }
        readers = {name: sum(source == name for source, _ in self.links) for name in self.operators}
        sent_s = dict.fromkeys(self.pinned, TUPLES_S * factor)
        operators = []
        for name in self.operators:
            rows_s = sum(sent_s[source] for source in into[name])
            sent_s[name] = rows_s * (factor if name in self.more else 1 / factor)
            needs = Needs(
                cores=rows_s * self.row_core_ms[name] / 1000.0,
                memory_mb=self.memory_mb[name],
                bandwidth_bytes_s=sent_s[name] * TUPLE_BYTES * readers[name],
            )
            operators.append(Operator(id=name, needs=needs, rows_s=rows_s, row_core_ms=self.row_core_ms[name]))
        edges = tuple(Edge(source, target, sent_s[source] * TUPLE_BYTES) for source, target in self.links)
        return PlacementProblem(
            pinned=self.pinned, operators=tuple(operators), edges=edges, bounds=Bounds(max_delay_ms=max_delay_ms)
        )


def application(nodes: int, rng: np.random.Generator) -> Application:
    """Draw an application with its ends at distinct nodes.

    Every sending vertex has one to three readers in the next phase, every operator at least one input from the phase before.
    """
    ends = rng.permutation(nodes)[: SOURCES + 1].tolist()
    pinned = {f"s{i}": name_of(node) for i, node in enumerate(ends[:-1])} | {"consumer": name_of(ends[-1])}
    sizes, links, more, names = rng.permutation(PHASES).tolist(), list[tuple[str, str]](), set[str](), list[str]()
    before = [f"s{i}" for i in range(SOURCES)]
    for phase, size in enumerate(sizes):
        operators = [f"o{phase}{i}" for i in range(size)]
        links += _links(before, operators, rng)
        half = size // 2 + int(size % 2 and rng.random() < 0.5)
        more |= set(rng.permutation(operators)[:half].tolist())
        names += operators
        before = operators
    links += [(name, "consumer") for name in before]
    return Application(
        pinned=pinned,
        links=tuple(links),
        more=frozenset(more),
        row_core_ms={name: float(rng.uniform(*ROW_CORE_MS)) for name in names},
        memory_mb={name: float(rng.uniform(*MEMORY_MB)) for name in names},
    )


def _links(before: list[str], operators: list[str], rng: np.random.Generator) -> list[tuple[str, str]]:
    readers = {source: set(rng.permutation(operators)[: rng.integers(1, READERS + 1)].tolist()) for source in before}
    for target in operators:
        if not any(target in some for some in readers.values()):
            readers[min(before, key=lambda source: (len(readers[source]), source))].add(target)
    return [(source, target) for source in before for target in operators if target in readers[source]]

"""SAND's queries (section 6.1): complete trees of operators, over sources in a given layout about the proxy.

The paper measures the layout by the average distance between sources and proxy (APD) and that among sources (ASD). *uniform*
has both at 0.4 of the network's diameter. *star* has the proxy in the middle, with an APD of half the ASD. *cluster* has the
sources together and away from it, with an APD of twice the ASD. The depth of a tree is taken to be that of its operators.
"""

from typing import NamedTuple

import numpy as np

from sbon_lab.experiments.harness.network import Floats, Ints
from sbon_lab.experiments.harness.network_model import name_of, number_of
from sbon_lab.experiments.harness.workload import CORES
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_protocol.api.operators import Needs
from sbon_protocol.errors import SbonError

RATES_BYTES_S = (1000.0, 10_000.0)
"""Range of sources' rates, uniform: the paper's 1 to 10, in kilobytes."""
FAR = 0.4
"""Share of the diameter: the APD of uniform and cluster, and the ASD of uniform and star."""
DRAWS = 40
"""Draws of ends, of which the nearest to the wanted layout is taken."""


class Shape(NamedTuple):
    """Shape of a query: complete trees of ``fanout`` children, of one of ``depths`` levels of operators."""

    fanout: int
    depths: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.fanout}^{'-'.join(str(depth) for depth in dict.fromkeys((self.depths[0], self.depths[-1])))}"


class Lie(NamedTuple):
    """Layout of the sources: APD and ASD as shares of the diameter."""

    apd: float
    asd: float


LIES = {"star": Lie(FAR / 2, FAR), "uniform": Lie(FAR, FAR), "cluster": Lie(FAR, FAR / 2)}


def tree(shape: Shape, lie: Lie, selectivity: float, latency_ms: Floats, rng: np.random.Generator) -> PlacementProblem:
    """Return a query over a network [n, n]; operators' selectivities are uniform from 0 to ``selectivity``."""
    depth = int(rng.choice(shape.depths))
    proxy, sources = ends(shape.fanout**depth, lie, latency_ms, rng)
    pinned = {f"p{i}": name_of(node) for i, node in enumerate(sources.tolist())} | {"consumer": name_of(proxy)}
    rates = {f"p{i}": float(rng.uniform(*RATES_BYTES_S)) for i in range(len(sources))}
    edges: list[Edge] = []
    waiting, names = list(rates), list[str]()
    while len(waiting) > 1:
        read, waiting = waiting[: shape.fanout], waiting[shape.fanout :]
        name = f"o{len(names)}"
        edges += [Edge(source, name, rates[source]) for source in read]
        rates[name] = sum(rates[source] for source in read) * float(rng.uniform(0.0, selectivity))
        names.append(name)
        waiting.append(name)
    edges.append(Edge(names[-1], "consumer", rates[names[-1]]))
    operators = tuple(Operator(id=name, needs=Needs(cores=CORES)) for name in names)
    return PlacementProblem(pinned=pinned, operators=operators, edges=tuple(edges))


def ends(count: int, lie: Lie, latency_ms: Floats, rng: np.random.Generator) -> tuple[int, Ints]:
    """Return a proxy and ``count`` sources at distinct nodes, by number, with a layout near ``lie``.

    The best of many draws by APD, ASD and their ratio is taken. Sources are drawn from a larger or smaller set of nodes
    nearest to a node, and the proxy is the node that suits them best. Raises :class:`SbonError` ``too-few-nodes``.
    """
    diameter_ms, nodes = float(latency_ms.max()), len(latency_ms)
    if nodes <= count:
        message = f"the network has {nodes} nodes, and the query {count} sources and a proxy at nodes of their own"
        raise SbonError("too-few-nodes", message, where="--data", hint="take a network of more than 32 nodes")
    best, least = (0, np.empty(0, dtype=int)), np.inf
    for _ in range(DRAWS):
        near = np.argsort(latency_ms[int(rng.integers(nodes))], kind="stable")
        many = int(count * (nodes / count) ** rng.random())
        sources = rng.permutation(near[: max(many, count)])[:count]
        asd = _between(latency_ms, sources) / diameter_ms
        apd = latency_ms[:, sources].mean(axis=1) / diameter_ms
        amiss = np.abs(np.log(asd / lie.asd)) + np.abs(np.log(apd / lie.apd)) + 2 * np.abs(np.log(apd / asd * lie.asd / lie.apd))
        amiss[sources] = np.inf
        if amiss.min() < least:
            best, least = (int(amiss.argmin()), sources), float(amiss.min())
    return best


def lie_of(problem: PlacementProblem, latency_ms: Floats) -> Lie:
    """Return the actual layout."""
    proxy = number_of(problem.pinned["consumer"])
    sources = np.array([number_of(node) for vertex, node in problem.pinned.items() if vertex != "consumer"])
    diameter_ms = float(latency_ms.max())
    return Lie(float(latency_ms[sources, proxy].mean()) / diameter_ms, _between(latency_ms, sources) / diameter_ms)


def _between(latency_ms: Floats, nodes: Ints) -> float:
    """Return the mean latency between pairs of nodes."""
    many = len(nodes)
    return float(latency_ms[np.ix_(nodes, nodes)].sum()) / (many * (many - 1))

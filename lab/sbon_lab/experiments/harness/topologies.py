"""Generated networks: transit-stub, edge-fog-cloud, random geometric.

Transit-stub (Zegura, Calvert, Bhattacharjee, INFOCOM 1996, in the manner of GT-ITM): transit domains in a plane, transit
nodes around the middle of their domain, stub domains around their transit node, each with a gateway to it. Each of these
graphs is a random spanning tree with extra edges; a link's latency is its length. Routes follow policy, not latency: a hop
inside a domain weighs 1, one between transit domains 5, one between transit and stub 100. So no stub carries others' traffic,
and many routes are longer than necessary. Ties between routes are broken at random. All latencies are scaled to the requested
diameter.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sbon_lab.experiments.harness.network import Floats, Ints, Network, Paths, between, lightest_paths, plain, random_edges
from sbon_protocol.errors import SbonError

TOP_P, TRANSIT_P, STUB_P = 0.5, 0.6, 0.42
"""Probability of an edge beside the spanning tree: between transit domains, in a transit domain, in a stub domain."""
WITHIN, ACROSS = 1.0, 5.0
"""Policy weights of a hop inside a domain, and between transit domains. The weight of a stub's only link has no effect."""
TIE = 1e-4
DOMAIN_SIDE, STUB_AWAY, STUB_SIDE = 0.35, 0.12, 0.06
"""Shares of the plane's side: size of a transit domain, greatest distance of its stubs, and size of a stub."""


class Shape(NamedTuple):
    """Numbers of transit domains, nodes in each, stubs at each of these, and nodes in a stub on average.

    The diameter is the one-way latency in ms between the two farthest nodes.
    """

    domains: int
    transit: int
    stubs: int
    stub_nodes: int
    diameter_ms: float


SHAPES = {
    "ts1550": Shape(10, 5, 3, 10, 878.0),
    "ts1064": Shape(14, 4, 3, 6, 500.0),
    "ts100": Shape(2, 5, 3, 3, 878.0),
    "ts208": Shape(4, 4, 3, 4, 100.0),
    "ts592": Shape(4, 4, 3, 12, 100.0),
    "ts300": Shape(4, 5, 2, 7, 878.0),
    "ts1000": Shape(8, 5, 3, 8, 878.0),
    "ts3000": Shape(10, 6, 7, 7, 878.0),
    "ts10000": Shape(20, 5, 9, 11, 878.0),
}
"""Shapes: SBON's (section 4.1), that of SAND's size, ts208 and ts592 of ANTS's, and some of other sizes."""


def transit_stub(name: str, shape: Shape, seed: int) -> Network:
    """Generate a transit-stub network; the transit nodes come first and are its routers."""
    rng = np.random.default_rng((seed, 11))
    core, positions = _core(shape, rng)
    stubs = len(positions) * shape.stubs
    sizes = _sizes(stubs, shape.stub_nodes, rng)
    most = int(sizes.max())
    middle = np.repeat(positions, shape.stubs, axis=0) + rng.uniform(-STUB_AWAY, STUB_AWAY, (stubs, 2))
    inside = middle[:, None] + rng.uniform(-STUB_SIDE / 2, STUB_SIDE / 2, (stubs, most, 2))
    lengths = between(inside)
    linked = np.zeros((stubs, most, most), dtype=np.bool_)
    for stub, size in enumerate(sizes.tolist()):
        linked[stub, :size, :size] = random_edges(size, STUB_P, rng)
    paths = lightest_paths(np.where(linked, WITHIN + _ties(linked.shape, rng), np.inf), np.where(linked, lengths, np.inf))
    above = np.repeat(np.arange(len(positions)), shape.stubs)
    uplink = np.linalg.norm(inside[:, 0] - positions[above], axis=1)
    stub_of = np.repeat(np.arange(stubs), sizes)
    place_in = np.concatenate([np.arange(size) for size in sizes])
    network = _Joined(core, paths, above, uplink, stub_of, place_in)
    latency_ms = network.latency()
    latency_ms *= shape.diameter_ms / latency_ms.max()
    return Network(name, latency_ms, np.arange(len(positions)), network.route, np.ones(len(latency_ms)))


class _Joined:
    """Stub domains below a core. Stub nodes are numbered after the core's; the gateway is node 0 of its stub."""

    def __init__(self, core: Paths, stubs: Paths, above: Ints, uplink: Floats, stub_of: Ints, place_in: Ints) -> None:
        self._core, self._stubs, self._above, self._uplink = core, stubs, above, uplink
        self._many = len(core.follow)
        self._stub_of, self._place_in = stub_of, place_in
        self._first = np.searchsorted(stub_of, np.arange(len(above))) + self._many

    def latency(self) -> Floats:
        routers = np.arange(self._many)
        to_gateway = self._stubs.latency_ms[self._stub_of, self._place_in, 0]
        up = np.concatenate([np.zeros(self._many), to_gateway + self._uplink[self._stub_of]])
        router = np.concatenate([routers, self._above[self._stub_of]])
        latency: Floats = up[:, None] + up[None, :] + self._core.latency_ms[np.ix_(router, router)]
        for stub, first in enumerate(self._first.tolist()):
            size = int((self._stub_of == stub).sum())
            latency[first : first + size, first : first + size] = self._stubs.latency_ms[stub, :size, :size]
        np.fill_diagonal(latency, 0.0)
        return latency

    def route(self, source: int, target: int) -> list[int]:
        stub, other = self._stub(source), self._stub(target)
        if stub is not None and stub == other:
            return self._inside(stub, source, target)
        up = [source] if stub is None else [*self._inside(stub, source, int(self._first[stub])), int(self._above[stub])]
        down = [target] if other is None else [int(self._above[other]), *self._inside(other, int(self._first[other]), target)]
        return [*up[:-1], *self._core.route(up[-1], down[0]), *down[1:]]

    def _stub(self, node: int) -> int | None:
        return None if node < self._many else int(self._stub_of[node - self._many])

    def _inside(self, stub: int, source: int, target: int) -> list[int]:
        first = int(self._first[stub])
        paths = Paths(self._stubs.latency_ms[stub], self._stubs.follow[stub])
        return [first + node for node in paths.route(source - first, target - first)]


def _core(shape: Shape, rng: np.random.Generator) -> tuple[Paths, Floats]:
    """Return the routes between transit nodes, and their positions in a plane of side 1."""
    middles = rng.random((shape.domains, 2))
    many = shape.domains * shape.transit
    domain = np.repeat(np.arange(shape.domains), shape.transit)
    positions = middles[domain] + rng.uniform(-DOMAIN_SIDE / 2, DOMAIN_SIDE / 2, (many, 2))
    weights = np.full((many, many), np.inf)
    for number in range(shape.domains):
        own = np.flatnonzero(domain == number)
        weights[np.ix_(own, own)] = np.where(random_edges(shape.transit, TRANSIT_P, rng), WITHIN, np.inf)
    for domain_a, other in np.argwhere(np.triu(random_edges(shape.domains, TOP_P, rng))):
        ends = rng.choice(np.flatnonzero(domain == domain_a)), rng.choice(np.flatnonzero(domain == other))
        weights[ends] = weights[ends[::-1]] = ACROSS
    return lightest_paths(
        weights + _ties(weights.shape, rng), np.where(np.isfinite(weights), between(positions), np.inf)
    ), positions


def _ties(shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Return tie-breaking weights, equal in both directions, so that routes are symmetric."""
    drawn = rng.random(shape) * TIE
    ties: Floats = drawn + drawn.swapaxes(-1, -2)
    return ties


def _sizes(stubs: int, average: int, rng: np.random.Generator) -> Ints:
    """Return stub sizes between half and one and a half of the average, with exactly that average."""
    spread = rng.integers(0, average // 2 + 1, stubs // 2)
    return rng.permutation(np.concatenate([average + spread, average - spread, np.full(stubs % 2, average)]).astype(int))


def edge_fog_cloud(name: str, nodes: int, seed: int) -> Network:
    """Generate a hierarchy: data centres with 64 cores, fog nodes with 8, edge nodes with 1.

    1 of 100 nodes is a data centre (at least 3), 1 of 10 a fog node. Each edge node's parent is the nearest fog node, over a
    last mile of 2 to 25 ms; each fog node's parent is the nearest data centre. The data centres are fully meshed.
    """
    rng = np.random.default_rng((seed, 12))
    clouds, fogs = max(3, nodes // 100), max(6, nodes // 10)
    positions = rng.random((nodes, 2)) * 80.0
    apart = between(positions)
    parent = np.full(nodes, -1)
    parent[clouds : clouds + fogs] = apart[clouds : clouds + fogs, :clouds].argmin(axis=1)
    parent[clouds + fogs :] = clouds + apart[clouds + fogs :, clouds : clouds + fogs].argmin(axis=1)
    weights = np.full((nodes, nodes), np.inf)
    weights[:clouds, :clouds] = apart[:clouds, :clouds] + 1.0
    below = np.arange(clouds, nodes)
    mile = np.where(below < clouds + fogs, 1.0, np.clip(rng.lognormal(1.8, 0.6, len(below)), 2.0, 25.0))
    weights[below, parent[below]] = weights[parent[below], below] = apart[below, parent[below]] + mile
    paths = lightest_paths(weights, weights)
    cores = np.ones(nodes)
    cores[: clouds + fogs], cores[:clouds] = 8.0, 64.0
    return Network(name, paths.latency_ms, np.arange(clouds + fogs), paths.route, cores, parent)


def random_geometric(name: str, nodes: int, seed: int) -> Network:
    """Generate nodes in a square of 100 ms, access links of 1 to 10 ms, links to the eight nearest; routes by latency."""
    rng = np.random.default_rng((seed, 13))
    positions = rng.random((nodes, 2)) * 100.0
    access = rng.uniform(0.5, 5.0, nodes)
    apart = between(positions) + access[:, None] + access[None, :]
    rank = between(positions).argsort(axis=1).argsort(axis=1)
    linked = (rank <= 8) | (rank.T <= 8)
    order = np.argsort(positions[:, 0])
    linked[order[:-1], order[1:]] = linked[order[1:], order[:-1]] = True
    paths = lightest_paths(np.where(linked, apart, np.inf), np.where(linked, apart, np.inf))
    return plain(name, paths.latency_ms)._replace(route=paths.route)


TOPOLOGIES: dict[str, Callable[[int], Network]] = {
    **{name: lambda seed, name=name, shape=shape: transit_stub(name, shape, seed) for name, shape in SHAPES.items()},  # type: ignore[misc]
    "edge-fog-cloud": lambda seed: edge_fog_cloud("edge-fog-cloud", 400, seed),
    "geometric": lambda seed: random_geometric("geometric", 400, seed),
}


def topology_named(name: str, seed: int) -> Network:
    """Generate the topology of that name. Raise :class:`SbonError` ``unknown-topology``."""
    if name not in TOPOLOGIES:
        raise SbonError("unknown-topology", f"there is no topology {name!r}", where="--topology", hint=", ".join(TOPOLOGIES))
    return TOPOLOGIES[name](seed)

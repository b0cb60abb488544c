"""A network for placement experiments: true latencies, possible hosts, and routes where known."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_lab.experiments.coordinates.rtt_matrix import read_matrix
from sbon_protocol.errors import SbonError

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]
Route = Callable[[int, int], list[int]]


class Network(NamedTuple):
    """A network of n nodes. ``latency_ms`` [n, n] is one-way, symmetric, 0 on the diagonal.

    ``routers`` are the numbers of nodes inside the network, if any. ``route`` gives the nodes between two, both included.
    ``cores`` [n] are each node's cores, 1 where they do not matter. In a hierarchy ``parents`` [n] are the nodes' parents, -1
    for none.
    """

    name: str
    latency_ms: Floats
    routers: Ints
    route: Route | None
    cores: Floats
    parents: Ints | None = None

    @property
    def nodes(self) -> int:
        return len(self.latency_ms)


def measured(path: Path) -> Network:
    """Read an .npz file of RTTs (:func:`~sbon_lab.experiments.coordinates.rtt_matrix.read_matrix`) as a network.

    Latencies come from the median round and the mean of both directions. A pair without a value gets the latency over its
    best relays.

    Raises :class:`SbonError` ``bad-matrix``, also if no path exists between some pair.
    """
    matrix = read_matrix(path)
    both = np.stack([matrix.truth, matrix.truth.T])
    known = np.isfinite(both)
    rtt_ms = np.where(known, both, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    rtt_ms[~known.any(axis=0)] = np.inf
    np.fill_diagonal(rtt_ms, 0.0)
    missing = np.argwhere(np.isinf(rtt_ms))
    while len(missing):
        for source, other in missing:
            rtt_ms[source, other] = float((rtt_ms[source] + rtt_ms[:, other]).min())
        left = np.argwhere(np.isinf(rtt_ms))
        if len(left) == len(missing):
            apart = int((np.isfinite(rtt_ms[0])).sum())
            message = f"no times lead from {apart} of its {len(rtt_ms)} nodes to the others"
            raise SbonError("bad-matrix", message, where=str(path), hint="leave out those that cannot be reached")
        missing = left
    return plain(matrix.name, rtt_ms / 2)


def plain(name: str, latency_ms: Floats, cores: Floats | None = None) -> Network:
    """Return a network without routers and with unknown routes."""
    return Network(name, latency_ms, np.empty(0, dtype=int), None, np.ones(len(latency_ms)) if cores is None else cores)


class Paths(NamedTuple):
    """Lightest paths between all pairs: ``latency_ms`` [.., n, n], and ``follow`` [.., n, n], the next node on the path."""

    latency_ms: Floats
    follow: Ints

    def route(self, source: int, target: int) -> list[int]:
        nodes = [source]
        while nodes[-1] != target:
            nodes.append(int(self.follow[nodes[-1], target]))
        return nodes


def lightest_paths(weights: Floats, latency_ms: Floats) -> Paths:
    """Run Floyd and Warshall's algorithm (1962) for one graph [n, n] or many [b, n, n]; infinite weight means no edge."""
    weights, latency_ms = weights.copy(), latency_ms.copy()
    size = weights.shape[-1]
    follow = np.broadcast_to(np.arange(size), weights.shape).copy()
    diagonal = np.arange(size)
    weights[..., diagonal, diagonal] = latency_ms[..., diagonal, diagonal] = 0.0
    for via in range(size):
        through = weights[..., :, via, None] + weights[..., None, via, :]
        better = through < weights
        weights = np.where(better, through, weights)
        latency_ms = np.where(better, latency_ms[..., :, via, None] + latency_ms[..., None, via, :], latency_ms)
        follow = np.where(better, follow[..., :, via, None], follow)
    return Paths(latency_ms, follow)


def random_edges(count: int, p: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a random spanning tree, with every other pair at probability ``p``: shape [count, count], symmetric."""
    edges = np.triu(rng.random((count, count)) < p, 1)
    order = rng.permutation(count)
    for position in range(1, count):
        edges[order[position], order[rng.integers(position)]] = True
    edges |= edges.T
    np.fill_diagonal(edges, False)
    return edges


def between(positions: Floats) -> Floats:
    """Return Euclidean distances [.., n, n] of points [.., n, 2]."""
    distances: Floats = np.linalg.norm(positions[..., :, None, :] - positions[..., None, :, :], axis=-1)
    return distances

"""The graph on which ants walk: the relative neighbourhood graph (Toussaint, 1980) of latencies.

Two nodes are neighbours if no node is nearer to both than they are to each other. All nodes are connected, a node has few
neighbours, and a path passes the nodes that lie on it.

That holds for latencies on which all nodes agree. Nodes see coordinates of different ages, so that one may leave out a link that
alone leads to a part of the cluster. Therefore each has two neighbours on a ring, too (:func:`ring_neighbours`).

A node that is near many others would have more neighbours than it may keep. So in large clusters some pairs are neighbours by lot
(:func:`drawn_neighbours`), which keeps paths short.
"""

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ONWARD = 3.0
"""Initial preference of ants for neighbours on the path. It is e to this power against a neighbour straight back."""
LEAST_MS = 1e-3
FEW = 64
"""Members of a cluster from which on neighbours are drawn."""


def neighbourhood(latency_ms: Floats) -> NDArray[np.bool_]:
    """Return the neighbourhood [n, n] for symmetric latencies [n, n].

    Of equal latencies, those of nodes with lower numbers count as less.
    """
    many = len(latency_ms)
    order = np.zeros((many, many))
    rows, columns = np.triu_indices(many, 1)
    nearest = np.argsort(latency_ms[rows, columns], kind="stable")
    order[rows[nearest], columns[nearest]] = np.arange(1, len(rows) + 1)
    order += order.T
    linked = ~np.eye(many, dtype=np.bool_)
    for via in range(many):
        linked &= np.maximum(order[:, via, None], order[None, via, :]) >= order
    return linked


class Terrain:
    """The ``nodes``, their known or estimated ``latency_ms`` [n, n], and the hops between them."""

    def __init__(self, nodes: Sequence[str], latency_ms: Floats) -> None:
        both = (latency_ms + latency_ms.T) / 2.0
        linked = neighbourhood(both)
        self.number = {node: number for number, node in enumerate(nodes)}
        self._ms = both.tolist()
        self.neighbours: dict[str, dict[str, float]] = {
            node: {nodes[other]: max(self._ms[number][other], LEAST_MS) for other in np.flatnonzero(linked[number]).tolist()}
            for number, node in enumerate(nodes)
        }

    def path_ms(self, source: str, other: str) -> float:
        return float(self._ms[self.number[source]][self.number[other]])

    def weights(self, name: str, destination: str) -> Mapping[str, float]:
        """Return how much each neighbour leads towards a destination.

        The weight is 1 on the path and e^-ONWARD straight back. The paper begins with equal probabilities; most of the first ants
        are then lost in a network of hundreds of nodes.
        """
        left_ms = {neighbour: self.path_ms(neighbour, destination) for neighbour in self.neighbours[name]}
        return onward_weights(self.neighbours[name], left_ms, self.path_ms(name, destination))


def own_neighbours(away_ms: Floats, latency_ms: Floats) -> NDArray[np.bool_]:
    """Return which of some nodes [n] are neighbours of one node at ``away_ms`` [n], by the latencies [n, n] between them.

    A node may so compute its own row of :func:`neighbourhood`. It is never empty: the nearest node is a neighbour.
    """
    nearer_to_both = np.maximum(away_ms[:, None], latency_ms) < away_ms[None, :]
    np.fill_diagonal(nearer_to_both, False)
    linked: NDArray[np.bool_] = np.logical_not(nearer_to_both.any(axis=0))
    return linked


def ring_neighbours(name: str, members: Iterable[str]) -> list[str]:
    """Return the members before and after a node on the ring of all names by their hashes.

    These links are symmetric and connect all nodes, without any knowledge of latencies. A newcomer changes two of them.
    """
    ring = sorted({name, *members}, key=lambda member: (_hashed(member), member))
    at = ring.index(name)
    return sorted({ring[at - 1], ring[(at + 1) % len(ring)]} - {name})


def drawn_neighbours(name: str, members: Collection[str], mean: float) -> list[str]:
    """Return the members that are neighbours of a node by lot, ``mean`` on average; both nodes of a pair draw the same.

    A newcomer changes few lots, so that pheromones last.
    """
    share = mean / max(1, len(members))
    return [] if len(members) < FEW else [other for other in members if other != name and _lot(name, other) < share]


def _lot(name: str, other: str) -> float:
    """Return a number of [0, 1) for a pair of nodes, in any order."""
    return _hashed("\0".join(sorted((name, other)))) / 2.0**64


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def onward_weights(hops_ms: Mapping[str, float], left_ms: Mapping[str, float], away_ms: float) -> dict[str, float]:
    """Return the initial weights of neighbours.

    These are ``hops_ms`` away and have ``left_ms`` to the destination, which is ``away_ms`` away.
    """
    weights = {}
    for neighbour, hop_ms in hops_ms.items():
        back = (hop_ms + left_ms[neighbour] - away_ms) / (2.0 * hop_ms)
        weights[neighbour] = math.exp(-ONWARD * min(1.0, max(0.0, back)))
    return weights

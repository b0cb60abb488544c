"""The tree along which streams flow to the sink, and on which NES's strategies place operators.

Nodes may be configured to hang from others, edge from fog and fog from cloud. Those that hang from none are linked with the
nearest of their kind and by a minimum spanning tree, so that all hang together. The hierarchy is the tree of shortest paths over
these links towards the sink, by the latencies that are known; without any configuration, that of the whole overlay. NES selects
paths where nodes have several parents, by how many sources' ways pass each; here every node has one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.all_pairs import all_pairs_ms
from sbon_node.placement.network_view import UNKNOWN_MS, NetworkView

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]


class Hierarchy(NamedTuple):
    """``parents`` of every node but the sink: the next one on its way there."""

    sink: str
    parents: Mapping[str, str]

    def path(self, node: str) -> list[str]:
        """From the node to the sink, both included."""
        found = [node]
        while found[-1] != self.sink:
            found.append(self.parents[found[-1]])
        return found

    def meeting(self, nodes: Iterable[str]) -> str:
        """The first node that the ways of all to the sink have in common; of none, the sink."""
        first, *others = (self.path(node) for node in dict.fromkeys([*nodes] or [self.sink]))
        common = set(first).intersection(*others)
        return next(node for node in first if node in common)


async def hierarchy(view: NetworkView, sink: str, ends: Collection[str], neighbours: int) -> Hierarchy:
    """Of all nodes that may host, the sink and ``ends``, as a function of what the view knows; ``neighbours`` is how many of the
    nearest each is linked with. A node whose place is unknown counts as far away. Raises :class:`SbonError` ``too-large``."""
    nodes = sorted({*view.nodes(), *ends, sink})
    number = {node: i for i, node in enumerate(nodes)}
    parent = configured(view, nodes)
    free = np.array([i for i, node in enumerate(nodes) if node not in parent], dtype=int)
    ms = await _known_ms(view, nodes)
    hung = [(number[node], number[above]) for node, above in parent.items()]
    towards = await view.compute(partial(_towards, ms, free, hung, number[sink], neighbours))
    return Hierarchy(sink, {node: nodes[above] for node, above in zip(nodes, towards.tolist(), strict=True) if node != sink})


def _towards(ms: Floats, free: Ints, hung: Sequence[tuple[int, int]], sink: int, neighbours: int) -> Ints:
    """The next node [n] on each one's way to the sink; ``free`` hang from none, ``hung`` are the others, with whom they hang
    from."""
    linked = np.zeros(ms.shape, dtype=np.bool_)
    linked[np.ix_(free, free)] = _overlay(ms[np.ix_(free, free)], neighbours)
    for node, above in hung:
        linked[node, above] = linked[above, node] = True
    return _grown(np.where(linked, ms, np.inf), sink, far=True)


def configured(view: NetworkView, nodes: Sequence[str]) -> dict[str, str]:
    """The configured parents, of those that have one. A parent that is not there counts for none, and where parents lead in a
    circle, that of the first by name does."""
    known = set(nodes)
    named = {node: parent for node in nodes if (parent := view.parent(node)) in known and parent is not None and parent != node}
    settled: set[str] = set()
    for node in nodes:
        way: list[str] = []
        while node in named and node not in settled and node not in way:
            way.append(node)
            node = named[node]
        if node in way:
            del named[min(way[way.index(node) :])]
        settled.update(way)
    return named


async def _known_ms(view: NetworkView, nodes: Sequence[str]) -> Floats:
    ms = await all_pairs_ms(view, nodes, "a hierarchy")
    lost = [number for number, node in enumerate(nodes) if view.coordinate(node) is None]
    ms[lost], ms[:, lost] = UNKNOWN_MS, UNKNOWN_MS
    np.fill_diagonal(ms, 0.0)
    return ms


def _overlay(ms: Floats, neighbours: int) -> NDArray[np.bool_]:
    """Links [n, n] of each with its nearest, and of a minimum spanning tree."""
    many = len(ms)
    linked = np.zeros(ms.shape, dtype=np.bool_)
    if many < 2:
        return linked
    apart = ms.copy()
    np.fill_diagonal(apart, np.inf)
    count = min(neighbours, many - 1)
    near = np.argpartition(apart, count - 1, axis=1)[:, :count]
    linked[np.arange(many)[:, None], near] = True
    spanning = _grown(apart, 0, far=False)
    linked[np.arange(1, many), spanning[1:]] = True
    return linked | linked.T


def _grown(weights: Floats, root: int, *, far: bool) -> Ints:
    """The parents [n] of a tree that grows from the root by the node nearest to the root (``far``; Dijkstra, 1959) or to the tree
    (Prim, 1957); infinite weights are no links. The root is its own."""
    many = len(weights)
    parent = np.full(many, root)
    reach = np.full(many, np.inf)
    reach[root] = 0.0
    waiting = np.ones(many, dtype=np.bool_)
    for _ in range(many):
        node = int(np.where(waiting, reach, np.inf).argmin())
        waiting[node] = False
        offered = weights[:, node] + (reach[node] if far else 0.0)
        better = waiting & (offered < reach)
        reach[better], parent[better] = offered[better], node
    return parent

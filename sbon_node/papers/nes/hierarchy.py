"""The tree along which streams flow to the sink, and the strategies BOTTOM-UP and TOP-DOWN, which go along it (NES).

Nodes may have a configured parent, for example edge nodes a fog node and fog nodes a cloud node. Nodes without a parent are
linked with the nearest of their kind and by a minimum spanning tree, so that all nodes are connected. The hierarchy is the tree
of shortest paths over these links to the sink, by known latencies; without configured parents, it spans the whole overlay. Where
nodes have several parents, NES selects paths by the number of sources that use them; here every node has one parent.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.model.latency_matrix import all_pairs_ms
from sbon_node.placement.model.network_view import UNKNOWN_MS, NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection.mapping import along, finish, first_with_capacity
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.sbon.baselines import consumer_of, producers_of
from sbon_protocol.api.placement import Assignment, Placement

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]


class Hierarchy(NamedTuple):
    """A tree of nodes. ``parents`` holds the next node on the path to the sink, for every node but the sink."""

    sink: str
    parents: Mapping[str, str]

    def path(self, node: str) -> list[str]:
        """Return the path from the node to the sink, both included."""
        path = [node]
        while path[-1] != self.sink:
            path.append(self.parents[path[-1]])
        return path

    def meeting(self, nodes: Iterable[str]) -> str:
        """Return the first node that the paths of ``nodes`` to the sink share. Without nodes it is the sink."""
        first, *others = (self.path(node) for node in dict.fromkeys([*nodes] or [self.sink]))
        common = set(first).intersection(*others)
        return next(node for node in first if node in common)


async def hierarchy(view: NetworkView, sink: str, ends: Collection[str], neighbours: int) -> Hierarchy:
    """Build the hierarchy of all nodes that may host, the sink and ``ends``.

    The result depends only on what the view knows. Each node is linked with its ``neighbours`` nearest. A node without a known
    coordinate counts as far away. Raises :class:`SbonError` ``too-large``.
    """
    nodes = sorted({*view.nodes(), *ends, sink})
    number = {node: i for i, node in enumerate(nodes)}
    parent = configured(view, nodes)
    free = np.array([i for i, node in enumerate(nodes) if node not in parent], dtype=int)
    ms = await _known_ms(view, nodes)
    hung = [(number[node], number[above]) for node, above in parent.items()]
    towards = await view.compute(partial(_towards, ms, free, hung, number[sink], neighbours))
    return Hierarchy(sink, {node: nodes[above] for node, above in zip(nodes, towards.tolist(), strict=True) if node != sink})


def _towards(ms: Floats, free: Ints, hung: Sequence[tuple[int, int]], sink: int, neighbours: int) -> Ints:
    """Return the next node [n] on each node's path to the sink.

    ``free`` are the nodes without a parent, ``hung`` the others with their parents.
    """
    linked = np.zeros(ms.shape, dtype=np.bool_)
    linked[np.ix_(free, free)] = _overlay(ms[np.ix_(free, free)], neighbours)
    for node, above in hung:
        linked[node, above] = linked[above, node] = True
    return _grown(np.where(linked, ms, np.inf), sink, far=True)


def configured(view: NetworkView, nodes: Sequence[str]) -> dict[str, str]:
    """Return the configured parents.

    A missing parent is ignored. Where parents form a cycle, the parent of its first node by name is ignored.
    """
    known = set(nodes)
    parents = {node: parent for node in nodes if (parent := view.parent(node)) in known and parent is not None and parent != node}
    settled: set[str] = set()
    for node in nodes:
        path: list[str] = []
        while node in parents and node not in settled and node not in path:
            path.append(node)
            node = parents[node]
        if node in path:
            del parents[min(path[path.index(node) :])]
        settled.update(path)
    return parents


async def _known_ms(view: NetworkView, nodes: Sequence[str]) -> Floats:
    ms = await all_pairs_ms(view, nodes, "a hierarchy")
    lost = [number for number, node in enumerate(nodes) if view.coordinate(node) is None]
    ms[lost], ms[:, lost] = UNKNOWN_MS, UNKNOWN_MS
    np.fill_diagonal(ms, 0.0)
    return ms


def _overlay(ms: Floats, neighbours: int) -> NDArray[np.bool_]:
    """Return the links [n, n] of each node with its nearest, and of a minimum spanning tree."""
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
    """Return the parents [n] of a tree that grows from ``root``; the root is its own parent.

    The next node is the nearest to the root if ``far`` (Dijkstra, 1959), else the nearest to the tree (Prim, 1957). An infinite
    weight is no link.
    """
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


async def bottom_up(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query from the sources towards the sink, each operator as near to its sources as capacity allows.

    An operator with one input goes to the node of that input. An operator with several goes to the node where their paths to the
    sink first meet. Without capacity there, the next node on the path to the sink that has some is taken, else the nearest; the
    paper fails then. Raises :class:`SbonError` ``no-capacity``.
    """
    before = view.probes
    tree = await hierarchy(view, consumer_of(problem), problem.pinned.values(), settings.neighbours)
    at, assignments = dict(problem.pinned), list[Assignment]()
    for operator in problem.operators:
        start = tree.meeting(at[edge.source] for edge in problem.edges if edge.target == operator.id)
        reason = f"at {start}, where its inputs meet on their way to {tree.sink}, or after it"
        candidate_nodes = along(tree.path(start), view, operator)
        assignments.append(await first_with_capacity(operator, candidate_nodes, view, assignments, problem.operators, reason))
        at[operator.id] = assignments[-1].node
    return finish("bottom-up", problem, assignments, view, before)


async def top_down(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query from the sink towards the sources, last operators first; the paper gives only the name.

    An operator goes to the node of its reader. Without capacity there, it goes to the first node with capacity on the paths down
    to its sources, level by level; within a level, nodes on the paths of more sources come first. Where these are full, the
    nearest node is taken. Raises :class:`SbonError` ``no-capacity``.
    """
    before = view.probes
    tree = await hierarchy(view, consumer_of(problem), problem.pinned.values(), settings.neighbours)
    at, assignments = dict(problem.pinned), list[Assignment]()
    for operator in reversed(problem.operators):
        start = tree.meeting(at[edge.target] for edge in problem.edges if edge.source == operator.id)
        reason = f"at {start}, where its rows are wanted, or below it towards its sources"
        candidate_nodes = along(_down(tree, start, producers_of(problem, operator.id)), view, operator)
        assignments.append(await first_with_capacity(operator, candidate_nodes, view, assignments, problem.operators, reason))
        at[operator.id] = assignments[-1].node
    return finish("top-down", problem, assignments[::-1], view, before)


def _down(tree: Hierarchy, start: str, sources: list[str]) -> list[str]:
    """Return ``start`` and the nodes below it on the sources' paths, nearest levels first."""
    below: dict[str, tuple[int, int]] = {}
    for source in sources:
        path = tree.path(source)
        for level, node in enumerate(reversed(path[: path.index(start)]) if start in path else (), start=1):
            _, latencies = below.get(node, (level, 0))
            below[node] = (level, latencies - 1)
    return [start, *sorted(below, key=lambda node: (*below[node], node))]

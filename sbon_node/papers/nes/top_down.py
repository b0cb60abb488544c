"""TOP-DOWN: fills nodes from the sink towards the sources (NES, whose text gives only the name)."""

from __future__ import annotations

from sbon_node.papers.nes.hierarchy import Hierarchy, hierarchy
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection.mapping import along, finish, first_with_capacity
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.sbon.consumer import consumer_of
from sbon_node.placement.strategies.sbon.producer import producers_of
from sbon_protocol.api.placement import Assignment, Placement


async def top_down(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query from the sink towards the sources, last operators first.

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

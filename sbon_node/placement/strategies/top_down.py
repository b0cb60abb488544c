"""TOP-DOWN: fills nodes from the sink towards the sources (NES, of which the text has the name only)."""

from __future__ import annotations

from sbon_node.placement.hierarchy import Hierarchy, hierarchy
from sbon_node.placement.mapping import along, finish, first_with_room
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import Assignment, Placement, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.consumer import consumer_of
from sbon_node.placement.strategies.producer import producers_of


async def top_down(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Last operators first: an operator goes where its rows are wanted, or, without room there, to the first node that has some
    on the ways from there down to its sources, level by level; of a level, those on more sources' ways first. Where these are
    full, to the nearest. Raises :class:`SbonError` ``no-room``."""
    before = view.questions
    tree = await hierarchy(view, consumer_of(problem), problem.pinned.values(), settings.neighbours)
    at, assignments = dict(problem.pinned), list[Assignment]()
    for operator in reversed(problem.operators):
        start = tree.meeting(at[edge.target] for edge in problem.edges if edge.source == operator.id)
        reason = f"at {start}, where its rows are wanted, or below it towards its sources"
        wishes = along(_down(tree, start, producers_of(problem, operator.id)), view, operator)
        assignments.append(await first_with_room(operator, wishes, view, assignments, problem.operators, reason))
        at[operator.id] = assignments[-1].node
    return finish("top-down", problem, assignments[::-1], view, before)


def _down(tree: Hierarchy, start: str, sources: list[str]) -> list[str]:
    """``start``, and the nodes of the sources' ways that are below it, nearest levels first."""
    below: dict[str, tuple[int, int]] = {}
    for source in sources:
        path = tree.path(source)
        for level, node in enumerate(reversed(path[: path.index(start)]) if start in path else (), start=1):
            _, ways = below.get(node, (level, 0))
            below[node] = (level, ways - 1)
    return [start, *sorted(below, key=lambda node: (*below[node], node))]

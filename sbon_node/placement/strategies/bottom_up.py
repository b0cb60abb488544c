"""BOTTOM-UP: each operator as near to where its rows come from as there is room (NES, Bottom-Up Strategy).

The paper marks a placement as failed where no node on the way to the sink has room; here those nearest to where the operator was
wanted are asked next, and it fails where none has.
"""

from __future__ import annotations

from sbon_node.placement.hierarchy import hierarchy
from sbon_node.placement.mapping import along, finish, first_with_room
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import Assignment, Placement, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.consumer import consumer_of


async def bottom_up(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """An operator with one input goes where that is, one with several where the ways of these to the sink first meet; without
    room there, to the next node on the way to the sink that has some. Raises :class:`SbonError` ``no-room``."""
    before = view.questions
    tree = await hierarchy(view, consumer_of(problem), problem.pinned.values(), settings.neighbours)
    at, assignments = dict(problem.pinned), list[Assignment]()
    for operator in problem.operators:
        start = tree.meeting(at[edge.source] for edge in problem.edges if edge.target == operator.id)
        reason = f"at {start}, where its inputs meet on their way to {tree.sink}, or after it"
        wishes = along(tree.path(start), view, operator)
        assignments.append(await first_with_room(operator, wishes, view, assignments, problem.operators, reason))
        at[operator.id] = assignments[-1].node
    return finish("bottom-up", problem, assignments, view, before)

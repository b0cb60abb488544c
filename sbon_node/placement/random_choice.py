"""RANDOM: any node for each operator, the worst case of the comparison (SBON, section 4.1)."""

from __future__ import annotations

from sbon_node.placement.mapping import finish, first_with_room
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import Assignment, Placement, PlacementProblem
from sbon_node.placement.settings import PlacementSettings


async def random_choice(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """The first node with room in an order drawn anew for each operator."""
    before = view.questions
    assignments: list[Assignment] = []
    for operator in problem.operators:
        wishes = view.nodes()
        view.rng.shuffle(wishes)
        assignments.append(await first_with_room(operator, wishes, view, assignments, problem.operators, "drawn at random"))
    return finish("random", problem, assignments, view, before)

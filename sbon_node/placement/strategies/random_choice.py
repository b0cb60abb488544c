"""RANDOM: any node for each operator, the worst case of the comparison (SBON, section 4.1)."""

from __future__ import annotations

from sbon_node.placement.mapping import first_with_room
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.partial import Partial
from sbon_node.placement.problem import Assignment, Placement, PlacementProblem
from sbon_node.placement.sequential import bounded
from sbon_node.placement.settings import PlacementSettings


async def random_choice(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """The first node with room, and within the bound on delay where there is one, in an order drawn anew for each operator."""

    async def attempt(partial: Partial) -> list[Assignment]:
        placed: list[Assignment] = []
        for operator in problem.operators:
            wishes = view.nodes()
            view.rng.shuffle(wishes)
            placed.append(await first_with_room(operator, wishes, view, placed, problem.operators, "drawn at random", partial))
        return placed

    return await bounded("random", problem, view, settings, attempt)

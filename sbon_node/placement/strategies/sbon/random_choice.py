"""RANDOM: any node for each operator, the worst case of the comparison (SBON, section 4.1)."""

from __future__ import annotations

from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection.mapping import first_with_capacity
from sbon_node.placement.selection.partial import Partial
from sbon_node.placement.selection.sequential import bounded
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Assignment, Placement


async def random_choice(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place each operator at the first node with capacity within the bound on delay, if any.

    The order of nodes is drawn anew for each operator.
    """

    async def attempt(partial: Partial) -> list[Assignment]:
        assignments: list[Assignment] = []
        for operator in problem.operators:
            candidate_nodes = view.nodes()
            view.rng.shuffle(candidate_nodes)
            assignments.append(
                await first_with_capacity(
                    operator, candidate_nodes, view, assignments, problem.operators, "drawn at random", partial
                )
            )
        return assignments

    return await bounded("random", problem, view, settings, attempt)

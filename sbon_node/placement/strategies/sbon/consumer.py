"""CONSUMER: every operator goes to the consumer's node (SBON, section 4.1), as if all streams were shipped whole."""

from __future__ import annotations

from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection.mapping import by_latency, first_with_capacity
from sbon_node.placement.selection.partial import Partial
from sbon_node.placement.selection.sequential import bounded
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Assignment, Placement


async def consumer(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place all operators at the consumer's node, the first by name if several.

    Without capacity there, take the nearest node that has some.
    """
    node = consumer_of(problem)

    async def attempt(_: Partial) -> list[Assignment]:
        assignments: list[Assignment] = []
        for operator in problem.operators:
            candidate_nodes = by_latency(view, node, operator.refused)
            reason = f"at or nearest to consumer node {node}"
            assignments.append(await first_with_capacity(operator, candidate_nodes, view, assignments, problem.operators, reason))
        return assignments

    return await bounded("consumer", problem, view, settings, attempt)


def consumer_of(problem: PlacementProblem) -> str:
    """Return the node of the pinned vertex that sends nothing; the first by name if several."""
    sources = {edge.source for edge in problem.edges}
    return min(problem.pinned[vertex] for vertex in problem.pinned if vertex not in sources)

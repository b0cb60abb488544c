"""CONSUMER: every operator goes to the consumer's node (SBON, section 4.1), as if all streams were shipped whole."""

from __future__ import annotations

from sbon_node.placement.mapping import by_latency, first_with_room
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.partial import Partial
from sbon_node.placement.problem import Assignment, Placement, PlacementProblem
from sbon_node.placement.sequential import bounded
from sbon_node.placement.settings import PlacementSettings


async def consumer(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """The consumer's node (the first by name, where several consume); where it has no room, the node nearest to it that has."""
    node = consumer_of(problem)

    async def attempt(_: Partial) -> list[Assignment]:
        assignments: list[Assignment] = []
        for operator in problem.operators:
            wishes = by_latency(view, node, operator.refused)
            reason = f"at or nearest to consumer node {node}"
            assignments.append(await first_with_room(operator, wishes, view, assignments, problem.operators, reason))
        return assignments

    return await bounded("consumer", problem, view, settings, attempt)


def consumer_of(problem: PlacementProblem) -> str:
    """The node of what is pinned and sends nothing on; the first by name, where there are several."""
    sources = {edge.source for edge in problem.edges}
    return min(problem.pinned[vertex] for vertex in problem.pinned if vertex not in sources)

"""PRODUCER: an operator goes to one of its producers' nodes, chosen at random (SBON, section 4.1)."""

from __future__ import annotations

from sbon_node.placement.mapping import by_latency, first_with_room
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.partial import Partial
from sbon_node.placement.problem import Assignment, Placement, PlacementProblem
from sbon_node.placement.sequential import bounded
from sbon_node.placement.settings import PlacementSettings


async def producer(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """A random producer among those whose rows reach the operator; where it has no room, the node nearest to it that has."""

    async def attempt(_: Partial) -> list[Assignment]:
        assignments: list[Assignment] = []
        for operator in problem.operators:
            node = view.rng.choice(producers_of(problem, operator.id))
            wishes = by_latency(view, node, operator.refused)
            reason = f"at or nearest to producer node {node}"
            assignments.append(await first_with_room(operator, wishes, view, assignments, problem.operators, reason))
        return assignments

    return await bounded("producer", problem, view, settings, attempt)


def producers_of(problem: PlacementProblem, vertex: str) -> list[str]:
    """Nodes of the pinned vertices upstream of ``vertex``, sorted."""
    inputs: dict[str, list[str]] = {}
    for edge in problem.edges:
        inputs.setdefault(edge.target, []).append(edge.source)
    found: set[str] = set()
    pending, seen = [vertex], {vertex}
    while pending:
        for source in inputs.get(pending.pop(), []):
            if source in problem.pinned:
                found.add(problem.pinned[source])
            elif source not in seen:
                seen.add(source)
                pending.append(source)
    return sorted(found)

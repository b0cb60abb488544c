"""PRODUCER: an operator goes to one of its producers' nodes, chosen at random (SBON, section 4.1)."""

from __future__ import annotations

from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection.mapping import by_latency, first_with_capacity
from sbon_node.placement.selection.partial import Partial
from sbon_node.placement.selection.sequential import bounded
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Assignment, Placement


async def producer(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place each operator at a random upstream producer. Without capacity there, the nearest node that has some is taken."""

    async def attempt(_: Partial) -> list[Assignment]:
        assignments: list[Assignment] = []
        for operator in problem.operators:
            node = view.rng.choice(producers_of(problem, operator.id))
            candidate_nodes = by_latency(view, node, operator.refused)
            reason = f"at or nearest to producer node {node}"
            assignments.append(await first_with_capacity(operator, candidate_nodes, view, assignments, problem.operators, reason))
        return assignments

    return await bounded("producer", problem, view, settings, attempt)


def producers_of(problem: PlacementProblem, vertex: str) -> list[str]:
    """Return the nodes of the pinned vertices upstream of ``vertex``, sorted."""
    inputs: dict[str, list[str]] = {}
    for edge in problem.edges:
        inputs.setdefault(edge.target, []).append(edge.source)
    producers: set[str] = set()
    pending, seen = [vertex], {vertex}
    while pending:
        for source in inputs.get(pending.pop(), []):
            if source in problem.pinned:
                producers.add(problem.pinned[source])
            elif source not in seen:
                seen.add(source)
                pending.append(source)
    return sorted(producers)

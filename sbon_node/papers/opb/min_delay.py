"""MIN-DELAY: every operator goes where the path through it is shortest (OPB, section IV.A).

The path runs from the sources through the operator and then directly to the consumer, processing included. The paper searches all
nodes, with a resource discovery for each operator. The greedy choice considers only the delay, and the capacity that earlier
operators have taken.
"""

from __future__ import annotations

import numpy as np

from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import Operator, PlacementProblem
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.selection.discovery import window_of
from sbon_node.placement.selection.mapping import delay_bound
from sbon_node.placement.selection.partial import Partial
from sbon_node.placement.selection.sequential import bounded
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Assignment, Placement


async def min_delay(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query. Raises :class:`SbonError` ``no-capacity``, or ``delay-bound`` where a path still takes too long."""

    async def attempt(partial: Partial) -> list[Assignment]:
        return [await _place(operator, problem, view, settings, partial) for operator in problem.operators]

    return await bounded("min-delay", problem, view, settings, attempt)


async def _place(
    operator: Operator, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, partial: Partial
) -> Assignment:
    nodes_with_capacity = await view.discover(window_of(problem, settings, operator.needs.cores))
    partial.know(nodes_with_capacity)
    nodes = [node for node in nodes_with_capacity if node not in operator.refused]
    roomy = [node for node, fits in zip(nodes, partial.fits(operator, nodes).tolist(), strict=True) if fits]
    if not roomy:
        raise await KnownCapacity(problem, view).refusal(operator, {})
    through_ms = partial.through_ms(operator, roomy)
    best_ms, bound = float(through_ms.min()), problem.bounds.max_delay_ms
    for index in np.argsort(through_ms, kind="stable").tolist():
        if not partial.lateness(operator, roomy[index]):
            partial.place(operator.id, roomy[index])
            reason = f"shortest path through it of {len(roomy)} with capacity ({through_ms[index]:.1f} ms)"
            return Assignment(operator=operator.id, node=roomy[index], reason=reason)
    assert bound is not None
    raise delay_bound(bound, best_ms)

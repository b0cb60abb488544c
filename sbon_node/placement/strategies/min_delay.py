"""MIN-DELAY: every operator goes where the way through it is shortest, from the sources on and then straight to the consumer,
processing included (OPB, section IV.A).

The paper searches all nodes, with a resource discovery for each operator; the greedy choice looks at delay alone, and at what the
operators before it have taken.
"""

from __future__ import annotations

import numpy as np

from sbon_node.placement.discovery import window_of
from sbon_node.placement.mapping import delay_bound
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.partial import Partial
from sbon_node.placement.problem import Assignment, Operator, Placement, PlacementProblem
from sbon_node.placement.room import Room
from sbon_node.placement.sequential import bounded
from sbon_node.placement.settings import PlacementSettings


async def min_delay(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Raises :class:`SbonError` ``no-room``, or ``delay-bound`` where even so a way takes too long."""

    async def attempt(partial: Partial) -> list[Assignment]:
        return [await _place(operator, problem, view, settings, partial) for operator in problem.operators]

    return await bounded("min-delay", problem, view, settings, attempt)


async def _place(
    operator: Operator, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, partial: Partial
) -> Assignment:
    found = await view.discover(window_of(problem, settings, operator.needs.cores))
    partial.know(found)
    nodes = [node for node in found if node not in operator.refused]
    roomy = [node for node, fits in zip(nodes, partial.fits(operator, nodes).tolist(), strict=True) if fits]
    if not roomy:
        raise await Room(problem, view).refusal(operator, {})
    through_ms = partial.through_ms(operator, roomy)
    best_ms, bound = float(through_ms.min()), problem.bounds.max_delay_ms
    for index in np.argsort(through_ms, kind="stable").tolist():
        if not partial.lateness(operator, roomy[index]):
            partial.place(operator.id, roomy[index])
            reason = f"shortest way through it of {len(roomy)} with room ({through_ms[index]:.1f} ms)"
            return Assignment(operator=operator.id, node=roomy[index], reason=reason)
    assert bound is not None
    raise delay_bound(bound, best_ms)

"""Bounded delay for strategies that place one operator after another.

Each attempt's links are measured, so that the next attempt knows them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from sbon_node.placement.model.latency_matrix import BATCH
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection.mapping import finish
from sbon_node.placement.selection.partial import Partial
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Assignment, Placement
from sbon_protocol.errors import SbonError

Attempt = Callable[[Partial], Awaitable[list[Assignment]]]
"""Place every operator. Raises ``no-capacity``, or ``delay-bound`` where an operator has no node within the bound."""


async def bounded(
    strategy: str, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, attempt: Attempt
) -> Placement:
    """Return the first attempt's placement that keeps the bound on delay; without a bound, the first.

    Raises :class:`SbonError` ``delay-bound`` where all of ``settings.attempts`` fail, and any other error of an attempt.
    """
    probes, discoveries = view.probes, view.discoveries
    failed: SbonError | None = None
    for _ in range(1 if problem.bounds.max_delay_ms is None else settings.attempts):
        partial = Partial(problem, view)
        try:
            assignments = await attempt(partial)
        except SbonError as error:
            if error.code != "delay-bound":
                raise
            failed = error
            continue
        trouble = await measured(partial, view, settings) if problem.bounds.max_delay_ms is not None else ""
        if trouble:
            assignments = [
                msgspec.structs.replace(assignment, reason=f"{assignment.reason}; not measured: {trouble}")
                for assignment in assignments
            ]
        try:
            discovered = view.discoveries - discoveries
            return finish(strategy, problem, assignments, view, probes, cores=partial.cores(), discoveries=discovered)
        except SbonError as error:
            failed = error
    assert failed is not None
    raise failed


async def measured(partial: Partial, view: NetworkView, settings: PlacementSettings) -> str:
    """Measure the links of a placement where that is allowed; return why it could not, or ""."""
    links = partial.links() if settings.measure else []
    try:
        for start in range(0, len(links), BATCH):
            await view.measure(links[start : start + BATCH])
    except SbonError as error:
        return error.message
    return ""

"""Strategies that place one operator after another, under a bound on delay: what an attempt uses is measured, and where that
takes too long the next attempt knows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from sbon_node.errors import SbonError
from sbon_node.placement.mapping import finish
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.partial import Partial
from sbon_node.placement.problem import Assignment, Placement, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.ways import BATCH

Attempt = Callable[[Partial], Awaitable[list[Assignment]]]
"""Places every operator; raises ``no-room``, or ``delay-bound`` where an operator has no node within the bound."""


async def bounded(
    strategy: str, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, attempt: Attempt
) -> Placement:
    """Without a bound on delay, the first attempt. Raises :class:`SbonError` ``delay-bound`` where all of ``settings.attempts``
    fail, and whatever else an attempt raises."""
    questions, discoveries = view.questions, view.discoveries
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
            assignments = [msgspec.structs.replace(one, reason=f"{one.reason}; not measured: {trouble}") for one in assignments]
        try:
            found = view.discoveries - discoveries
            return finish(strategy, problem, assignments, view, questions, cores=partial.cores(), discoveries=found)
        except SbonError as error:
            failed = error
    assert failed is not None
    raise failed


async def measured(partial: Partial, view: NetworkView, settings: PlacementSettings) -> str:
    """Measures the links of a placement, where that is allowed; says why it could not."""
    links = partial.links() if settings.measure else []
    try:
        for start in range(0, len(links), BATCH):
            await view.measure(links[start : start + BATCH])
    except SbonError as error:
        return error.message
    return ""

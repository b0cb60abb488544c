"""The error of a query's measured delay: the clocks of all links on the way add to it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sbon_node.model.delivery import SinkDelay
from sbon_node.model.measures import OperatorMeasures
from sbon_node.model.plan import Plan
from sbon_node.model.queries import OperatorInfo


def stated_delay(plan: Plan, operators: Iterable[OperatorInfo], delay: SinkDelay | None) -> SinkDelay | None:
    """Return the sink's delay with the error of the whole way, the largest over all paths.

    Each host translates the times of the frames that it reads to its own clock, so the errors of a path's links add up. The sink
    knows that of its own links only. None for ``error_ms`` where a host does not report.
    """
    if delay is None or delay.error_ms is None:
        return delay
    measures = {operator.id: operator.measures for operator in operators}
    upstream_ms: dict[str, float | None] = {planned.source.id: 0.0 for planned in plan.sources}
    for planned in (*(shared.operator for shared in plan.shared), *plan.operators):
        upstream_ms[planned.id] = _error_ms(measures.get(planned.id), upstream_ms)
    errors = [upstream_ms.get(stream) for stream in plan.outputs]
    known = [error for error in errors if error is not None]
    error_ms = delay.error_ms + max(known) if known and len(known) == len(errors) else None
    return msgspec.structs.replace(delay, error_ms=error_ms)


def _error_ms(measures: OperatorMeasures | None, upstream_ms: dict[str, float | None]) -> float | None:
    """Return the error of times on an operator's output; None if it is unknown."""
    errors = []
    for read in measures.inputs if measures is not None else ():
        before = upstream_ms.get(read.stream)
        if before is None or read.clock_error_ms is None:
            return None
        errors.append(before + read.clock_error_ms)
    return max(errors, default=None)

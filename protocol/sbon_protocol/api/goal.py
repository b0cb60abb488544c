"""The goal of a query's placement: strategy, objective and bounds."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sbon_protocol.api.objective import Bounds, Objective
from sbon_protocol.api.shown import Shown
from sbon_protocol.api.strategies import DEFAULT_STRATEGY, check_strategy, objective_named


class Goal(Shown, frozen=True, kw_only=True):
    """Goal of a query, kept in its record for later placements.

    ``strategy`` is a name of :mod:`~sbon_protocol.api.strategies`, ``objective`` a name or weights
    (:func:`~sbon_protocol.api.strategies.objective_named`); the bounds are :class:`~sbon_protocol.api.objective.Bounds`.
    """

    strategy: str = DEFAULT_STRATEGY
    objective: Annotated[str, Meta(min_length=1, max_length=200)] = "usage"
    max_delay_ms: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    min_throughput_bytes_s: Annotated[float, Meta(gt=0, le=1e15)] | None = None

    def check(self) -> None:
        """Raise :class:`~sbon_protocol.errors.SbonError` ``unknown-strategy`` or ``unknown-objective``."""
        check_strategy(self.strategy)
        objective_named(self.objective)

    def goal_options(self) -> dict[str, Any]:
        """Return these fields by name, for another type that has them too."""
        return {name: getattr(self, name) for name in Goal.__struct_fields__}

    @property
    def minimised(self) -> Objective:
        return objective_named(self.objective)

    @property
    def bounds(self) -> Bounds:
        return Bounds(max_delay_ms=self.max_delay_ms, min_throughput_bytes_s=self.min_throughput_bytes_s)

"""How a query is to be placed: by which strategy, for what, within which bounds."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sbon_node.placement.objective import objective_named
from sbon_node.placement.problem import Bounds, Objective
from sbon_node.placement.strategies import DEFAULT_STRATEGY, strategy_named


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """Given with a query and kept in its record, so that it is placed anew for the same.

    ``strategy`` is a name of :mod:`~sbon_node.placement.strategies`, ``objective`` a name or weights
    (:func:`~sbon_node.placement.objective.objective_named`); the bounds are :class:`~sbon_node.placement.problem.Bounds`.
    """

    strategy: str = DEFAULT_STRATEGY
    objective: Annotated[str, Meta(min_length=1, max_length=200)] = "usage"
    max_delay_ms: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    min_throughput_bytes_s: Annotated[float, Meta(gt=0, le=1e15)] | None = None

    def check(self) -> None:
        """Raises :class:`~sbon_node.errors.SbonError` ``unknown-strategy`` or ``unknown-objective``."""
        strategy_named(self.strategy)
        objective_named(self.objective)

    def wishes(self) -> dict[str, Any]:
        """These fields by name, for another that has them too."""
        return {name: getattr(self, name) for name in Goal.__struct_fields__}

    @property
    def minimised(self) -> Objective:
        return objective_named(self.objective)

    @property
    def bounds(self) -> Bounds:
        return Bounds(max_delay_ms=self.max_delay_ms, min_throughput_bytes_s=self.min_throughput_bytes_s)

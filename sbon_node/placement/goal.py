"""How a query is to be placed: by which strategy, for what, within which bounds."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sbon_node.placement.names import DEFAULT_STRATEGY, check_strategy, objective_named
from sbon_node.placement.problem import Bounds, Objective


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """Given with a query and kept in its record, so that it is placed anew for the same.

    ``strategy`` is a name of :mod:`~sbon_node.placement.names`, ``objective`` a name or weights
    (:func:`~sbon_node.placement.names.objective_named`); the bounds are :class:`~sbon_node.placement.problem.Bounds`.
    """

    strategy: str = DEFAULT_STRATEGY
    objective: Annotated[str, Meta(min_length=1, max_length=200)] = "usage"
    max_delay_ms: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    min_throughput_bytes_s: Annotated[float, Meta(gt=0, le=1e15)] | None = None

    def check(self) -> None:
        """Raises :class:`~sbon_node.errors.SbonError` ``unknown-strategy`` or ``unknown-objective``."""
        check_strategy(self.strategy)
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

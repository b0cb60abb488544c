"""The view of one look at a running query: what this node measures for it now, and capacity beside its own operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sbon_node.overlay.directory.pairs import unordered
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.workflow.context import Context
from sbon_node.workflow.network_view import LiveNetworkView


class UpdatingView(LiveNetworkView):
    """View for one look at a query: its own measurements, new ones, outrank filtered round-trip times."""

    sparing = True

    def __init__(self, context: Context, query: str, max_age_s: float) -> None:
        super().__init__(context, query)
        self.max_age_s = max_age_s
        self._measured_ms: dict[tuple[str, str], float] = {}

    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        apart = [pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]]
        if new := [pair for pair in apart if unordered(pair) not in self._measured_ms]:
            measured_ms = await super().measure(new)
            self._measured_ms |= {unordered(pair): ms for pair, ms in measured_ms.items()}
        known = {pair: self._measured_ms.get(unordered(pair)) for pair in apart}
        return {pair: ms for pair, ms in known.items() if ms is not None}

    def latency_ms(self, a: str, b: str) -> float:
        known_ms = self._measured_ms.get(unordered((a, b)))
        return super().latency_ms(a, b) if known_ms is None else known_ms

    async def measure_links(self, problem: PlacementProblem, hosts: Mapping[str, str]) -> None:
        """Measure the links between different nodes with the operators on ``hosts``."""
        at = {**problem.pinned, **hosts}
        await self.measure(sorted({(at[e.source], at[e.target]) for e in problem.edges if at[e.source] != at[e.target]}))

"""Resource discovery: which nodes have so much left (OPB, section III.B).

The paper takes such a service for granted. What nodes have in all is gossiped; what they have left is not, as it changes with
every operator, so they are asked, each once for one placement.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sbon_node.placement.network_view import Answer, NetworkView, Window
from sbon_node.placement.problem import PlacementProblem, least
from sbon_node.placement.settings import PlacementSettings


class Discovery:
    """Of one placement; ``count`` is how many windows were asked for. ``cores_of`` tells how many cores a node has in all,
    infinitely many where that is not known: who has too few is not asked."""

    def __init__(self, view: NetworkView, cores_of: Callable[[str], float]) -> None:
        self._view, self._cores_of = view, cores_of
        self._answers: dict[str, Answer] = {}
        self.count = 0

    async def find(self, window: Window) -> dict[str, Answer]:
        """The nodes of the window, the nearest first, where it says near to what."""
        self.count += 1
        nodes = [node for node in self._near(window) if self._cores_of(node) >= window.least_cores][: window.most]
        silent = [node for node in nodes if node not in self._answers]
        self._answers |= await self._view.ask_all(silent, window.needs)
        return {node: answer for node in nodes if _holds(window, answer := self._answers[node])}

    def _near(self, window: Window) -> list[str]:
        nodes = self._view.nodes()
        if not window.near or not nodes:
            return nodes
        away_ms = self._view.latencies_ms(window.near, nodes).min(axis=0).tolist()
        return [node for ms, node in sorted(zip(away_ms, nodes, strict=True)) if ms <= window.within_ms]


def window_of(
    problem: PlacementProblem, settings: PlacementSettings, least_cores: float, below_cores: float = math.inf
) -> Window:
    """Nodes for any operator of the query: with room for what each of its operators needs at least, and no farther from all of
    its ends than the bound on delay."""
    bound = problem.bounds.max_delay_ms
    return Window(
        needs=least([operator.needs for operator in problem.operators]),
        least_cores=least_cores,
        below_cores=below_cores,
        near=tuple(sorted(set(problem.pinned.values()))),
        within_ms=math.inf if bound is None else bound,
        most=settings.discovered,
    )


def _holds(window: Window, answer: Answer) -> bool:
    return answer.accepted and window.least_cores <= answer.room.cores < window.below_cores

"""Resource discovery: the nodes with a given free capacity (OPB, section III.B).

The paper assumes such a service. Gossip carries the total capacity of nodes, but not their free capacity, because that changes
with every operator. So nodes are asked, each once per placement.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sbon_node.placement.model.network_view import NOTHING, Answer, NetworkView, Window
from sbon_node.placement.model.problem import PlacementProblem, least
from sbon_node.placement.model.queueing import Server, busy
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.operators import Needs


class Discovery:
    """Discovery for one placement.

    ``count`` is the number of requested windows. ``cores_of`` returns the total cores of a node, infinite if unknown; nodes with
    too few are not asked.
    """

    def __init__(self, view: NetworkView, cores_of: Callable[[str], float]) -> None:
        self._view, self._cores_of = view, cores_of
        self._answers: dict[str, Answer] = {}
        self.count = 0

    async def find(self, window: Window) -> dict[str, Answer]:
        """Return the nodes of the window, nearest first if it has ``near``."""
        self.count += 1
        nodes = [node for node in self._near(window) if self._cores_of(node) >= window.least_cores][: window.most]
        unanswered = [node for node in nodes if node not in self._answers]
        self._answers |= await self._view.ask_all(unanswered, window.needs)
        answers = {node: answer for node in nodes if (answer := self._answers[node]).accepted}
        return {node: one for node, one in answers.items() if window.least_cores <= one.capacity.cores < window.below_cores}

    def _near(self, window: Window) -> list[str]:
        nodes = self._view.nodes()
        if not window.near or not nodes:
            return nodes
        away_ms = self._view.latencies_ms(window.near, nodes).min(axis=0).tolist()
        return [node for ms, node in sorted(zip(away_ms, nodes, strict=True)) if ms <= window.within_ms]


def window_of(
    problem: PlacementProblem, settings: PlacementSettings, least_cores: float, below_cores: float = math.inf
) -> Window:
    """Return the window of nodes for any operator of the query.

    Its nodes have capacity for the least that any operator needs, and are at most the bound on delay away from the query's
    nearest end.
    """
    bound = problem.bounds.max_delay_ms
    return Window(
        needs=least([operator.needs for operator in problem.operators]),
        least_cores=least_cores,
        below_cores=below_cores,
        near=tuple(sorted(set(problem.pinned.values()))),
        within_ms=math.inf if bound is None else bound,
        most=settings.discovered,
    )


class Offer(NamedTuple):
    """A node's load and free capacity. ``free`` is zero where the node refuses."""

    server: Server
    free: Needs


async def ask_offers(problem: PlacementProblem, view: NetworkView, nodes: Sequence[str]) -> dict[str, Offer]:
    """Probe each node once, for capacity for the least needs of the operators."""
    answers = await view.ask_all(nodes, least([operator.needs for operator in problem.operators]))
    return {
        node: Offer(server_of(problem, answer), answer.capacity if answer.accepted else NOTHING)
        for node, answer in answers.items()
    }


def server_of(problem: PlacementProblem, answer: Answer) -> Server:
    """Return the node's server. If it publishes no flows, its messages are assumed to be like this query's on average."""
    server = answer.server or Server()
    if server.flows:
        return server
    mean_ms = sum(operator.service.mean_ms for operator in problem.operators) / len(problem.operators)
    load = answer.load if answer.other_load is None else answer.other_load
    return busy(load, mean_ms, server.speed)

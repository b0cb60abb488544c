"""Answers to probes for load and capacity, for strategies that weigh both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sbon_node.placement.model.network_view import NOTHING, Answer, NetworkView
from sbon_node.placement.model.problem import PlacementProblem, least
from sbon_node.placement.model.queueing import Server, busy
from sbon_protocol.api.operators import Needs


class Offer(NamedTuple):
    """A node's load and free capacity. ``free`` is zero where the node refuses."""

    server: Server
    free: Needs


async def ask_offers(problem: PlacementProblem, view: NetworkView, nodes: Sequence[str]) -> dict[str, Offer]:
    """Probe each node once, for capacity for the least needs of the operators."""
    answers = await view.ask_all(nodes, least([operator.needs for operator in problem.operators]))
    return {
        node: Offer(
            server=server_of(problem, answer),
            free=answer.capacity if answer.accepted else NOTHING,
        )
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

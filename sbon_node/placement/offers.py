"""What nodes say when they are asked how busy they are, and what they have room for: of strategies that weigh both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sbon_node.engine.interface import Needs
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import PlacementProblem, least
from sbon_node.placement.queueing import Server, busy

NOTHING = Needs(cores=0.0, memory_mb=0.0)


class Offer(NamedTuple):
    """``free`` is nothing where the node refuses."""

    server: Server
    free: Needs


async def ask_offers(problem: PlacementProblem, view: NetworkView, nodes: Sequence[str]) -> dict[str, Offer]:
    """One question to each node, about room for what needs least. Where a node tells its load alone, it is taken to serve
    messages such as this query's are on average."""
    like_ms = sum(operator.service.mean_ms for operator in problem.operators) / len(problem.operators)
    answers = await view.ask_all(nodes, least([operator.needs for operator in problem.operators]))
    return {
        node: Offer(
            server=busy(answer.load, like_ms) if answer.server is None else answer.server,
            free=answer.free if answer.accepted else NOTHING,
        )
        for node, answer in answers.items()
    }

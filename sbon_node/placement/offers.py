"""What nodes say when they are asked how busy they are, and what they have room for: of strategies that weigh both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sbon_node.engine.interface import Needs
from sbon_node.placement.network_view import NOTHING, Answer, NetworkView
from sbon_node.placement.problem import PlacementProblem, least
from sbon_node.placement.queueing import Server, busy


class Offer(NamedTuple):
    """``free`` is nothing where the node refuses."""

    server: Server
    free: Needs


async def ask_offers(problem: PlacementProblem, view: NetworkView, nodes: Sequence[str]) -> dict[str, Offer]:
    """One question to each node, about room for what needs least."""
    answers = await view.ask_all(nodes, least([operator.needs for operator in problem.operators]))
    return {
        node: Offer(
            server=server_of(problem, answer),
            free=answer.room if answer.accepted else NOTHING,
        )
        for node, answer in answers.items()
    }


def server_of(problem: PlacementProblem, answer: Answer) -> Server:
    """What the node serves already. Where it tells its load alone, it is taken to be messages such as this query's are on
    average."""
    if answer.server is not None:
        return answer.server
    return busy(answer.load, sum(operator.service.mean_ms for operator in problem.operators) / len(problem.operators))

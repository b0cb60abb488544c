"""What strategies see of the network while a query that runs is placed again in thought: its own room counts as free."""

from __future__ import annotations

from collections.abc import Mapping

from sbon_node.control.context import Context
from sbon_node.control.view import LiveNetworkView
from sbon_node.engine.interface import Needs
from sbon_node.placement.network_view import Answer
from sbon_node.placement.problem import total


class HeldRoomView(LiveNetworkView):
    """``held`` is what the query's operators need, by their id; each node counts those it says it hosts."""

    def __init__(self, context: Context, held: Mapping[str, Needs]) -> None:
        super().__init__(context)
        self._held = held

    async def ask(self, node: str, needs: Needs) -> Answer:
        answer = await super().ask(node, needs)
        own = [self._held[operator] for operator in answer.operators if operator in self._held]
        if not own:
            return answer
        free = total([answer.free, *own])
        lacking = [name for name in Needs.__struct_fields__ if getattr(needs, name) > getattr(free, name) + 1e-9]
        operators = tuple(operator for operator in answer.operators if operator not in self._held)
        reason = answer.reason if lacking else ""
        return Answer(accepted=not lacking, reason=reason, operators=operators, free=free, load=answer.load)

"""What strategies see of the network while a query is placed in thought: nothing hangs on it, and others go before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from sbon_node.control.context import Context
from sbon_node.control.view import LiveNetworkView
from sbon_node.engine.interface import Needs
from sbon_node.placement.network_view import Answer
from sbon_node.placement.problem import total

T = TypeVar("T")


class HeldRoomView(LiveNetworkView):
    """``held`` is what the operators of a query that runs need, by their id, which counts as free: each node counts those it says
    it hosts. What is measured leaves some for queries that are placed; ``turns`` lets one strategy of many reckon at a time."""

    sparing = True

    def __init__(self, context: Context, held: Mapping[str, Needs], turns: asyncio.Semaphore) -> None:
        super().__init__(context)
        self._held, self._turns = held, turns

    async def compute(self, work: Callable[[], T], /) -> T:
        async with self._turns:
            return await super().compute(work)

    async def ask(self, node: str, needs: Needs) -> Answer:
        answer = await super().ask(node, needs)
        own = [self._held[operator] for operator in answer.operators if operator in self._held]
        if not own:
            return answer
        free = total([answer.room, *own])
        lacking = [name for name in Needs.__struct_fields__ if getattr(needs, name) > getattr(free, name) + 1e-9]
        operators = tuple(operator for operator in answer.operators if operator not in self._held)
        reason = answer.reason if lacking else ""
        return Answer(accepted=not lacking, reason=reason, operators=operators, free=free, load=answer.load)

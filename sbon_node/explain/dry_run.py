"""Network view of strategies in a dry run: changes nothing and yields to real placements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from sbon_node.model.operators import Needs
from sbon_node.placement.model.network_view import Answer
from sbon_node.placement.model.problem import total
from sbon_node.workflow.context import Context
from sbon_node.workflow.network_view import LiveNetworkView

T = TypeVar("T")


class DryRunView(LiveNetworkView):
    """View in which the needs ``held`` by a running query's operators (by id) count as free.

    Each node counts the operators that it says it hosts. Measurements leave a part of the limit for queries that are placed;
    ``turns`` lets one of many strategies compute at a time.
    """

    sparing = True

    def __init__(self, context: Context, reserved: Mapping[str, Needs], turns: asyncio.Semaphore) -> None:
        super().__init__(context)
        self._reserved, self._turns = reserved, turns

    async def compute(self, work: Callable[[], T], /) -> T:
        async with self._turns:
            return await super().compute(work)

    async def ask(self, node: str, needs: Needs) -> Answer:
        answer = await super().ask(node, needs)
        own = [self._reserved[operator] for operator in answer.operators if operator in self._reserved]
        if not own:
            return answer
        free = total([answer.capacity, *own])
        lacking = [name for name in Needs.__struct_fields__ if getattr(needs, name) > getattr(free, name) + 1e-9]
        operators = tuple(operator for operator in answer.operators if operator not in self._reserved)
        reason = answer.reason if lacking else ""
        return Answer(accepted=not lacking, reason=reason, operators=operators, free=free, load=answer.load)

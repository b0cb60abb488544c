"""Network view of strategies in a dry run: changes nothing and yields to real placements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sbon_node.workflow.context import Context
from sbon_node.workflow.network_view import LiveNetworkView

T = TypeVar("T")


class DryRunView(LiveNetworkView):
    """View in which the capacity that the query ``beside`` holds counts as free, if one is named.

    Measurements leave a part of the limit for queries that are placed; ``turns`` lets one of many strategies compute at a time.
    """

    sparing = True

    def __init__(self, context: Context, beside: str, turns: asyncio.Semaphore) -> None:
        super().__init__(context, beside)
        self._turns = turns

    async def compute(self, work: Callable[[], T], /) -> T:
        async with self._turns:
            return await super().compute(work)

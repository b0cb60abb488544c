"""The network as an optimizer sees it: measurements no older than a period, which leave a part of the limit to placements."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import msgspec

from sbon_node.overlay.directory.pairs import unordered
from sbon_node.placement.model.network_view import Answer
from sbon_node.workflow.context import Context
from sbon_node.workflow.network_view import LiveNetworkView
from sbon_protocol.api.operators import Needs

GLANCE_S = 2.0
"""Wait for the answer to a ping at a glance. No setting: without it the neighbour is measured in full."""


class AdaptingView(LiveNetworkView):
    """View for one look: the operator's present host counts as having capacity for it.

    It remembers its own measurements. They are newer than the filtered round-trip times of this node's probes, which need many
    samples to follow a change.
    """

    sparing = True

    def __init__(self, context: Context, max_age_s: float, most_load: float = math.inf, beside: str = "") -> None:
        """Create it; nodes with a load per core above ``most_load`` count as without capacity.

        The capacity that the query ``beside`` holds at other nodes counts as free.
        """
        super().__init__(context, beside)
        self._most_load = most_load
        self._here, self.max_age_s = context.name, max_age_s
        self._measured_ms: dict[tuple[str, str], float] = {}

    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        apart = [pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]]
        measured_ms = await super().measure(apart) if apart else {}
        self._measured_ms |= {unordered(pair): ms for pair, ms in measured_ms.items()}
        return measured_ms

    async def measured_ms(self, node: str, others: Sequence[str]) -> dict[str, float]:
        """Measure and return one-way latencies between ``node`` and others; those that gave no answer are missing."""
        await self.measure([(other, node) if self._here != node else (node, other) for other in others if other != node])
        known = {other: 0.0 if other == node else self._measured_ms.get(unordered((node, other))) for other in others}
        return {other: ms for other, ms in known.items() if ms is not None}

    async def glanced_ms(self, others: Sequence[str]) -> dict[str, float]:
        """Return one-way latencies from this node to others by one ping each; those that gave no answer are missing.

        It costs a third of :meth:`measured_ms`, and shows too much more often: it is enough to see that nothing has grown.
        """
        apart = [other for other in others if other != self._here]
        answers = await asyncio.gather(*(self._context.membership.ping(other, GLANCE_S) for other in apart))
        found = {other: answer.rtt_ms / 2 for other, answer in zip(apart, answers, strict=True) if answer is not None}
        return found | {other: 0.0 for other in others if other == self._here}

    async def ask(self, node: str, needs: Needs) -> Answer:
        if node == self._here:
            return Answer(accepted=True)
        answer = await super().ask(node, needs)
        if answer.accepted and answer.load > self._most_load:
            return msgspec.structs.replace(answer, accepted=False, reason=f"its load is {answer.load:.1f} per core")
        return answer

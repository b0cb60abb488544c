"""Rumours on their way: each is sent a bounded number of times, the least sent ones first (SWIM, section 4.1). Pure."""

from __future__ import annotations

import heapq
import math

from sbon_protocol.messages import Member

MAX_DUE = 64
"""No datagram carries more rumours."""


class GossipQueue:
    """At most one rumour for each node, so it is bounded as the table is: a newer one replaces it and starts again."""

    def __init__(self, retransmit_factor: float) -> None:
        self._factor = retransmit_factor
        self._sent: dict[str, tuple[int, Member]] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def spread(self, rumour: Member) -> None:
        self._sent[rumour.name] = (0, rumour)

    def forget(self, name: str) -> None:
        self._sent.pop(name, None)

    def limit(self, members: int) -> int:
        """How often a rumour is sent in a cluster of so many: ceil(factor x log2(n + 1)), at least once (SWIM, section 4.1)."""
        return max(1, math.ceil(self._factor * math.log2(members + 1)))

    def due(self) -> list[Member]:
        """What the next datagram should carry, the most urgent first."""
        return [rumour for _, rumour in heapq.nsmallest(MAX_DUE, self._sent.values(), key=lambda s: (s[0], s[1].name))]

    def sent(self, rumours: list[Member], members: int) -> None:
        """These have been sent once more, in a cluster of so many members."""
        limit = self.limit(members)
        for rumour in rumours:
            times, current = self._sent.get(rumour.name, (0, None))
            if current is not rumour:
                continue
            if times + 1 >= limit:
                del self._sent[rumour.name]
            else:
                self._sent[rumour.name] = (times + 1, rumour)

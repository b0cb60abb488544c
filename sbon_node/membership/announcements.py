"""When all others are told that this node has moved in the cost space. Pure.

Coordinates move a little with every measurement, and never at rest; to tell everybody each time would cost more than all else. So
a new version is told once the coordinate is ``place_step_ms`` away from the one told last, and not before
min(``place_pause_s`` x n, as long as this node has run) seconds have passed since: after a start at 1, 2, 4, 8 ... seconds, later
as often as a cluster of n bears.
"""

from __future__ import annotations

import math

from sbon_node.membership.settings import MembershipSettings
from sbon_protocol.messages import Coordinate

FIRST_PAUSE_S = 1.0


class Announcements:
    def __init__(self, settings: MembershipSettings) -> None:
        self._settings = settings
        self._told: Coordinate | None = None
        self._began: float | None = None
        self._told_at = -math.inf

    def settled(self, coordinate: Coordinate, told_at: float) -> None:
        """As if this node had run for ever, and told this coordinate then."""
        self._began, self._told, self._told_at = -math.inf, coordinate, told_at

    def due(self, coordinate: Coordinate, now: float, members: int) -> bool:
        """Whether this coordinate is worth telling; it counts as told then."""
        if self._began is None:
            self._began = now
        pause_s = min(self._settings.place_pause_s * members, max(FIRST_PAUSE_S, self._told_at - self._began))
        if now - self._told_at < pause_s:
            return False
        if self._told is not None and _moved_ms(self._told, coordinate) < self._settings.place_step_ms:
            return False
        self._told, self._told_at = coordinate, now
        return True


def _moved_ms(a: Coordinate, b: Coordinate) -> float:
    if len(a.vector) != len(b.vector):
        return math.inf
    return math.dist(a.vector, b.vector) + abs(a.height - b.height) + abs(a.load - b.load)

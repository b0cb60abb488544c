"""The coordinate throttle: limits how often this node publishes its coordinate. Pure.

Coordinates move a little with every measurement, and never rest; to publish each move would cost more than all other traffic.
So a new version is published once the coordinate is ``coordinate_step_ms`` away from the last published one, and not before
min(``coordinate_pause_s`` x n, time since this node's start) seconds have passed since: after a start at 1, 2, 4, 8 ...
seconds, later at a rate that a cluster of n bears.
"""

from __future__ import annotations

import math

from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_protocol.messages import Coordinate

FIRST_PAUSE_S = 1.0


class CoordinateThrottle:
    def __init__(self, settings: MembershipSettings) -> None:
        self._settings = settings
        self._published: Coordinate | None = None
        self._began: float | None = None
        self._published_at = -math.inf

    def due(self, coordinate: Coordinate, now: float, members: int) -> bool:
        """Return whether to publish this coordinate; it then counts as published."""
        if self._began is None:
            self._began = now
        pause_s = min(self._settings.coordinate_pause_s * members, max(FIRST_PAUSE_S, self._published_at - self._began))
        if now - self._published_at < pause_s:
            return False
        if self._published is not None and _moved_ms(self._published, coordinate) < self._settings.coordinate_step_ms:
            return False
        self._published, self._published_at = coordinate, now
        return True


def _moved_ms(a: Coordinate, b: Coordinate) -> float:
    return math.dist(a.vector, b.vector) + abs(a.height - b.height) + abs(a.load - b.load)

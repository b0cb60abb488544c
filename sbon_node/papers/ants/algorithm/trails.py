"""A node's memory of the ants that it has passed on, by which they find back.

An ant that returns is taken only from the node to which it was sent, and once. So nobody can lay pheromone, or report a
placement, for a path on which no ant has gone.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

AntId = tuple[int, int]
"""The round of an ant and its number in it."""


class Trail(NamedTuple):
    """An ant's way through this node: where it came from, where it went, and the time of that hop.

    ``age_ms`` was its age when it first arrived here, ``began`` the time.
    """

    came_from: str
    went_to: str
    destination: str
    hop_ms: float
    age_ms: float
    began: float


class Trails:
    """At most ``most`` trails, each for ``kept`` units of the caller's clock; the oldest go first."""

    def __init__(self, most: int, kept: float) -> None:
        self._most, self._kept = most, kept
        self._trails: OrderedDict[AntId, Trail] = OrderedDict()

    def __len__(self) -> int:
        return len(self._trails)

    def get(self, ant: AntId, now: float) -> Trail | None:
        trail = self._trails.get(ant)
        return trail if trail is not None and now - trail.began <= self._kept else None

    def put(self, ant: AntId, trail: Trail) -> None:
        """Remember a trail; that of an ant which comes again keeps its place."""
        self._trails[ant] = trail
        while len(self._trails) > self._most or self._outdated(trail.began):
            self._trails.popitem(last=False)

    def take_back(self, ant: AntId, sender: str, now: float) -> Trail | None:
        """Return and forget the trail of an ant that returns from ``sender``; None if it was not sent there."""
        trail = self.get(ant, now)
        if trail is None or trail.went_to != sender:
            return None
        del self._trails[ant]
        return trail

    def _outdated(self, now: float) -> bool:
        return now - next(iter(self._trails.values())).began > self._kept

"""Queues of rumours: each is sent a bounded number of times, the least sent ones first (SWIM, section 4.1). Pure."""

import math
from collections.abc import Sequence
from itertools import chain, islice

from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_protocol.messages import Coordinate, Rumour

MAX_DUE = 64
"""Most rumours of a kind in one datagram."""


class GossipQueue:
    """At most one rumour of a kind for each node, so the table bounds it; a newer one replaces it and starts again.

    *News* are worth datagrams of their own. *Passengers* (coordinates, confirmations) travel where room is left, and less often.
    """

    def __init__(self, retransmit_margin: float, coordinate_factor: float = 0.3) -> None:
        self._news, self._passengers = _Queue(), _Queue()
        self._margin, self._factor = retransmit_margin, coordinate_factor

    def __len__(self) -> int:
        """The number of news."""
        return len(self._news)

    def __contains__(self, name: str) -> bool:
        return name in self._news

    def spread(self, rumour: Rumour) -> None:
        self._news.put(rumour)

    def piggyback(self, rumour: Rumour) -> None:
        self._passengers.put(rumour)

    def forget(self, name: str) -> None:
        self._news.drop(name)
        self._passengers.drop(name)

    def limit(self, members: int) -> int:
        """Return how often each node sends news: ceil(ln(n + 1) + margin).

        After c sendings by each, to members drawn at random, about n x exp(-c) have not heard it (SWIM, section 4.1).
        """
        return max(1, math.ceil(math.log(members + 1) + self._margin))

    def due(self) -> list[Rumour]:
        """Return the rumours for the next datagram, the most urgent first."""
        return self._news.first(MAX_DUE) + self._passengers.first(MAX_DUE)

    def sent(self, rumours: Sequence[Rumour], members: int) -> None:
        """Note that these have been sent once more, in a cluster of so many members."""
        if rumours:
            news, passengers = self.limit(members), max(1, math.ceil(self._factor * math.log2(members + 1)))
            for rumour in rumours:
                if not self._news.sent(rumour, news):
                    self._passengers.sent(rumour, passengers)


class _Queue:
    """Rumours by number of sendings, then in order of arrival."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._levels: list[dict[str, Rumour]] = [{}]

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, name: str) -> bool:
        return name in self._times

    def put(self, rumour: Rumour) -> None:
        self.drop(rumour.name)
        self._times[rumour.name] = 0
        self._levels[0][rumour.name] = rumour

    def drop(self, name: str) -> None:
        times = self._times.pop(name, None)
        if times is not None:
            del self._levels[times][name]

    def first(self, most: int) -> list[Rumour]:
        return list(islice(chain.from_iterable(level.values() for level in self._levels), most)) if self._times else []

    def sent(self, rumour: Rumour, limit: int) -> bool:
        """Count one sending of the rumour; return whether it is in this queue."""
        name = rumour.name
        times = self._times.get(name)
        if times is None or self._levels[times][name] is not rumour:
            return False
        del self._levels[times][name]
        if times + 1 >= limit:
            del self._times[name]
            return True
        if len(self._levels) == times + 1:
            self._levels.append({})
        self._times[name] = times + 1
        self._levels[times + 1][name] = rumour
        return True


FIRST_PAUSE_S = 1.0
SUDDEN_MS = 25.0
"""Change of the load, as a distance in the cost space, that is published early: half a runnable process per core by default."""


class CoordinateThrottle:
    """Limits how often this node publishes its coordinate.

    Coordinates move a little with every measurement, and never rest; to publish each move would cost more than all other traffic.
    So a new version is published once the coordinate is ``coordinate_step_ms`` away from the last published one, and not before
    min(``coordinate_pause_s`` x n, time since this node's start) seconds have passed since: after a start at 1, 2, 4, 8 ...
    seconds, later at a rate that a cluster of n bears. A sudden change of load is published at once, unless the last one was, and
    counts as published when it would have been due: so the rate is the same.
    """

    def __init__(self, settings: MembershipSettings) -> None:
        self._settings = settings
        self._published: Coordinate | None = None
        self._began: float | None = None
        self._counted_at = -math.inf

    def due(self, coordinate: Coordinate, now: float, members: int) -> bool:
        """Return whether to publish this coordinate; it then counts as published."""
        if self._began is None:
            self._began = now
        pause_s = min(self._settings.coordinate_pause_s * members, max(FIRST_PAUSE_S, self._counted_at - self._began))
        sudden = self._published is not None and abs(coordinate.load - self._published.load) >= SUDDEN_MS
        if now - self._counted_at < (0.0 if sudden else pause_s):
            return False
        if self._published is not None and _moved_ms(self._published, coordinate) < self._settings.coordinate_step_ms:
            return False
        self._published, self._counted_at = coordinate, max(now, self._counted_at + pause_s) if sudden else now
        return True


def _moved_ms(a: Coordinate, b: Coordinate) -> float:
    return math.dist(a.vector, b.vector) + abs(a.height - b.height) + abs(a.load - b.load)

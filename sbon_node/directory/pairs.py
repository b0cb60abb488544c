"""What is known of round-trip times between pairs of nodes, and for how long. Pure: told the time."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

Pair = tuple[str, str]
"""Two nodes by name. A round trip is as long from either end, so the order only says who is asked to measure it."""


class Measurement(msgspec.Struct, frozen=True):
    """``rtt_ms`` in milliseconds, the least of some pings by the node ``by``; ``at`` in seconds of this node's clock."""

    rtt_ms: float
    by: str
    at: float


class MeasuredPairs:
    """The newest measurement of each pair; of more than ``limit`` pairs the least used goes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: OrderedDict[Pair, Measurement] = OrderedDict()

    def put(self, pair: Pair, measurement: Measurement) -> None:
        """Keeps it, unless a later one is known."""
        key = unordered(pair)
        known = self._found.get(key)
        if known is None or known.at <= measurement.at:
            self._found[key] = measurement
        self._found.move_to_end(key)
        while len(self._found) > self._limit:
            self._found.popitem(last=False)

    def get(self, pair: Pair, max_age_s: float, now: float) -> Measurement | None:
        """Where there is one of at most that age."""
        key = unordered(pair)
        found = self._found.get(key)
        if found is None or now - found.at > max_age_s:
            return None
        self._found.move_to_end(key)
        return found

    def fresh(self, max_age_s: float, now: float) -> list[tuple[Pair, Measurement]]:
        """All of at most that age; none counts as used by that."""
        return [(pair, found) for pair, found in self._found.items() if now - found.at <= max_age_s]

    def forget(self, node: str) -> None:
        """It has another way to everybody, perhaps: it died, left or moved."""
        for key in [key for key in self._found if node in key]:
            del self._found[key]


def unordered(pair: Pair) -> Pair:
    a, b = pair
    return (a, b) if a <= b else (b, a)

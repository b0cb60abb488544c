"""Measured round-trip times between pairs of nodes, and their age. Pure: takes the time."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

Pair = tuple[str, str]
"""Two nodes by name. A round trip is as long from either end, so the order only says which node measures it."""


class Measurement(msgspec.Struct, frozen=True):
    """A measurement: ``rtt_ms`` in milliseconds, the least of some pings by ``by``; ``at`` in seconds of this node's clock."""

    rtt_ms: float
    by: str
    at: float


class MeasuredPairs:
    """The newest measurement of each pair; beyond ``limit`` pairs the least recently used is dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: OrderedDict[Pair, Measurement] = OrderedDict()

    def put(self, pair: Pair, measurement: Measurement) -> None:
        """Store the measurement, unless a later one is known."""
        key = unordered(pair)
        known = self._found.get(key)
        if known is None or known.at <= measurement.at:
            self._found[key] = measurement
        self._found.move_to_end(key)
        while len(self._found) > self._limit:
            self._found.popitem(last=False)

    def get(self, pair: Pair, max_age_s: float, now: float) -> Measurement | None:
        """Return a pair's measurement of at most that age, or None."""
        key = unordered(pair)
        result = self._found.get(key)
        if result is None or now - result.at > max_age_s:
            return None
        self._found.move_to_end(key)
        return result

    def fresh(self, max_age_s: float, now: float) -> list[tuple[Pair, Measurement]]:
        """Return all measurements of at most that age, without counting them as used."""
        return [(pair, result) for pair, result in self._found.items() if now - result.at <= max_age_s]

    def forget(self, node: str) -> None:
        """Forget all pairs of a node that died, left or moved: its paths may have changed."""
        for key in [key for key in self._found if node in key]:
            del self._found[key]


def unordered(pair: Pair) -> Pair:
    a, b = pair
    return (a, b) if a <= b else (b, a)

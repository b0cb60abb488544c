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
        self._results: OrderedDict[Pair, Measurement] = OrderedDict()

    def put(self, pair: Pair, measurement: Measurement) -> None:
        """Store the measurement, unless a later one is known."""
        key = unordered(pair)
        known = self._results.get(key)
        if known is None or known.at <= measurement.at:
            self._results[key] = measurement
        self._results.move_to_end(key)
        while len(self._results) > self._limit:
            self._results.popitem(last=False)

    def get(self, pair: Pair, max_age_s: float, now: float) -> Measurement | None:
        """Return a pair's measurement of at most that age, or None."""
        key = unordered(pair)
        result = self._results.get(key)
        if result is None or now - result.at > max_age_s:
            return None
        self._results.move_to_end(key)
        return result

    def fresh(self, max_age_s: float, now: float) -> list[tuple[Pair, Measurement]]:
        """Return all measurements of at most that age, without counting them as used."""
        return [(pair, result) for pair, result in self._results.items() if now - result.at <= max_age_s]

    def forget(self, node: str) -> None:
        """Forget all pairs of a node that died, left or moved: its paths may have changed."""
        for key in [key for key in self._results if node in key]:
            del self._results[key]


def unordered(pair: Pair) -> Pair:
    a, b = pair
    return (a, b) if a <= b else (b, a)

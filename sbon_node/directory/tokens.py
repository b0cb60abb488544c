"""A bucket of tokens: so much at once, so much a second in the long run. Pure: told the time."""

from __future__ import annotations

import math


class TokenBucket:
    """Holds at most ``capacity`` tokens, full at first, and gains ``rate_s`` a second."""

    def __init__(self, capacity: int, rate_s: float) -> None:
        self._capacity, self._rate_s = capacity, rate_s
        self._tokens, self._told = float(capacity), -math.inf

    def take(self, count: int, now: float) -> float:
        """Takes ``count`` (at most the capacity) where they are there, and returns 0; else none, and after how many seconds they
        will be."""
        self._tokens = min(self._capacity, self._tokens + (now - self._told) * self._rate_s)
        self._told = now
        lacking = count - self._tokens
        if lacking > 1e-9:
            return lacking / self._rate_s
        self._tokens -= count
        return 0.0

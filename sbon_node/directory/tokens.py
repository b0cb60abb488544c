"""Buckets of tokens: so much at once, so much a second in the long run. Pure: told the time."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable


class TokenBucket:
    """Holds at most ``capacity`` tokens, full at first, and gains ``rate_s`` a second."""

    def __init__(self, capacity: int, rate_s: float) -> None:
        self._capacity, self._rate_s = capacity, rate_s
        self._tokens, self._told = float(capacity), -math.inf

    def take(self, count: int, now: float, keep: int = 0) -> float:
        """Takes ``count`` (with ``keep`` at most the capacity) where they are there and ``keep`` beside, which stay, and returns
        0; else none, and after how many seconds they will be."""
        again_s = self.lacks_s(count + keep if count else 0, now)
        if again_s == 0.0:
            self._tokens -= count
        return again_s

    def lacks_s(self, count: int, now: float) -> float:
        """What :meth:`take` would return; nothing is taken."""
        self._tokens = min(self._capacity, self._tokens + (now - self._told) * self._rate_s)
        self._told = now
        lacking = count - self._tokens
        return lacking / self._rate_s if lacking > 1e-9 else 0.0


class TokenBuckets:
    """A bucket for each asker and one for all together. Of more than ``most`` askers the one that asked longest ago is forgotten;
    whoever comes under ever new names is held by the bucket of all."""

    def __init__(self, *, whole: TokenBucket, each: Callable[[], TokenBucket], most: int) -> None:
        self._whole, self._new, self._most = whole, each, most
        self._each: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        """Askers that are remembered."""
        return len(self._each)

    def take(self, asker: str, count: int, now: float) -> float:
        """As :meth:`TokenBucket.take`: of both or of none."""
        own = self._each.setdefault(asker, self._new())
        self._each.move_to_end(asker)
        while len(self._each) > self._most:
            self._each.popitem(last=False)
        again_s = max(own.lacks_s(count, now), self._whole.lacks_s(count, now))
        return again_s or max(own.take(count, now), self._whole.take(count, now))

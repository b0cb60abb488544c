"""Token buckets: limits of a burst and of a long-run rate. Pure: takes the time."""

import math
from collections import OrderedDict
from collections.abc import Callable


class TokenBucket:
    """At most ``capacity`` tokens, full at first, refilled with ``rate_s`` a second."""

    def __init__(self, capacity: int, rate_s: float) -> None:
        self._capacity, self._rate_s = capacity, rate_s
        self._tokens, self._counted_at = float(capacity), -math.inf

    def take(self, count: int, now: float, keep: int = 0) -> float:
        """Take ``count`` tokens and return 0; if there are too few, take none and return the seconds to wait.

        ``keep`` tokens must stay; ``count`` and ``keep`` together are at most the capacity.
        """
        again_s = self.lacks_s(count + keep if count else 0, now)
        if again_s == 0.0:
            self._tokens -= count
        return again_s

    def lacks_s(self, count: int, now: float) -> float:
        """Return the result of :meth:`take` without taking tokens."""
        self._tokens = min(self._capacity, self._tokens + (now - self._counted_at) * self._rate_s)
        self._counted_at = now
        lacking = count - self._tokens
        return lacking / self._rate_s if lacking > 1e-9 else 0.0


class TokenBuckets:
    """A bucket for each asker, and with ``whole`` another for all together.

    Beyond ``most`` askers the one that asked longest ago is forgotten, and begins again with a full bucket; the common bucket
    limits an asker with ever new names.
    """

    def __init__(self, *, each: Callable[[], TokenBucket], most: int, whole: TokenBucket | None = None) -> None:
        self._whole, self._new, self._most = whole, each, most
        self._each: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        """The number of remembered askers."""
        return len(self._each)

    def take(self, asker: str, count: int, now: float) -> float:
        """Take tokens as :meth:`TokenBucket.take`, from both buckets or none."""
        own = self._each.setdefault(asker, self._new())
        self._each.move_to_end(asker)
        while len(self._each) > self._most:
            self._each.popitem(last=False)
        limits = [own] if self._whole is None else [own, self._whole]
        again_s = max(bucket.lacks_s(count, now) for bucket in limits)
        return again_s or max(bucket.take(count, now) for bucket in limits)

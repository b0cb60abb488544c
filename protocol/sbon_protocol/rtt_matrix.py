"""Timeouts in matrices of round-trip times, for all readers: a node, the local cluster or an experiment."""

import numpy as np
from numpy.typing import NDArray

MAX_RTT_MS = 60_000
"""A longer time is a timeout, not a round trip; many of them suggest another unit."""
MAX_TIMEOUTS = 0.1
"""Largest share of a file's times that may be timeouts."""


def without_timeouts(times_ms: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Return the times with NaN for those above :data:`MAX_RTT_MS`, and their number.

    Raises ``ValueError`` if they exceed the share :data:`MAX_TIMEOUTS` of all finite times.
    """
    known = np.isfinite(times_ms)
    timeouts = known & (times_ms > MAX_RTT_MS)
    count = int(timeouts.sum())
    if count > MAX_TIMEOUTS * known.sum():
        longest_ms = times_ms[timeouts].max()
        raise ValueError(f"{count:,} of {known.sum():,} times are above {MAX_RTT_MS:,} ms, the longest {longest_ms:g} ms")
    return np.where(timeouts, np.nan, times_ms), count


def timeouts_text(count: int) -> str:
    """Return a text for people; empty for none."""
    times = "1 time" if count == 1 else f"{count:,} times"
    return f"{times} above {MAX_RTT_MS // 1000} s counted as missing" if count else ""

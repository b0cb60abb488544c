"""The moving percentile filter (SBON, section 3.1.1; Ledlie et al.): of a link's last samples pass on a low percentile.

Queueing only ever adds to a round-trip time, so low samples tell the network's latency and high ones its moment.
"""

from __future__ import annotations

from collections import deque


class PercentileFilter:
    """Of one link. ``value`` is the ``percentile``-th of the last ``samples`` (linear interpolation), milliseconds."""

    def __init__(self, samples: int, percentile: float) -> None:
        self._samples: deque[float] = deque(maxlen=samples)
        self._percentile = percentile

    def add(self, rtt_ms: float) -> float:
        self._samples.append(rtt_ms)
        return self.value

    @property
    def value(self) -> float:
        """Raises ``IndexError`` before the first sample."""
        ordered = sorted(self._samples)
        position = (len(ordered) - 1) * self._percentile / 100
        below = int(position)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (position - below)

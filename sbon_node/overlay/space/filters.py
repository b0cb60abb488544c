"""Filter that reduces a link's last samples to one credible value.

Queueing only ever adds to a round-trip time: low samples show the network's latency and high ones its present queues, so a low
percentile is right. Where noise goes both ways a low percentile is too low on every link, by 7 % under noise of 10 %, and more
neighbours do not help; there the median is right. The samples' own skewness tells the two apart: too roughly for the samples of
a single link, well for those of all links of a node.
"""

from collections import deque
from collections.abc import Sequence

ENOUGH = 3
"""Fewest samples of a link for an estimate of its skewness."""
MEMORY = 100
"""Samples over which the node's skewness is averaged, whatever their links."""
SUPPOSED = 4
"""Weight, in samples, of a new node's assumption of queueing; a few turns of its links must refute it."""
QUEUEING = 0.25
"""Skewness from which on the low percentile is used. Exponential samples have 0.3 in the mean."""
MIDDLE = 50.0


class Percentile:
    """The percentile that all links of a node use.

    It is ``low`` where only queueing disturbs samples (SBON, section 3.1.1; Ledlie et al.). With ``adaptive`` it is the nearer
    to the median the less skewed the samples are.

    Skewness is Bowley's, at the outer fifths: (q80 + q20 - 2 q50) / (q80 - q20), within [-1, 1], whatever a peer does.
    """

    def __init__(self, low: float, *, adaptive: bool) -> None:
        self._low, self._adaptive = low, adaptive
        self._skewness = QUEUEING
        self._learned = SUPPOSED

    @property
    def value(self) -> float:
        if not self._adaptive or self._low >= MIDDLE:
            return self._low
        symmetric = min(max(1 - self._skewness / QUEUEING, 0.0), 1.0)
        return self._low + (MIDDLE - self._low) * symmetric

    def learn(self, ordered: Sequence[float]) -> None:
        """Update the skewness from the samples of one link, ascending."""
        if self._adaptive and len(ordered) >= ENOUGH:
            low, middle, high = (percentile(ordered, percent) for percent in (20.0, MIDDLE, 80.0))
            skewness = (high + low - 2 * middle) / (high - low) if high > low else 0.0
            self._learned = min(self._learned + 1, MEMORY)
            self._skewness += (min(max(skewness, -1.0), 1.0) - self._skewness) / self._learned


class LinkFilter:
    """The filter of one link, over its last ``samples``."""

    def __init__(self, samples: int, percentile: Percentile) -> None:
        self._samples: deque[float] = deque(maxlen=samples)
        self._percentile = percentile

    def add(self, rtt_ms: float) -> float:
        """Add a sample; return the new value in milliseconds."""
        self._samples.append(rtt_ms)
        ordered = sorted(self._samples)
        self._percentile.learn(ordered)
        return percentile(ordered, self._percentile.value)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of ascending values by linear interpolation. Raises ``IndexError`` for no values."""
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)

"""Of a link's last samples, the one number that is believed.

Queueing only ever adds to a round-trip time, so under it low samples tell the network's latency and high ones its moment: a low
percentile is right. Where noise goes both ways a low percentile is too low on every link, by 7 % under noise of 10 %, and no
number of neighbours mends that; there the middle is right. Which it is, the samples' own skewness tells: too roughly those of
one link, well those of all of a node's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

ENOUGH = 3
"""Samples of a link that its skewness is taken of."""
MEMORY = 100
"""Samples of any links that the node's skewness looks back on, in the mean."""
SUPPOSED = 4
"""Samples that the queueing a new node supposes counts as much as: few turns of its links must do to see that there is none."""
QUEUEING = 0.25
"""Skewness from which on the low percentile is taken. That of exponential ones is 0.3 in the mean."""
MIDDLE = 50.0


class Percentile:
    """Which one the links of a node take: ``low`` where only queueing disturbs samples (SBON, section 3.1.1; Ledlie et al.), and
    with ``adaptive`` the nearer to the median the less skewed they are.

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
        """From the samples of one link, ascending."""
        if self._adaptive and len(ordered) >= ENOUGH:
            low, middle, high = (percentile(ordered, percent) for percent in (20.0, MIDDLE, 80.0))
            skewness = (high + low - 2 * middle) / (high - low) if high > low else 0.0
            self._learned = min(self._learned + 1, MEMORY)
            self._skewness += (min(max(skewness, -1.0), 1.0) - self._skewness) / self._learned


class LinkFilter:
    """Of one link; looks back on the last ``samples``."""

    def __init__(self, samples: int, percentile: Percentile) -> None:
        self._samples: deque[float] = deque(maxlen=samples)
        self._percentile = percentile

    def add(self, rtt_ms: float) -> float:
        """The new value, milliseconds."""
        self._samples.append(rtt_ms)
        ordered = sorted(self._samples)
        self._percentile.learn(ordered)
        return percentile(ordered, self._percentile.value)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """With linear interpolation, of ascending values. Raises ``IndexError`` where there are none."""
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)

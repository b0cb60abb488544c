"""Rows and bytes a second, averaged with less weight for the distant past."""

from typing import NamedTuple

HALF_LIFE_S = 30.0
FORGOTTEN = 10
"""Half-lives of silence after which a present rate is 0."""


class PresentRate(NamedTuple):
    """Rows and bytes a second, None before the first interval."""

    rows_s: float | None
    bytes_s: float | None


class MeanRate:
    """A mean rate over all observed seconds, whose weight halves every ``half_life_s``; takes the time in seconds.

    The first observation only begins the count, since the time it took to gather is unknown. So does the first after a declared
    pause (:meth:`pause`); any other silence is time without rows.
    """

    def __init__(self, half_life_s: float = HALF_LIFE_S) -> None:
        self._half_life_s = half_life_s
        self._last: float | None = None
        self._observed = 0.0
        self._seconds = self._rows = self._bytes = 0.0

    def observe(self, now: float, rows: int, size: int) -> None:
        """Add the rows and bytes that have come since the last observation."""
        if self._last is not None and now > self._last:
            elapsed = now - self._last
            weight = 0.5 ** (elapsed / self._half_life_s)
            self._seconds = self._seconds * weight + elapsed
            self._rows, self._bytes = self._rows * weight, self._bytes * weight
        if self._last is not None:
            self._rows, self._bytes = self._rows + rows, self._bytes + size
        self._last = self._observed = now

    def pause(self) -> None:
        """Leave out the time until the next observation, and that observation."""
        self._last = None

    def at_present(self, now: float) -> PresentRate:
        """Return the rate for people: as if nothing had come since the last observation, in a pause too."""
        if not self._seconds:
            return PresentRate(None, None)
        silent = max(0.0, now - self._observed)
        if silent >= FORGOTTEN * self._half_life_s:
            return PresentRate(0.0, 0.0)
        weight = 0.5 ** (silent / self._half_life_s)
        seconds = self._seconds * weight + silent
        return PresentRate(self._rows * weight / seconds, self._bytes * weight / seconds)

    @property
    def rows_s(self) -> float | None:
        """The rows a second over the observed time, as a plan expects them; None before the first interval."""
        return self._rows / self._seconds if self._seconds else None

    @property
    def bytes_s(self) -> float | None:
        return self._bytes / self._seconds if self._seconds else None

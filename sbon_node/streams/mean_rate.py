"""Rows and bytes a second, averaged with less weight for the distant past."""

from __future__ import annotations

HALF_LIFE_S = 30.0


class MeanRate:
    """A mean rate over all observed seconds, whose weight halves every ``half_life_s``; takes the time in seconds.

    The first observation only begins the count, since the time it took to gather is unknown. So does the first after a declared
    pause (:meth:`pause`); any other silence is time without rows.
    """

    def __init__(self, half_life_s: float = HALF_LIFE_S) -> None:
        self._half_life_s = half_life_s
        self._last: float | None = None
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
        self._last = now

    def pause(self) -> None:
        """Leave out the time until the next observation, and that observation."""
        self._last = None

    @property
    def rows_s(self) -> float | None:
        """The rows a second; None before the first interval."""
        return self._rows / self._seconds if self._seconds else None

    @property
    def bytes_s(self) -> float | None:
        return self._bytes / self._seconds if self._seconds else None

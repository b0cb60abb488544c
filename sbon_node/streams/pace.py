"""How much flows: rows and bytes a second, of which the seconds long past count less."""

from __future__ import annotations

HALF_LIFE_S = 30.0


class Pace:
    """A mean over all seconds observed, whose weight halves every ``half_life_s``; told the time in seconds.

    What is first observed only begins the count: nobody knows how long it took to gather. So does what comes after a pause that
    was told (:meth:`pause`); a silence that was not told is time without rows.
    """

    def __init__(self, half_life_s: float = HALF_LIFE_S) -> None:
        self._half_life_s = half_life_s
        self._last: float | None = None
        self._seconds = self._rows = self._bytes = 0.0

    def observe(self, now: float, rows: int, size: int) -> None:
        """So many rows and bytes have come since the last time."""
        if self._last is not None and now > self._last:
            elapsed = now - self._last
            kept = 0.5 ** (elapsed / self._half_life_s)
            self._seconds = self._seconds * kept + elapsed
            self._rows, self._bytes = self._rows * kept, self._bytes * kept
        if self._last is not None:
            self._rows, self._bytes = self._rows + rows, self._bytes + size
        self._last = now

    def pause(self) -> None:
        """The time until what comes next is not counted, and neither is that."""
        self._last = None

    @property
    def rows_s(self) -> float | None:
        """None before there is anything to tell."""
        return self._rows / self._seconds if self._seconds else None

    @property
    def bytes_s(self) -> float | None:
        return self._bytes / self._seconds if self._seconds else None

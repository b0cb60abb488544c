"""Measurements over time: dense for recent times, sparse for earlier ones. Bounded and pure."""

from collections import deque
from typing import Generic, Protocol, TypeVar

OLDER_APART_MS = 30_000
"""Least time between two older points."""
OLDER_POINTS = 120
"""With ``OLDER_APART_MS`` between them, these points cover an hour."""
OLDEST_POINTS = 120
"""Most points of the time before that hour, if the whole time is kept."""


class Dated(Protocol):
    @property
    def at_ms(self) -> int: ...


P = TypeVar("P", bound=Dated)


class TimeSeries(Generic[P]):
    """Points over time: all of the ``recent`` newest, and of the hour before, a point every 30 seconds.

    Earlier points are deleted or, with ``complete``, thinned to at most 120: when there are more, every second point is deleted,
    and only every second point is added from then on.
    """

    def __init__(self, recent: int, *points: P, complete: bool = False) -> None:
        self._recent: deque[P] = deque()
        self._older: deque[P] = deque()
        self._oldest: list[P] = []
        self._most, self._complete = recent, complete
        self._offered, self._every = 0, 1
        for point in points:
            self.add(point)

    def points(self, after_ms: int = -1) -> list[P]:
        """Return the points later than ``after_ms``, the oldest first."""
        return [point for points in (self._oldest, self._older, self._recent) for point in points if point.at_ms > after_ms]

    def add(self, point: P) -> None:
        self._recent.append(point)
        if len(self._recent) <= self._most:
            return
        aged = self._recent.popleft()
        # A clock that was set back must not stop the recording.
        if self._older and abs(aged.at_ms - self._older[-1].at_ms) < OLDER_APART_MS:
            return
        self._older.append(aged)
        if len(self._older) > OLDER_POINTS:
            self._age(self._older.popleft())

    def _age(self, point: P) -> None:
        if not self._complete:
            return
        if self._offered % self._every == 0:
            self._oldest.append(point)
        self._offered += 1
        if len(self._oldest) > OLDEST_POINTS:
            self._oldest, self._every = self._oldest[::2], 2 * self._every

    def __len__(self) -> int:
        return len(self._oldest) + len(self._older) + len(self._recent)


def thinned(points: list[P], most: int) -> list[P]:
    """Return at most ``most`` points, evenly spaced, with the first and the last among them."""
    if len(points) <= most:
        return points
    return [points[i * (len(points) - 1) // (most - 1)] for i in range(most)]

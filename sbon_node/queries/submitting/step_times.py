"""Times of the steps of a submission."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from sbon_node.base.clock import Clock


class StepTimes:
    """Adds up the seconds of named steps. A step inside another counts for itself only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the body. Bodies nest, but do not run side by side."""
        began_s = self._clock.now()
        self._inside.append(0.0)
        try:
            yield
        finally:
            took_s = self._clock.now() - began_s
            self._seconds[name] += took_s - self._inside.pop()
            if self._inside:
                self._inside[-1] += took_s

    def seconds(self) -> dict[str, float]:
        return dict(self._seconds)

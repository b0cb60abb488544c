"""Spark's watermark of a query with several inputs: ``WatermarkTracker``, including its loss of state at a restart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sbon_node.engine.promise import reached_ms
from sbon_node.model.frames import InputOffset
from sbon_node.model.operators import InputSpec


class Watermarks:
    """Watermarks from one start of an operator to its end.

    A restart forgets the watermark of each input, which is then 1970 until its next marker. The global watermark is the least
    of all; it stays in the checkpoint, and ``global_ms`` comes from there.
    """

    def __init__(self, inputs: Sequence[InputSpec], global_ms: int) -> None:
        self._inputs = [(position, spec) for position, spec in enumerate(inputs) if spec.event_time]
        self._reached_ms: dict[int, int | None] = {position: None for position, _ in self._inputs}
        self.global_ms = global_ms

    def batch_ran(self, before: Sequence[InputOffset], upto: Sequence[InputOffset]) -> None:
        """Record the marker of every input whose offset has changed; it holds for the next batch."""
        for position, spec in self._inputs:
            if upto[position] != before[position]:
                reached, known = reached_ms(upto[position], spec.lag_ms), self._reached_ms[position]
                self._reached_ms[position] = reached if known is None else max(known, reached)
        self.global_ms = max(self.global_ms, least(0 if time_ms is None else time_ms for time_ms in self._reached_ms.values()))


def least(reached_ms: Iterable[int]) -> int:
    """Return the least watermark of all inputs, including those without a known watermark."""
    return min(reached_ms, default=0)

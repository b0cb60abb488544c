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
        self._inputs = [(position, one) for position, one in enumerate(inputs) if one.event_time]
        self._reached_ms: dict[int, int | None] = {position: None for position, _ in self._inputs}
        self.global_ms = global_ms

    def batch_ran(self, before: Sequence[InputOffset], upto: Sequence[InputOffset]) -> None:
        """Record the marker of every input whose offset has changed; it holds for the next batch."""
        for position, one in self._inputs:
            if upto[position] != before[position]:
                told, known = reached_ms(upto[position], one.lag_ms), self._reached_ms[position]
                self._reached_ms[position] = told if known is None else max(known, told)
        self.global_ms = max(self.global_ms, least(0 if one is None else one for one in self._reached_ms.values()))


def least(reached_ms: Iterable[int]) -> int:
    """Return the least watermark of all inputs, including those without a known watermark."""
    return min(reached_ms, default=0)

"""Spark's watermark of a query with several inputs: ``WatermarkTracker``, with all that it forgets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sbon_node.engine.interface import InputSpec
from sbon_node.engine.promise import reached_ms
from sbon_node.streams.frame import InputOffset


class Watermarks:
    """From one start of an operator to its end. What an input has reached is forgotten then, and 0 until it is told again; the
    watermark of all, the least of them, outlasts it in the checkpoint, from where ``global_ms`` comes."""

    def __init__(self, inputs: Sequence[InputSpec], global_ms: int) -> None:
        self._inputs = [(position, one) for position, one in enumerate(inputs) if one.event_time]
        self._reached_ms = {position: 0 for position, _ in self._inputs}
        self.global_ms = global_ms

    def batch_ran(self, before: Sequence[InputOffset], upto: Sequence[InputOffset]) -> None:
        """A marker came with every input whose offset has changed; what is reached holds for the next batch."""
        for position, one in self._inputs:
            told = reached_ms(upto[position], one.lag_ms) if upto[position] != before[position] else None
            if told is not None:
                self._reached_ms[position] = max(self._reached_ms[position], told)
        self.global_ms = max(self.global_ms, least(self._reached_ms.values()))


def least(reached_ms: Iterable[int]) -> int:
    """Of all inputs, those too that nothing is known of."""
    return min(reached_ms, default=0)

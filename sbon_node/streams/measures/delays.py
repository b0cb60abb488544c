"""Delays of rows from their source to a sink: quantiles over the newest frames that have arrived."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from sbon_protocol.api.delivery import SinkDelay


class _Arrival(NamedTuple):
    at_s: float
    delay_ms: float
    error_ms: float
    rows: int


class Delays:
    """The newest frames with rows, at most ``most`` and at most ``window_s`` old. A quantile counts each frame with its rows."""

    def __init__(self, *, most: int, window_s: float) -> None:
        self._window_s = window_s
        self._arrivals: deque[_Arrival] = deque(maxlen=most)
        self._undated: deque[float] = deque(maxlen=most)

    def observe(self, now: float, delay_ms: float, error_ms: float, rows: int) -> None:
        """Add a frame whose oldest row entered ``delay_ms`` ago, at most ``error_ms`` wrong."""
        self._arrivals.append(_Arrival(now, delay_ms, error_ms, rows))

    def observe_undated(self, now: float) -> None:
        """Add a frame of which the time of entry is unknown."""
        self._undated.append(now)

    def report(self, now: float) -> SinkDelay:
        """Return the quantiles; ``error_ms`` is the largest of the frames that count."""
        since_s = now - self._window_s
        recent = sorted((one for one in self._arrivals if one.at_s >= since_s), key=lambda one: one.delay_ms)
        undated = sum(at_s >= since_s for at_s in self._undated)
        if not recent:
            return SinkDelay(undated=undated)
        return SinkDelay(
            frames=len(recent),
            undated=undated,
            p50_ms=_quantile(recent, 0.50),
            p95_ms=_quantile(recent, 0.95),
            error_ms=max(one.error_ms for one in recent),
        )


def _quantile(arrivals: Sequence[_Arrival], share: float) -> float:
    """Return the least delay that at least ``share`` of the rows do not exceed; ``arrivals`` are sorted by delay."""
    rest = share * sum(one.rows for one in arrivals)
    for one in arrivals:
        rest -= one.rows
        if rest <= 1e-9:
            return max(0.0, one.delay_ms)
    return max(0.0, arrivals[-1].delay_ms)

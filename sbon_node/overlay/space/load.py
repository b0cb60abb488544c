"""The load dimension (SBON, section 3.1.1): the load average times a weight, smoothed so that a spike moves no node."""

import math


def per_core(load_ms: float, weight_ms: float) -> float | None:
    """Return runnable processes per core from a place in the load dimension; None if its weight is 0."""
    return load_ms / weight_ms if weight_ms > 0 else None


class LoadDimension:
    """Exponential smoothing with time constant ``smoothing_s``: v <- v + (x - v) (1 - exp(-dt / smoothing_s))."""

    def __init__(self, weight_ms: float, smoothing_s: float) -> None:
        self._weight_ms, self._smoothing_s = weight_ms, smoothing_s
        self._value = 0.0
        self._at: float | None = None

    def observe(self, load_per_core: float, now: float) -> float:
        """Take a load average (runnable processes per core); return the dimension in milliseconds."""
        load = max(0.0, load_per_core) if math.isfinite(load_per_core) else 0.0
        if self._at is None:
            self._value = load
        else:
            self._value += (load - self._value) * (1 - math.exp(-max(0.0, now - self._at) / self._smoothing_s))
        self._at = now
        return self.value_ms

    @property
    def value_ms(self) -> float:
        return self._weight_ms * self._value

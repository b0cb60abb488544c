"""Pauses between tries, each twice as long as the last. Pure: the generator of the jitter is an argument."""

import random


class Backoff:
    """Pauses of ``first_s``, doubled each time, at most ``longest_s`` seconds, without end.

    With ``rng`` each pause is multiplied by a uniform random factor between 0.5 and 1, so that those who lost the same node do
    not all come back at once.
    """

    def __init__(self, first_s: float, longest_s: float, rng: random.Random | None = None) -> None:
        self._first_s, self._longest_s, self._rng = min(first_s, longest_s), longest_s, rng
        self._pause_s = self._first_s

    def next_s(self) -> float:
        """Return the seconds to wait before the next try."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, self._longest_s)
        return pause_s if self._rng is None else pause_s * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin again with ``first_s``, after a success."""
        self._pause_s = self._first_s

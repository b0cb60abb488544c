"""Offsets of other nodes' wall clocks, from the answers to pings (Mills, NTP: RFC 5905, section 8). Pure.

A ping leaves at s and its answer arrives at r, both by this node's monotonic clock; the answer says the other node's wall time w.
The other node read w at some time between s and r. So w - (s + r) / 2 is right within (r - s) / 2, however asymmetric the path
is. Clocks drift apart meanwhile: the error grows by ``DRIFT`` with the age. Of a member's newest answers the one with the least
error counts (the minimum filter of RFC 5905, section 10). An answer that contradicts it says that the other clock was set: the
earlier ones are forgotten.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

SAMPLES = 16
"""Newest answers that are kept of each member."""
DRIFT = 1e-4
"""Greatest drift of two clocks against each other: each quartz may be off by 50 ppm. RFC 5905 takes 15 ppm for one."""


class ClockOffset(NamedTuple):
    """The time by which another node's wall clock is ahead of this one's, at most ``error_ms`` wrong."""

    ahead_ms: float
    error_ms: float


class _Answer(NamedTuple):
    """The other node's wall time less this node's monotonic time, ``at_s``."""

    offset_ms: float
    half_rtt_ms: float
    at_s: float

    def error_ms(self, now: float) -> float:
        return self.half_rtt_ms + DRIFT * (now - self.at_s) * 1000.0


class ClockOffsets:
    """The newest answers of each member. Refers to the monotonic clock, so a change of this node's wall clock does no harm."""

    def __init__(self) -> None:
        self._answers: dict[str, deque[_Answer]] = {}

    def observe(self, name: str, sent_s: float, received_s: float, wall_us: int) -> None:
        """Add an answer; 0 for ``wall_us`` is none."""
        if not wall_us or received_s < sent_s:
            return
        middle_s = (sent_s + received_s) / 2
        answer = _Answer(wall_us / 1000.0 - middle_s * 1000.0, (received_s - sent_s) * 500.0, received_s)
        known = self._answers.setdefault(name, deque(maxlen=SAMPLES))
        if any(abs(answer.offset_ms - one.offset_ms) > answer.error_ms(received_s) + one.error_ms(received_s) for one in known):
            known.clear()
        known.append(answer)

    def newest_s(self, name: str) -> float | None:
        """Return when the newest answer came; None before the first."""
        known = self._answers.get(name)
        return known[-1].at_s if known else None

    def offset(self, name: str, now: float, wall_ms: float) -> ClockOffset | None:
        """Return the member's offset, given both of this node's clocks; None before its first answer."""
        known = self._answers.get(name)
        if not known:
            return None
        best = min(known, key=lambda one: one.error_ms(now))
        return ClockOffset(ahead_ms=best.offset_ms - (wall_ms - now * 1000.0), error_ms=best.error_ms(now))

    def forget(self, name: str) -> None:
        self._answers.pop(name, None)

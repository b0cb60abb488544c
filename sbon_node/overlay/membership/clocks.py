"""The wall clocks of other nodes against this node's: times that they state, in this node's time (docs/design/measures.md)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from sbon_node.base.clock import Clock
from sbon_node.overlay.membership.settings import MembershipSettings

ROUNDING_MS = 1.0
"""Stamps are whole milliseconds."""
MAX_WANTED = 1024
"""Members whose clocks are asked for in one ``membership.clock_interval_s``. No setting: a member that is left out is asked for
again by the next time that it states."""

Ping = Callable[[str, float], Awaitable[object]]


class PeerClocks:
    """Clock offsets from all pings; members whose clocks are needed are pinged if nothing else pings them."""

    def __init__(self, own_name: str, clock: Clock, ping: Ping, settings: MembershipSettings) -> None:
        self._own_name, self._clock, self._ping, self._settings = own_name, clock, ping, settings
        self.offsets = ClockOffsets()
        self._wanted: dict[str, None] = {}
        self._news = asyncio.Event()

    def offset(self, name: str) -> ClockOffset | None:
        """Return a member's clock offset, and see that it becomes or stays known; None while it is unknown."""
        if name == self._own_name:
            return ClockOffset(0.0, 0.0)
        if len(self._wanted) < MAX_WANTED:
            self._wanted[name] = None
        known = self.offsets.offset(name, self._clock.now(), self._clock.wall_us() / 1000.0)
        if known is None:
            self._news.set()
        return known

    def own_ms(self, stated_ms: int, name: str) -> int:
        """Return the time that the member states, by this node's clock; 0, which means no time, while that is unknown."""
        offset = self.offset(name) if stated_ms else None
        return 0 if offset is None else round(stated_ms - offset.ahead_ms)

    async def run(self) -> None:
        """Ping members whose clocks are needed, once in each ``membership.clock_interval_s``, and at once if unknown."""
        settings = self._settings
        while True:
            begun = self._clock.now()
            wanted, self._wanted = list(self._wanted), {}
            self._news.clear()
            for name in wanted:
                newest_s = self.offsets.newest_s(name)
                if newest_s is None or begun - newest_s >= settings.clock_interval_s:
                    await self._ping(name, settings.probe_timeout_s)
            try:
                async with self._clock.timeout(settings.clock_interval_s):
                    await self._news.wait()
                await self._clock.sleep(settings.probe_timeout_s)  # those that do not answer are not pinged without a pause
            except TimeoutError:
                continue


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
    """Offsets of other nodes' wall clocks, from the newest answers to pings (Mills, NTP: RFC 5905, section 8). Pure.

    A ping leaves at s and its answer arrives at r, both by this node's monotonic clock; the answer says the other node's wall
    time w. The other node read w at some time between s and r. So w - (s + r) / 2 is right within (r - s) / 2, however asymmetric
    the path is. Clocks drift apart meanwhile: the error grows by ``DRIFT`` with the age. Of a member's newest answers the one
    with the least error counts (the minimum filter of RFC 5905, section 10). An answer that contradicts it says that the other
    clock was set: the earlier ones are forgotten.

    It refers to the monotonic clock, so a change of this node's wall clock does no harm.
    """

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

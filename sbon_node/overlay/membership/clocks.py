"""The wall clocks of other nodes against this node's: times that they state, in this node's time (docs/design/measures.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sbon_node.base.clock import Clock
from sbon_node.overlay.membership.detector.clock_offsets import ClockOffset, ClockOffsets
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

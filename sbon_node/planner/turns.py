"""Turns of clients that wait for the planner: a busy client waits behind itself, not before others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sbon_node.clock import Clock


class Turns:
    """One turn at a time, next for the waiting client whose turns have taken the least time.

    Each client's own requests keep their order.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._spent_s: dict[str, float] = {}

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        if self._taken:
            await self._wait(client)
        self._taken = True
        begun = self._clock.now()
        try:
            yield
        finally:
            self._spent_s[client] = self._spent_s.get(client, 0.0) + self._clock.now() - begun
            self._pass_on()

    def forget(self, client: str) -> None:
        """Forget a client that has no request in progress."""
        self._spent_s.pop(client, None)

    async def _wait(self, client: str) -> None:
        called = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Pass the turn to the next client; it stays taken until no client waits."""
        while self._waiting:
            client = min(self._waiting, key=lambda client: self._spent_s.get(client, 0.0))
            called = self._waiting[client].popleft()
            if not self._waiting[client]:
                del self._waiting[client]
            if not called.done():
                called.set_result(None)
                return
        self._taken = False

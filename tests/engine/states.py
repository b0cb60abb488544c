"""States that an engine reports for its operators."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_S = 240.0
"""After so long nothing will come of it; says nothing about speed."""


class States:
    """Reports by operator, newest last."""

    def __init__(self) -> None:
        self.told: dict[str, list[tuple[str, str]]] = {}
        self.at_s: dict[str, list[float]] = {}
        self._changed = asyncio.Event()

    def __call__(self, operator: str, state: str, reason: str) -> None:
        self.told.setdefault(operator, []).append((state, reason))
        self.at_s.setdefault(operator, []).append(asyncio.get_running_loop().time())
        self._changed.set()

    def count(self, operator: str, state: str) -> int:
        return sum(told == state for told, _ in self.told.get(operator, []))

    async def wait(self, operator: str, state: str, count: int = 1) -> str:
        """The reason of the ``count``-th report of that state."""
        async with asyncio.timeout(PATIENCE_S):
            while self.count(operator, state) < count:
                self._changed.clear()
                await self._changed.wait()
        return [reason for told, reason in self.told[operator] if told == state][count - 1]

    def check(self, operator: str) -> None:
        """Fail with the reason for which the operator has failed, if it has."""
        failed = [reason for told, reason in self.told.get(operator, []) if told == "failed"]
        assert not failed, failed

    async def unless_failed(self, operator: str, waiting: Coroutine[Any, Any, T]) -> T:
        """Wait, but not for an operator that has failed."""
        task = asyncio.ensure_future(waiting)
        while not task.done():
            self.check(operator)
            await asyncio.wait([task], timeout=0.1)
        return task.result()

"""Commits of an operator's batches, which its node shows for as long as a run lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sbon_node.base.clock import Clock
from sbon_node.base.tasks import check_cancelled
from sbon_node.engine.interface import OperatorPort
from sbon_protocol.errors import SbonError

RETRY_S = 1.0
PASSING = ("disk-full", "disk-error", "store-busy")
"""Passing reasons: the operator stops with them and tries again, for ever."""


class Commits:
    """Shows the commits of one operator, one at a time.

    The engine process waits for the answer when it stops the operator, and every other command waits for that stop. An answer
    may take any time: a full disk, or a backup that is away and that only the operator's node can replace. So commits are
    refused before each stop; the next start shows them.

    ``waits`` is told why a commit cannot be shown yet, and an empty reason once it is; it returns False to give up.
    """

    def __init__(self, operator: str, port: OperatorPort, clock: Clock, waits: Callable[[str], bool]) -> None:
        self._operator, self._port, self._clock, self._waits = operator, port, clock, waits
        self._showing: asyncio.Task[None] | None = None
        self.are_taken = False
        """Whether commits are shown: the run has begun, and nobody stops it."""

    def take(self) -> None:
        """Show commits from now on."""
        self.are_taken = True

    def refuse(self) -> None:
        """Show no more commits, not even the one under way."""
        self.are_taken = False
        if self._showing is not None:
            self._showing.cancel()

    async def show(self, batch: int) -> None:
        """Make a commit visible. Raises :class:`SbonError`, ``operator-stopped`` if it is refused."""
        if self.are_taken:
            self._showing = asyncio.get_running_loop().create_task(self._show(batch), name=f"show {batch} of {self._operator}")
            try:
                return await self._showing
            except asyncio.CancelledError:
                check_cancelled()
            finally:
                self._showing = None
        raise SbonError("operator-stopped", f"its next start shows batch {batch}", where=self._operator)

    async def _show(self, batch: int) -> None:
        """Show a commit. Batch ``batch + 1`` may never come: a commit that cannot be shown now must be shown later."""
        told = False
        while True:
            try:
                await self._port.committed(batch)
                break
            except SbonError as error:
                if error.code not in PASSING or not self._waits(str(error)):
                    raise  # The commit becomes visible at the next start.
                told = True
            await self._clock.sleep(RETRY_S)
        if told:
            self._waits("")

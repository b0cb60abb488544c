"""The order in which operators start again after a death of their engine, and the search for the one that it died of. No I/O.

Each operator with a batch under way at a death is a suspect, until it is healthy: it has committed a batch, or has no input. A
first death may be chance, so its suspects start side by side, as many as the engine has cores and memory for. Those that have a
batch under way at another death meanwhile start alone: if the engine dies of an operator that is alone, that was the cause. Those
that are to start side by side go first, and before others those whose readers wait for rows.
"""

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager

from sbon_node.engine.settings import LOCAL_MASTER, EngineSettings
from sbon_node.engine.spark.running import Running
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.api.states import operator_states

CHANCE = 1
"""Deaths in a row with a batch under way that may be chance; an operator with more starts alone."""
STARTS_OF_A_CORE = 2
"""A start waits for processes and files half of its time."""
HEAP_MB_OF_A_START = 128
"""Ample heap for the first batch of an operator, which may read all that has come meanwhile."""


def side_by_side(settings: EngineSettings, cores: float) -> int:
    """Return how many suspects an engine can start at a time, given the cores of its machine and its heap."""
    master = LOCAL_MASTER.fullmatch(settings.master)
    threads = master.group(2) if master is not None and master.group(2) else "1"
    used = cores if threads == "*" else float(threads)
    return max(1, min(int(STARTS_OF_A_CORE * used), settings.heap_mb // HEAP_MB_OF_A_START))


def in_order(operators: Iterable[Running]) -> list[Running]:
    """Return those first whose readers wait for rows."""
    return sorted(operators, key=lambda one: not one.is_awaited())


class Restarts:
    """The turns of the suspects of one engine, at most ``width`` of them at a time."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._waiting: dict[str, tuple[bool, bool, int]] = {}
        """The order of those that wait, by operator: whether it starts alone and has no waiting readers, and its number."""
        self._started: dict[str, Running] = {}
        self._turns = self._paused = 0
        self._changed = Signal()

    @asynccontextmanager
    async def turn(self, running: Running, reason: str) -> AsyncIterator[None]:
        """Wait for the turn of a suspect that has ended for the ``reason``; it lasts until the block ends."""
        operator, self._turns = running.spec.id, self._turns + 1
        self._waiting[operator] = (running.suspicions > CHANCE, not running.is_awaited(), self._turns)
        try:
            while not self._may_start(running):
                self._show(running, reason)
                await self._changed.wait()
            del self._waiting[operator]
            self._started[operator] = running
            self._changed.notify()
            yield
        finally:
            self._waiting.pop(operator, None)
            self._started.pop(operator, None)
            self._changed.notify()

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        """Give nobody a turn, once those that have one are through."""
        self._paused += 1
        try:
            while self._started:
                await self._changed.wait()
            yield
        finally:
            self._paused -= 1
            self._changed.notify()

    def causes(self, open_: Collection[Running]) -> list[Running]:
        """Return the likely causes of a death among the operators with a batch under way, which become more suspect.

        That is the one that has started alone, or earlier suspects if nobody has a turn; none if several have one.
        """
        started = list(self._started.values())
        causes = [one for one in open_ if (started == [one] if started else one.suspicions > 0)]
        for one in open_:
            one.suspicions += 1
        return causes

    def _may_start(self, running: Running) -> bool:
        if self._paused or min(self._waiting, key=lambda one: self._waiting[one]) != running.spec.id:
            return False
        alone = any(one.suspicions > CHANCE for one in (running, *self._started.values()))
        return len(self._started) < (1 if alone else self._width)

    def _show(self, running: Running, reason: str) -> None:
        """Show for which others an operator waits: their first batches may take long."""
        if self._started and running.state == operator_states.STARTING:
            names = " or ".join(self._started)
            cause = f"it waits until {names} has committed a batch, of which the engine may have died"
            running.set_state(operator_states.STARTING, f"{reason}; {cause}")

"""A simulated operating-system process: its tasks die together, at once, and do nothing afterwards.

A paused process runs nothing, as after SIGSTOP: the loop keeps its callbacks until it goes on. Its sockets stay open.

A task belongs to the process in whose context it was made, and so do the tasks it makes. ``kill`` cancels the tasks. Their
clean-up has no effect outside: the network takes nothing from a dead process, and its successor reads another disk
(:mod:`sbon_lab.simulation.faults.disk`).
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any


class KilledError(asyncio.CancelledError):
    """Raised where a process is killed within its own code; passes wherever a cancellation passes."""


class Process:
    """``name`` is unique in a run: node and incarnation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.context = copy_context()
        self.context.run(current_process.set, self)
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._on_kill: dict[Callable[[], None], None] = {}
        self.paused = False
        self._kept: list[asyncio.Handle] = []
        self._on_resume: list[Callable[[], None]] = []

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run it as a task of this process; the caller holds the task."""
        return asyncio.get_running_loop().create_task(coroutine, context=self.context.copy())

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the running tasks, the oldest first."""
        return list(self._tasks)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        if not self.alive:
            task.cancel()

    def on_kill(self, callback: Callable[[], None]) -> None:
        """Add a callback; callbacks run in order at the moment of death, before any task notices."""
        self._on_kill[callback] = None

    def off_kill(self, callback: Callable[[], None]) -> None:
        self._on_kill.pop(callback, None)

    def pause(self) -> None:
        """Stop the process, from its next ``await`` on, until :meth:`resume`."""
        self.paused = self.alive

    def resume(self) -> list[asyncio.Handle]:
        """Continue the process; return the callbacks that became due meanwhile, for the loop to run."""
        self.paused = False
        kept, self._kept = self._kept, []
        waiting, self._on_resume = self._on_resume, []
        for callback in waiting:
            callback()
        return kept

    def keep(self, handle: asyncio.Handle) -> None:
        """Keep a due callback of the paused process."""
        self._kept.append(handle)

    def on_resume(self, callback: Callable[[], None]) -> None:
        """Add a callback for the end of the pause."""
        self._on_resume.append(callback)

    def kill(self) -> None:
        if not self.alive:
            return
        self.alive = False
        for callback in list(self._on_kill):
            callback()
        for task in list(self._tasks):
            task.cancel()

    def check_alive(self) -> None:
        """Raise :class:`KilledError` in a dead process."""
        if not self.alive:
            raise KilledError(self.name)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)


current_process: ContextVar[Process | None] = ContextVar("current_process", default=None)
NO_PROCESS = Context()
"""Context of callbacks that belong to no process: the network's and the kernel's."""

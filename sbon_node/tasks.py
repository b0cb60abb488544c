"""Background tasks that somebody holds: started by name, cancelled and awaited together, and never failing in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

log = structlog.get_logger()


class Tasks:
    """One owner's tasks by name. A task that fails is logged with its trace; ``on_failure`` is told, if given."""

    def __init__(self, on_failure: Callable[[str, BaseException], None] | None = None) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._on_failure = on_failure
        self._closed = False

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Runs ``work``; drops it unstarted where a task of that name still runs, or all have been told to end."""
        if name in self or self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[name] = task
        task.add_done_callback(self._ended)

    def __contains__(self, name: str) -> bool:
        task = self._tasks.get(name)
        return task is not None and not task.done()

    async def stop(self, name: str) -> None:
        task = self._tasks.get(name)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        """Cancels all and waits until they are gone; none is started any more."""
        self._closed = True
        running = [t for t in self._tasks.values() if t is not asyncio.current_task()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(task.get_name()) is task:
            del self._tasks[task.get_name()]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("task-failed", task=task.get_name(), exc_info=error)
            if self._on_failure is not None:
                self._on_failure(task.get_name(), error)

"""Background tasks that somebody holds: started by name, cancelled and awaited together, and never failing in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

log = structlog.get_logger()


class Tasks:
    """One owner's tasks by name. A task that fails is logged with its trace; ``on_failure`` is told, if given."""

    def __init__(self, on_failure: Callable[[str, BaseException], None] | None = None) -> None:
        self._tasks: dict[str, list[asyncio.Task[Any]]] = {}
        """Of each name the one that runs last, after those that have been told to end and have not ended yet."""
        self._ending: dict[asyncio.Task[Any], None] = {}
        self._on_failure = on_failure
        self._closed = False

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Runs ``work``, after a task of that name that has been told to end; drops it unstarted where one runs that has not, or
        all have been told to end."""
        if name in self or self._closed:
            work.close()
            return
        before = tuple(self._tasks.get(name, ()))
        task = asyncio.get_running_loop().create_task(_after(before, work) if before else work, name=name)
        self._tasks.setdefault(name, []).append(task)
        task.add_done_callback(self._ended)
        # Cancelled before its first step, it would never have touched its work.
        task.add_done_callback(lambda _: work.close())

    def __contains__(self, name: str) -> bool:
        """Whether one runs that has not been told to end."""
        return any(not task.done() and task not in self._ending for task in self._tasks.get(name, ()))

    async def stop(self, name: str) -> None:
        await self._stop(self._tasks.get(name, ()))

    async def close(self) -> None:
        """Cancels all and waits until they are gone; none is started any more."""
        self._closed = True
        await self._stop([task for tasks in self._tasks.values() for task in tasks])

    async def _stop(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Each is cancelled once, whoever else stops it too: what it does at its end is not cut short."""
        others = [task for task in tasks if task is not asyncio.current_task() and not task.done()]
        for task in others:
            if task not in self._ending:
                self._ending[task] = None
                task.cancel()
        if others:
            await asyncio.wait(others)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        name = task.get_name()
        self._ending.pop(task, None)
        left = [one for one in self._tasks.get(name, ()) if one is not task]
        if left:
            self._tasks[name] = left
        else:
            self._tasks.pop(name, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("task-failed", task=name, exc_info=error)
            if self._on_failure is not None:
                self._on_failure(name, error)


async def _after(before: Sequence[asyncio.Task[Any]], work: Coroutine[Any, Any, Any]) -> Any:
    await asyncio.wait(before)
    return await work

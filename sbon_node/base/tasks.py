"""Background tasks with an owner: started by name, cancelled and awaited together, never failing silently."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

log = structlog.get_logger()


class Tasks:
    """An owner's tasks by name. A task's failure is logged with its trace and passed to ``on_failure``, if given."""

    def __init__(self, on_failure: Callable[[str, BaseException], None] | None = None) -> None:
        self._tasks: dict[str, list[asyncio.Task[Any]]] = {}
        """Tasks by name: the current task is last, after cancelled tasks that have not ended yet."""
        self._ending: dict[asyncio.Task[Any], None] = {}
        self._on_failure = on_failure
        self._closed = False

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Run ``work`` after cancelled tasks of that name; drop it if a task runs uncancelled, or after :meth:`close`."""
        if name in self or self._closed:
            work.close()
            return
        before = tuple(self._tasks.get(name, ()))
        task = asyncio.get_running_loop().create_task(_after(before, work) if before else work, name=name)
        self._tasks.setdefault(name, []).append(task)
        task.add_done_callback(self._ended)
        # A task cancelled before its first step never starts its work, which must still be closed.
        task.add_done_callback(lambda _: work.close())

    def __contains__(self, name: str) -> bool:
        """Return whether a task of that name runs and is not cancelled."""
        return any(not task.done() and task not in self._ending for task in self._tasks.get(name, ()))

    async def stop(self, name: str) -> None:
        await self._stop(self._tasks.get(name, ()))

    async def close(self) -> None:
        """Cancel all tasks and wait until they end; start no more."""
        self._closed = True
        await self._stop([task for tasks in self._tasks.values() for task in tasks])

    async def _stop(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Cancel each task once, even with several callers, so that its cleanup is not interrupted."""
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


class Loop(ABC):
    """Work without an end, in a task of the given name, with the tasks that it starts; from :meth:`start` to :meth:`close`."""

    def __init__(self, name: str) -> None:
        self._name, self._tasks = name, Tasks()

    def start(self) -> None:
        self._tasks.start(self._name, self._run())

    async def close(self) -> None:
        await self._tasks.close()

    @abstractmethod
    async def _run(self) -> None:
        """Work until the task is cancelled."""


def check_cancelled() -> None:
    """Raise :class:`asyncio.CancelledError` in a cancelled task whose clean-up has failed: the failure took its place."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def ended(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task, if there is one, and wait until it has ended; its outcome is its owner's."""
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task])


async def _after(before: Sequence[asyncio.Task[Any]], work: Coroutine[Any, Any, Any]) -> Any:
    await asyncio.wait(before)
    return await work

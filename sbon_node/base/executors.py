"""Executors that keep long file access or computation off the event loop; injected, because virtual time has no threads."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")

COMPUTING_THREADS = 2
"""Threads for computation; further work waits until a thread is free."""


class Executor(Protocol):
    """``await blocking(work)`` returns or raises as ``work()`` does, and ends with it, even if cancelled."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


async def in_thread(work: Callable[[], T], /) -> T:
    """Run the work in a thread of the loop's own pool. It cannot be stopped: a cancellation waits until the work ends."""
    return await run_to_end(asyncio.to_thread(work))


class Computing:
    """As :func:`in_thread`, in separate threads: heavy computation leaves threads for file access."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(COMPUTING_THREADS, "computing")

    async def __call__(self, work: Callable[[], T], /) -> T:
        return await run_to_end(asyncio.get_running_loop().run_in_executor(self._threads, work))


async def inline(work: Callable[[], T], /) -> T:
    """Run the work at once, on the loop: for virtual time."""
    return work()


async def run_to_end(work: Awaitable[T]) -> T:
    """Run the work to its end; raise a cancellation after that."""
    running = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # retrieve the error, because the caller has gone
        raise cancelled
    return running.result()

"""Work that takes long, on files or of the processor, kept off the event loop; injected, for virtual time knows no threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")

COMPUTING_THREADS = 2
"""Whatever else waits for one of them goes on when they are through."""


class Blocking(Protocol):
    """``await blocking(work)``: what ``work()`` returns or raises. It is over when the call is, cancelled or not."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


async def in_thread(work: Callable[[], T], /) -> T:
    """In a thread of the loop's own pool. A thread cannot be stopped: cancellation waits until it is through."""
    return await _through(asyncio.ensure_future(asyncio.to_thread(work)))


class Computing:
    """As :func:`in_thread`, in threads of its own: however much there is to compute, work on files finds one."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(COMPUTING_THREADS, "computing")

    async def __call__(self, work: Callable[[], T], /) -> T:
        return await _through(asyncio.get_running_loop().run_in_executor(self._threads, work))


async def inline(work: Callable[[], T], /) -> T:
    """At once, on the loop: for virtual time."""
    return work()


async def _through(running: asyncio.Future[T]) -> T:
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # looked at: whoever asked has gone
        raise cancelled
    return running.result()

"""Work that blocks on files, kept off the event loop; injected, for virtual time knows no threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Blocking(Protocol):
    """``await blocking(work)``: what ``work()`` returns or raises. It is over when the call is, cancelled or not."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


async def in_thread(work: Callable[[], T], /) -> T:
    """In a thread of the loop's own pool. A thread cannot be stopped: cancellation waits until it is through."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
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


async def inline(work: Callable[[], T], /) -> T:
    """At once, on the loop: for virtual time."""
    return work()

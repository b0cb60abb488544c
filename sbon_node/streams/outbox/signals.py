"""Waits for a condition without polling."""

import asyncio


class Signal:
    """A condition variable: ``while not condition(): await signal.wait()``; code that changes the condition calls ``notify``.

    No notification is lost as long as nothing is awaited between the check and the wait.
    """

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

""":mod:`.follower` on asyncio, in a task beside another that acknowledges. Cancelling it returns at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from sbon_protocol.errors import SbonError

from . import endpoints, following, states
from .async_http import AsyncHttp
from .following import Following, connection_ended, perhaps_terminal, recorded_end
from .model import Finished, Reader, Rows

LAST_S = 2.0
"""Longest wait in seconds for the last acknowledgement of a follower that ends, or is cancelled."""


class AsyncFollower:
    """A follower of a query at its consumer; ``end`` is the query's end, once :meth:`frames` is done."""

    def __init__(self, http: AsyncHttp, query: str) -> None:
        self._http, self._query = http, query
        self._seen: dict[str, int] = {}
        self._acknowledger = _Acknowledger(http, query)
        self.rows = 0
        self.end: Finished | None = None

    async def frames(self) -> AsyncGenerator[Rows, None]:
        """Yield each frame once; asking for the next frame acknowledges it. Raises as :meth:`.follower.Follower.frames`."""
        acknowledger = self._acknowledger
        acknowledger.start()
        try:
            async with aclosing(self._events()) as frames:
                async for frame in frames:
                    yield frame
                    self.rows += len(frame.rows)
                    self._seen[frame.stream] = frame.number
                    acknowledger.written(frame)
        finally:
            await acknowledger.close()

    async def _events(self) -> AsyncGenerator[Rows, None]:
        state = Following(self._seen)
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with aclosing(self._http.events(endpoints.rows(self._query, self._seen))) as events:
                    async for event in events:
                        if isinstance(event, Reader):
                            self._acknowledger.reader = event.word
                            continue
                        new = state.is_new(event)
                        if isinstance(event, Finished):
                            self.end = (await self._recorded() if event.state == states.STOPPED else None) or event
                            return
                        if new:
                            yield event
                error = connection_ended(self._http.api)
            except SbonError as refusal:
                error = refusal
            if perhaps_terminal(error) and (end := await self._recorded()) is not None:
                self.end = end
                return
            await asyncio.sleep(state.pause_s(error, loop.time()))

    async def _recorded(self) -> Finished | None:
        try:
            record = await self._http.ask(endpoints.query(self._query))
        except SbonError:
            return None
        return recorded_end(record)


class _Acknowledger:
    """Send acknowledgements to the node: a few requests each second, for any number of frames."""

    def __init__(self, http: AsyncHttp, query: str) -> None:
        self._http, self._query = http, query
        self._due = following.Unacknowledged()
        self._changed = asyncio.Event()
        self.reader = ""
        """The word with which the rows began."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"acknowledge {self._query}")

    def written(self, frame: Rows) -> None:
        self._due.written(frame.stream, frame.number)
        self._changed.set()

    async def close(self) -> None:
        """Try once more, so that the next follower begins where this follower ended."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._due.numbers:
            return
        try:
            async with asyncio.timeout(LAST_S):
                await self._send()
        except TimeoutError:
            return

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._due.numbers:
                sent = await self._send()
                await asyncio.sleep(following.ACKNOWLEDGE_PAUSE_S if sent else following.ACKNOWLEDGE_RETRY_S)

    async def _send(self) -> bool:
        numbers = dict(self._due.numbers)
        try:
            await self._http.ask(endpoints.acknowledge(self._query, numbers, self.reader))
        except SbonError:
            return False
        self._due.sent(numbers)
        return True

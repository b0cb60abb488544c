"""A :class:`.requests.Transport` on asyncio: a cancelled task closes its socket at once, and no thread is used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import httpx
from httpx_sse import EventSource

from .http import NOT_KEPT, IdleTimedStream, answered, decoded, errors, no_authorities, plain, streaming
from .requests import FROZEN_AFTER_S, Answer, Ask, Work, base_url, closed, frozen, nothing, problem_of
from .signs_of_life import SIGN_PATH, SignLimits

R = TypeVar("R")

LAST_S = 2.0
"""Longest wait in seconds for the last turn of a worker, also where its task is cancelled."""


class AsyncHttp:
    """A client of one node."""

    def __init__(self, api: str, silent_s: float = FROZEN_AFTER_S) -> None:
        self.api, self._limits = api, SignLimits.of(silent_s)
        self._client = httpx.AsyncClient(base_url=base_url(api), limits=NOT_KEPT, trust_env=False, verify=no_authorities())

    async def ask(self, ask: Ask[R]) -> R:
        return ask.decoded((await self.answer(ask)).body)

    async def answer(self, ask: Ask[Any]) -> Answer:
        with errors(self.api):
            response = await self._answered(ask, self._opened.request(**plain(ask)))
        return answered(ask, response)

    async def events(self, ask: Ask[R], idle: Callable[[], None] = nothing) -> AsyncGenerator[R, None]:
        with errors(self.api):
            request = self._opened.build_request(**streaming(ask, self._limits))
            response = await self._answered(ask, self._client.send(request, stream=True))
            try:
                if response.is_error:
                    raise problem_of(ask, response.status_code, await response.aread())
                response.stream = IdleTimedStream(response.stream, idle)
                async with aclosing(EventSource(response).aiter_sse()) as events:
                    async for event in events:
                        if event.data:
                            yield decoded(ask, event)
            finally:
                await response.aclose()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def worker(self, name: str, work: Work) -> _Task:
        return _Task(name, work)

    async def close(self) -> None:
        await self._client.aclose()

    @property
    def _opened(self) -> httpx.AsyncClient:
        if self._client.is_closed:
            raise closed(self.api)
        return self._client

    async def _answered(self, ask: Ask[Any], sending: Coroutine[Any, Any, httpx.Response]) -> httpx.Response:
        """Return the response; raise ``node-unreachable`` if the node is frozen."""
        request = asyncio.create_task(sending)
        try:
            missing = 0
            while not (await asyncio.wait({request}, timeout=self._limits.slow_s))[0]:
                missing = 0 if await self._gives_sign() else missing + 1
                if missing >= ask.signs and not request.done():
                    raise frozen(self.api, self._limits.frozen_after_s(ask))
            return request.result()
        finally:
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)

    async def _gives_sign(self) -> bool:
        try:
            async with asyncio.timeout(self._limits.sign_s):
                await self._client.get(SIGN_PATH, timeout=self._limits.sign_s)
        except (TimeoutError, httpx.TimeoutException):
            return False
        except httpx.TransportError:
            pass  # Something is said, as in signs_of_life.
        return True


class _Task:
    """A worker in a task."""

    def __init__(self, name: str, work: Work) -> None:
        self._work = work
        self._due = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=name)

    def wake(self) -> None:
        self._due.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                await self._work()

    async def _run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            await asyncio.sleep(await self._work())

""":mod:`.http` on asyncio: a cancelled task closes its socket at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import httpx
from httpx_sse import EventSource

from . import signs_of_life
from .http import NOT_KEPT, Answer, decoded, errors, line, no_authorities, plain, streaming
from .requests import ANSWER_S, Ask, base_url, frozen, problem_of

R = TypeVar("R")


class AsyncHttp:
    """A client of one node."""

    def __init__(self, api: str) -> None:
        self.api = api
        self._client = httpx.AsyncClient(base_url=base_url(api), limits=NOT_KEPT, trust_env=False, verify=no_authorities())

    async def ask(self, ask: Ask[R], within_s: float = ANSWER_S) -> R:
        return ask.decoded((await self.answer(ask, within_s)).body)

    async def answer(self, ask: Ask[Any], within_s: float = ANSWER_S) -> Answer:
        """Return the body, undecoded."""
        with errors(self.api):
            response = await self._answered(self._client.request(*line(ask), **plain(ask, within_s)))
        if response.is_error:
            raise problem_of(ask, response.status_code, response.content)
        return Answer(response.content, response.headers)

    async def events(self, ask: Ask[R]) -> AsyncGenerator[R, None]:
        """Yield the events of a response."""
        with errors(self.api):
            request = self._client.build_request(*line(ask), **streaming(ask))
            response = await self._answered(self._client.send(request, stream=True))
            try:
                if response.is_error:
                    raise problem_of(ask, response.status_code, await response.aread())
                async with aclosing(EventSource(response).aiter_sse()) as events:
                    async for event in events:
                        if event.data:
                            yield decoded(ask, event)
            finally:
                await response.aclose()

    async def close(self) -> None:
        await self._client.aclose()

    async def _answered(self, sending: Coroutine[Any, Any, httpx.Response]) -> httpx.Response:
        """Return the response; raise ``node-unreachable`` if the node is frozen."""
        request = asyncio.create_task(sending)
        try:
            while not (await asyncio.wait({request}, timeout=signs_of_life.SLOW_S))[0]:
                if not await self._gives_sign() and not request.done():
                    raise frozen(self.api, signs_of_life.longest_silence_s())
            return request.result()
        finally:
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)

    async def _gives_sign(self) -> bool:
        try:
            async with asyncio.timeout(signs_of_life.SIGN_S):
                await self._client.get(signs_of_life.SIGN_PATH, timeout=signs_of_life.SIGN_S)
        except (TimeoutError, httpx.TimeoutException):
            return False
        except httpx.TransportError:
            pass  # Something is said, as in signs_of_life.
        return True

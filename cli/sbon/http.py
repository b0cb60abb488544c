"""Requests and event streams over HTTP, with and without asyncio, by httpx and httpx-sse.

It keeps no connection open between requests. It ignores the environment's proxies and contacts a node's API directly.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError

from .requests import ANSWER_S, SILENCE_S, Ask, bad_answer, base_url, problem_of, unreachable

R = TypeVar("R")

_PROBLEM = "problem"
_NOT_KEPT = httpx.Limits(max_keepalive_connections=0)


class Answer(NamedTuple):
    """A plain answer: its body, and its headers by name in any case."""

    body: bytes
    headers: httpx.Headers


class Http:
    """A blocking client of one node, safe for threads.

    Raises :class:`SbonError`: the node's own error, or ``node-unreachable``.
    """

    def __init__(self, api: str) -> None:
        self.api = api
        self._client = httpx.Client(base_url=base_url(api), limits=_NOT_KEPT, trust_env=False, verify=_no_authorities())

    def ask(self, ask: Ask[R], within_s: float = ANSWER_S) -> R:
        return ask.decoded(self.answer(ask, within_s).body)

    def answer(self, ask: Ask[Any], within_s: float = ANSWER_S) -> Answer:
        """Return the body, undecoded."""
        with _errors(self.api):
            response = self._client.request(
                ask.method, ask.path, content=ask.body, headers=ask.headers, timeout=httpx.Timeout(within_s)
            )
        if response.is_error:
            raise problem_of(ask, response.status_code, response.content)
        return Answer(response.content, response.headers)

    def events(self, ask: Ask[R], idle: Callable[[], None] = lambda: None) -> Generator[R, None, None]:
        """Yield the events of a response. Calls ``idle`` for each comment, which the node sends when it has no event."""
        with _errors(self.api), self._client.stream(*_line(ask), **_streaming(ask)) as response:
            if response.is_error:
                raise problem_of(ask, response.status_code, response.read())
            response.stream = _IdleTimedStream(response, idle)
            for event in EventSource(response).iter_sse():
                if event.data:
                    yield _decoded(ask, event)

    def close(self) -> None:
        self._client.close()


class AsyncHttp:
    """An asyncio client of one node: a cancelled task closes its socket at once."""

    def __init__(self, api: str) -> None:
        self.api = api
        self._client = httpx.AsyncClient(base_url=base_url(api), limits=_NOT_KEPT, trust_env=False, verify=_no_authorities())

    async def ask(self, ask: Ask[R], within_s: float = ANSWER_S) -> R:
        return ask.decoded((await self.answer(ask, within_s)).body)

    async def answer(self, ask: Ask[Any], within_s: float = ANSWER_S) -> Answer:
        """Return the body, undecoded."""
        with _errors(self.api):
            response = await self._client.request(
                ask.method, ask.path, content=ask.body, headers=ask.headers, timeout=httpx.Timeout(within_s)
            )
        if response.is_error:
            raise problem_of(ask, response.status_code, response.content)
        return Answer(response.content, response.headers)

    async def events(self, ask: Ask[R]) -> AsyncGenerator[R, None]:
        """Yield the events of a response."""
        with _errors(self.api):
            async with self._client.stream(*_line(ask), **_streaming(ask)) as response:
                if response.is_error:
                    raise problem_of(ask, response.status_code, await response.aread())
                events = EventSource(response).aiter_sse()
                try:
                    async for event in events:
                        if event.data:
                            yield _decoded(ask, event)
                finally:
                    await events.aclose()

    async def close(self) -> None:
        await self._client.aclose()


class _IdleTimedStream(httpx.SyncByteStream):
    """The bytes of a response; calls ``idle`` for a piece that begins with a comment."""

    def __init__(self, response: httpx.Response, idle: Callable[[], None]) -> None:
        assert isinstance(response.stream, httpx.SyncByteStream)
        self._stream, self._idle = response.stream, idle

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            if chunk.startswith(b":"):
                self._idle()
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _line(ask: Ask[Any]) -> tuple[str, str]:
    return ask.method, ask.path


def _streaming(ask: Ask[Any]) -> dict[str, Any]:
    return {
        "content": ask.body,
        "headers": {**ask.headers, "Accept": "text/event-stream", "Cache-Control": "no-store"},
        "timeout": httpx.Timeout(SILENCE_S),
    }


def _decoded(ask: Ask[R], event: ServerSentEvent) -> R:
    """Decode an event with data. An event without data only sets the id, and by the standard is not an event."""
    if event.event == _PROBLEM:
        raise problem_of(ask, 200, event.data)
    return ask.decoded(event.data)


@contextmanager
def _errors(api: str) -> Iterator[None]:
    try:
        yield
    except SSEError as error:
        raise bad_answer(Ask("GET", api, object), str(error)) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise unreachable(api, _reason(error)) from error


def _reason(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return f"its name cannot be resolved: {cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _no_authorities() -> ssl.SSLContext:
    """Return a context without certificates: the API is plain HTTP, and loading the system's certificates takes 20 ms."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

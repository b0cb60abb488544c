"""Blocking requests and event streams over HTTP, by httpx and httpx-sse; :mod:`.async_http` has them on asyncio.

It keeps no connection open between requests. It ignores the environment's proxies and contacts a node's API directly.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError

from sbon_protocol.errors import SbonError

from .requests import FROZEN_AFTER_S, LOST_AFTER_S, Answer, Ask, bad_answer, base_url, closed, nothing, problem_of, unreachable
from .signs_of_life import CONNECT_S, SignLimits, Watch

R = TypeVar("R")

_PROBLEM = "problem"
NOT_KEPT = httpx.Limits(max_keepalive_connections=0)


class Http:
    """A blocking client of one node, safe for threads; its calls are those of :class:`.requests.Transport`."""

    def __init__(self, api: str, silent_s: float = FROZEN_AFTER_S) -> None:
        self.api, self._limits = api, SignLimits.of(silent_s)
        self._client = httpx.Client(base_url=base_url(api), limits=NOT_KEPT, trust_env=False, verify=no_authorities())

    def ask(self, ask: Ask[R]) -> R:
        return ask.decoded(self.answer(ask).body)

    def answer(self, ask: Ask[Any]) -> Answer:
        """Return the body, undecoded."""
        with self.awaiting(ask) as watch, errors(self.api, watch):
            response = self._opened.request(**plain(ask), extensions={"trace": watch.trace})
        return answered(ask, response)

    def events(self, ask: Ask[R], idle: Callable[[], None] = nothing) -> Generator[R, None, None]:
        """Yield the events of a response. Calls ``idle`` for each comment, which the node sends when it has no event."""
        with errors(self.api), closing(self._begun(ask)) as response:
            if response.is_error:
                raise problem_of(ask, response.status_code, response.read())
            response.stream = IdleTimedStream(response.stream, idle)
            for event in EventSource(response).iter_sse():
                if event.data:
                    yield decoded(ask, event)

    def _begun(self, ask: Ask[Any]) -> httpx.Response:
        """Return a response whose events have yet to come."""
        request = self._opened.build_request(**streaming(ask, self._limits))
        with self.awaiting(ask) as watch, errors(self.api, watch):
            request.extensions["trace"] = watch.trace
            return self._client.send(request, stream=True)

    @property
    def _opened(self) -> httpx.Client:
        if self._client.is_closed:
            raise closed(self.api)
        return self._client

    @contextmanager
    def awaiting(self, ask: Ask[Any]) -> Iterator[Watch]:
        """Yield the watch over a request; the answer comes within the block, or the first event's response begins."""
        with Watch(self.api, ask, self._limits) as watch:
            yield watch

    def close(self) -> None:
        self._client.close()


class IdleTimedStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The bytes of a response, blocking or on asyncio; calls ``idle`` for a piece that begins with a comment."""

    def __init__(self, stream: Any, idle: Callable[[], None]) -> None:
        self._stream, self._idle = stream, idle

    def __iter__(self) -> Iterator[bytes]:
        yield from map(self._heard, self._stream)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield self._heard(piece)

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _heard(self, piece: bytes) -> bytes:
        if piece.startswith(b":"):
            self._idle()
        return piece


def plain(ask: Ask[Any]) -> dict[str, Any]:
    timeout = httpx.Timeout(ask.within_s, connect=min(CONNECT_S, ask.within_s))
    return {"method": ask.method, "url": ask.path, "content": ask.body, "headers": ask.headers, "timeout": timeout}


def streaming(ask: Ask[Any], limits: SignLimits) -> dict[str, Any]:
    """Return the arguments of a request for events. A node that owes their beginning is given up for missing signs before."""
    lost_after_s = max(LOST_AFTER_S, limits.frozen_after_s(ask) + CONNECT_S)
    return {
        **plain(ask),
        "headers": {**ask.headers, "Accept": "text/event-stream", "Cache-Control": "no-store"},
        "timeout": httpx.Timeout(lost_after_s, connect=CONNECT_S),
    }


def answered(ask: Ask[Any], response: httpx.Response) -> Answer:
    if response.is_error:
        raise problem_of(ask, response.status_code, response.content)
    return Answer(response.content, response.headers)


def decoded(ask: Ask[R], event: ServerSentEvent) -> R:
    """Decode an event with data. An event without data only sets the id, and by the standard is not an event."""
    if event.event == _PROBLEM:
        raise problem_of(ask, 200, event.data)
    return ask.decoded(event.data)


def is_unsent(error: SbonError) -> bool:
    """Whether no connection was made: nothing listens there, so that the request has not reached a node."""
    return isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)


def is_late(error: SbonError) -> bool:
    """Whether a node took the request, and has not answered within its time."""
    return isinstance(error.__cause__, httpx.ReadTimeout)


@contextmanager
def errors(api: str, watch: Watch | None = None) -> Iterator[None]:
    try:
        yield
    except SSEError as error:
        raise bad_answer(Ask("GET", api, object), str(error)) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise (watch and watch.error) or unreachable(api, _reason(error)) from error


def _reason(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return f"its name cannot be resolved: {cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def no_authorities() -> ssl.SSLContext:
    """Return a context without certificates: the API is plain HTTP, and loading the system's certificates takes 20 ms."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

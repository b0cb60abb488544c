"""A client of a node's API for tests that share its event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Self, TypeVar

import aiohttp

from sbon.requests import ANSWER_S, LOST_AFTER_S, Ask, bad_answer, problem_of, unreachable

R = TypeVar("R")


class AsyncClient:
    """``await client.ask(endpoints.status())``, ``async for event in client.events(...)``."""

    def __init__(self, api: str) -> None:
        self.api = api if "//" in api else f"http://{api}"
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers={"Content-Type": "application/json"}, read_bufsize=2**20)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, ask: Ask[R]) -> R:
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        try:
            async with self._request(ask, timeout) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise unreachable(self.api, error) from error
        if response.status >= 400:
            raise problem_of(ask, response.status, body)
        return ask.decoded(body)

    async def events(self, ask: Ask[R]) -> AsyncIterator[R]:
        """As :meth:`Client.events`."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=LOST_AFTER_S)
        try:
            async with self._request(ask, timeout) as response:
                if response.status >= 400:
                    raise problem_of(ask, response.status, await response.read())
                async for data in _adata_of(response.content):
                    if data.startswith(b'{"event":"problem"'):
                        raise problem_of(ask, 200, data)
                    yield ask.decoded(data)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise unreachable(self.api, error) from error

    def _request(self, ask: Ask[Any], timeout: aiohttp.ClientTimeout) -> Any:
        if self._session is None:
            raise bad_answer(ask, "the client is not open: use it as an async context manager")
        return self._session.request(ask.method, self.api + ask.path, data=ask.body, timeout=timeout)


async def _adata_of(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """As :func:`data_of`; lines may be longer than the reader's buffer."""
    rest = b""
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            parts.append(chunk)
            continue
        for data in data_of((b"".join([rest, *parts, head]) + b"\n").splitlines(keepends=True)):
            yield data
        rest, parts = tail, []


def data_of(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each event. Ours fill one line each; names and ids repeat what the data says."""
    for line in lines:
        if line.startswith(b"data: ") and line.endswith(b"\n"):
            yield line[6:]

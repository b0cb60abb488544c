"""Requests of a client to one node, and work beside them: on asyncio (:mod:`.async_http`), or blocking (:mod:`.synchronous`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from .requests import Ask

R = TypeVar("R")

Work = Callable[[], Coroutine[Any, Any, float]]
"""One turn of a worker; returns the seconds to wait before the next."""


class Answer(NamedTuple):
    """A plain answer: its body, and its headers by name in any case."""

    body: bytes
    headers: Mapping[str, str]


class Worker(Protocol):
    """Work beside a client's calls, in turns."""

    def wake(self) -> None:
        """Let it have a turn, once the pause after the last is over."""

    async def close(self) -> None:
        """End it with a last turn."""


class Transport(Protocol):
    """Raises :class:`SbonError`: the node's own error, or ``node-unreachable``."""

    @property
    def api(self) -> str: ...

    async def ask(self, ask: Ask[R]) -> R: ...

    async def answer(self, ask: Ask[Any]) -> Answer:
        """Return the body, undecoded."""

    def events(self, ask: Ask[R], idle: Callable[[], None] = ...) -> AsyncGenerator[R, None]:
        """Yield the events of a response. Calls ``idle`` for each comment, which the node sends when it has no event."""

    async def sleep(self, seconds: float) -> None: ...

    def worker(self, name: str, work: Work) -> Worker:
        """Start a worker that is woken whenever there is something to do."""

    async def close(self) -> None: ...


def nothing() -> None:
    """The ``idle`` of a caller that does not mind."""

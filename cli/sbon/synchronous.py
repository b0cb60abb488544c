"""Blocking calls made from asynchronous ones: their coroutines run to the end in the calling thread, without an event loop.

A coroutine over :class:`SynchronousTransport` never suspends: it blocks where another would wait. So Ctrl-C interrupts it where
it is, it runs in any thread, and in one whose event loop runs, as that of a notebook does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, closing
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from .http import Http
from .requests import Answer, Ask, Work, nothing

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=AbstractAsyncContextManager[Any])
CLOSE_S = 10.0
"""Longest wait in seconds for the last turn of a worker that is closed."""


def run(call: Coroutine[Any, Any, R]) -> R:
    """Return the result of a coroutine that never suspends."""
    try:
        call.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    raise RuntimeError(f"{call} waits for an event loop")


def each(items: AsyncGenerator[R, None]) -> Generator[R, None, None]:
    """Yield the items of a generator that never suspends; closing this one closes it."""
    try:
        while True:
            try:
                item = run(anext(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())


class Synchronous(Generic[S]):
    """The blocking form of an asynchronous object, with a :func:`synchronous` method for each of its own."""

    def __init__(self, inner: S) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner).replace("<Async", "<", 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        run(self._inner.__aexit__(kind, error, trace))


def synchronous(method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Synchronous[S], P], R]:
    """Return the method with the same parameters and docstring that blocks until the result is there."""

    @wraps(method)
    def call(self: Synchronous[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run(method(self._inner, *args, **kwargs))

    return call


class SynchronousTransport:
    """A :class:`.requests.Transport` that blocks, safe for threads."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self.api = http.api

    async def ask(self, ask: Ask[R]) -> R:
        return self._http.ask(ask)

    async def answer(self, ask: Ask[Any]) -> Answer:
        return self._http.answer(ask)

    async def events(self, ask: Ask[R], idle: Callable[[], None] = nothing) -> AsyncGenerator[R, None]:
        with closing(self._http.events(ask, idle)) as events:
            for event in events:
                yield event

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  no event loop waits for it

    def worker(self, name: str, work: Work) -> _Thread:
        return _Thread(name, work)

    async def close(self) -> None:
        self._http.close()


class _Thread:
    """A worker in a thread; closing it waits for its last turn, for :data:`CLOSE_S` at most."""

    def __init__(self, name: str, work: Work) -> None:
        self._work = work
        self._due, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._due.set()

    async def close(self) -> None:
        self._over.set()
        self._due.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._over.is_set():
            self._due.wait()
            self._due.clear()
            if not self._over.is_set():
                self._over.wait(run(self._work()))
        run(self._work())

"""Requests to a node's HTTP API, each with the type of its answer, how a client sends them, and their errors. Pure."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from numbers import Integral, Real
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from sbon_protocol.api.nodes import Problem
from sbon_protocol.codec import prepare
from sbon_protocol.errors import SbonError

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

DEFAULT_API = "http://127.0.0.1:7480"
NAMED = "sbon --node URL COMMAND, SBON_API=URL, or in Python connect(URL)"
"""How commands and programs name the API of a node."""
FROZEN_AFTER_S = 12.0
"""Seconds without an answer or sign of life after which a node counts as frozen, by default (:mod:`.signs_of_life`)."""
LOST_AFTER_S = 60.0
"""Seconds without any byte, even a comment, after which an event stream counts as lost."""
ANSWER_S = 120.0
"""Longest wait for a plain answer of a node that lives, in seconds."""
PLANNING_S = 600.0
"""Longest wait for a plan, in seconds; it may have to start an engine."""


class Ask(NamedTuple, Generic[R_co]):
    """One request; ``reply`` is the type of the answer, or of each event.

    ``key`` is set if the request must count only once. ``within_s`` is the longest wait for a plain answer; a node counts as
    frozen once ``signs`` signs of life are missing (:mod:`.signs_of_life`).
    """

    method: str
    path: str
    reply: type[R_co]
    body: bytes | None = None
    media_type: str = "application/json"
    key: str = ""
    within_s: float = ANSWER_S
    signs: int = 1

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Idempotency-Key": self.key} if self.key else {}
        return {"Content-Type": self.media_type, **headers} if self.body is not None else headers

    def decoded(self, body: bytes | str) -> R_co:
        """Return the typed answer; raise :class:`SbonError` ``bad-answer`` if the server is not a node."""
        prepare(self.reply)
        try:
            return msgspec.json.decode(body or b"null", type=self.reply)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise bad_answer(self, str(error)) from error


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
    """Requests of a client to one node, on asyncio (:mod:`.async_http`) or blocking (:mod:`.synchronous`).

    Raises :class:`SbonError`: the node's own error, or ``node-unreachable``.
    """

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


def bad_answer(ask: Ask[Any], problem: str) -> SbonError:
    message = f"{ask.method} {ask.path}: not an answer of a node: {problem}"
    return SbonError("bad-answer", message, hint="is it the address of a node's API?")


def problem_of(ask: Ask[Any], status: int, body: bytes | str) -> SbonError:
    """Return the error in a response with an error status, or in the last event of a stream."""
    prepare(Problem)
    try:
        return msgspec.json.decode(body, type=Problem).error()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return bad_answer(ask, f"status {status}")


def unreachable(api: str, why: object) -> SbonError:
    hint = f"start one with sbon node, or name another's API (by default at port 7480): {NAMED}"
    return SbonError("node-unreachable", f"no node answers at {api}: {why}", hint=hint)


def frozen(api: str, silent_s: float) -> SbonError:
    """Return the error of a node that takes connections, and answers nothing."""
    message = f"the node at {api} takes connections, but has answered nothing for {silent_s:g} s"
    hint = f"its process is stopped, or its machine overloaded; name another node's API: {NAMED}"
    return SbonError("node-unreachable", message, hint=hint)


def closed(api: str) -> SbonError:
    hint = "connect again; queries continue without a connection"
    return SbonError("connection-closed", f"the connection to {api} is closed", hint=hint)


def not_moved(api: str, operator: str) -> SbonError:
    return unreachable(api, f"the connection ended before {operator} had moved; to see where it runs: sbon query show")


def checked_text(value: str, where: str) -> str:
    """Return an argument that is a text; raise ``bad-request`` for any other."""
    if not isinstance(value, str):
        raise SbonError("bad-request", f"a text is needed, not {type(value).__name__}", where=where, hint="give it in quotes")
    return value


def check_positive(value: float, where: str, *, whole: bool = False, below: float = math.inf) -> None:
    """Raise ``bad-request`` for an argument that is no number above 0 and ``below`` this, or not a ``whole`` one."""
    if not isinstance(value, Integral if whole else Real) or not 0 < value < below:
        kind, limit = "a whole number" if whole else "a finite int or float", "" if below == math.inf else f" and below {below:g}"
        raise SbonError("bad-request", f"{kind} above 0{limit} is needed, not {value!r}", where=where, hint="or leave it out")


def base_url(api: str) -> str:
    """Return ``http://HOST:PORT`` for that or ``HOST:PORT``; raise ``bad-address``."""
    try:
        url = urlsplit(api if "//" in checked_text(api, "api") else f"http://{api}")
        if url.scheme == "http" and url.hostname:
            host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
            return f"http://{host}:{url.port or 7480}"
        why = ""
    except ValueError as error:
        why = f": {error}"
    hint = f"for example {DEFAULT_API}: {NAMED}"
    raise SbonError("bad-address", f"{api!r} is not the URL of a node's API{why}", where="api", hint=hint)

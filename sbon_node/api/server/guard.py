"""Checks around every request: origin, rate, errors as JSON, and work that survives a lost connection."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware

from sbon_node.api.server.problems import RETRY_AFTER_S, status_of
from sbon_node.base.token_buckets import TokenBucket, TokenBuckets
from sbon_node.config.api import ApiSettings
from sbon_node.net.counters import Counters
from sbon_node.net.names import is_address
from sbon_protocol.api.nodes import Problem
from sbon_protocol.errors import SbonError

log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HTTP_CODES = {404: "unknown-path", 405: "method-not-allowed", 413: "too-large"}

MAX_CLIENTS = 4096
"""Number of client addresses with a remembered rate."""


class Guard:
    """Middleware that rejects foreign origins and clients over their rate, and writes errors as problems."""

    def __init__(self, settings: ApiSettings, host_names: HostNames, counters: Counters) -> None:
        self._host_names, self._counters = host_names, counters
        self._buckets = TokenBuckets(each=lambda: TokenBucket(settings.request_burst, settings.requests_per_s), most=MAX_CLIENTS)

    def middleware(self) -> Middleware:
        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                self._host_names.check_headers(request.headers)
                wait_s = self._buckets.take(request.remote or "", 1, asyncio.get_running_loop().time())
                if wait_s:
                    return _too_often(wait_s)
                return await handler(request)
            except SbonError as error:
                return problem_response(error)
            except web.HTTPException as error:
                if error.status < 400:
                    raise
                return _of_http(request, error)
            except web.RequestPayloadError as error:
                return _unreadable(request, error)
            except ConnectionResetError:
                raise
            except Exception as error:
                if self._counters.may_log("request-failed"):
                    log.error("request-failed", method=request.method, path=request.path, exc_info=error)
                return problem_response(SbonError("internal", "the node failed to answer; its log says why", where=request.path))

        return guarded


def problem_response(error: SbonError, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return the error with the status of its code, and when to retry if that is soon."""
    status = status_of(error.code)
    all_headers = {**(headers or {})}
    if status in (429, 503):
        all_headers.setdefault("Retry-After", str(RETRY_AFTER_S.get(error.code, 1)))
    try:
        body = msgspec.json.encode(Problem.of(error))
    except UnicodeEncodeError:  # bytes in a header that are no text
        body = msgspec.json.encode(Problem.of(_encodable(error)))
    return web.Response(status=status, body=body, content_type="application/problem+json", headers=all_headers)


def _encodable(error: SbonError) -> SbonError:
    message, where, hint, *details = (
        text.encode("utf-8", "replace").decode() for text in (error.message, error.where, error.hint, *error.details)
    )
    return SbonError(error.code, message, where=where, hint=hint, details=tuple(details))


async def expect(request: web.Request) -> None:
    """Answer ``Expect: 100-continue`` before the body; raise 417 for any other expectation."""
    if request.headers.get("Expect", "").lower() != "100-continue":
        raise web.HTTPExpectationFailed
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # otherwise an error would find the answer already begun


def _unreadable(request: web.Request, error: web.RequestPayloadError) -> web.Response:
    """Answer a body that contradicts its headers, and close: the rest of the connection is unreadable."""
    request.content.feed_eof()  # otherwise the server would wait for the rest
    reason = " ".join(str(error).split())
    hint = "send it as Content-Encoding and Transfer-Encoding say"
    response = problem_response(SbonError("bad-request", f"the body cannot be read: {reason}", where="body", hint=hint))
    response.force_close()
    return response


def _too_often(wait_s: float) -> web.Response:
    hint = "api.requests_per_s and api.request_burst set the limit"
    error = SbonError("too-many-requests", f"this address asks too often; again in {wait_s:.3f} s", hint=hint)
    return problem_response(error, {"Retry-After": str(math.ceil(wait_s))})


def _of_http(request: web.Request, error: web.HTTPException) -> web.Response:
    code = _HTTP_CODES.get(error.status, "bad-request")
    if code == "too-large":
        problem = SbonError(code, "the request body is too large", where=request.path, hint="api.max_body_bytes sets the limit")
    else:
        problem = SbonError(code, f"{request.method} {request.path}: {error.reason.lower()}", hint="see docs/api.md")
    allowed = error.headers.get("Allow")
    return problem_response(problem, {"Allow": allowed} if allowed else None)


class Uncut:
    """Run requests with side effects to their end even when the caller hangs up."""

    def __init__(self) -> None:
        self._running: set[asyncio.Future[web.StreamResponse]] = set()

    def __call__(self, handler: Handler) -> Handler:
        async def run(request: web.Request) -> web.StreamResponse:
            task = asyncio.ensure_future(handler(request))
            self._running.add(task)
            task.add_done_callback(self._done)
            return await asyncio.shield(task)

        return run

    async def close(self, wait_s: float) -> None:
        """Wait for requests in progress, then cancel the rest."""
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=wait_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _done(self, task: asyncio.Future[web.StreamResponse]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has received it, unless it hung up


# -- Host names and origins -------------------------------------------------------------------------------------------

LOCAL = "localhost"
_SHOWN = 200


class HostNames:
    """Checks of host names and origins; ``names`` are patterns, in which ``*`` matches anything.

    A browser lets pages of other sites reach a node in its network. A page whose own name resolves to this node (DNS rebinding)
    has an ``Origin`` that equals ``Host``, but this node does not have that name. An address cannot be rebound, and is always
    answered.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(dict.fromkeys(name.lower().rstrip(".") for name in (LOCAL, *names) if name))

    def check_headers(self, headers: Mapping[str, str]) -> None:
        """Raise ``forbidden-host`` for foreign names, ``forbidden-origin`` for pages of other sites."""
        host = headers.get("Host", "")
        name = _name_of(host)
        if not (is_address(name) or any(fnmatchcase(name, pattern) for pattern in self._names)):
            hint = "use its address, or add the name to api.hosts"
            raise SbonError("forbidden-host", f"this node is not called {host[:_SHOWN]!r}", where="Host", hint=hint)
        if headers.get("Sec-Fetch-Site", "").strip().lower() == "cross-site":
            hint = "open the node's page by its address"
            raise SbonError("forbidden-origin", "pages of other sites may not use this API", where="Sec-Fetch-Site", hint=hint)
        origin = headers.get("Origin")
        if origin is not None and _netloc_of(origin) != host.lower():
            raise SbonError("forbidden-origin", f"pages of {origin[:_SHOWN]} may not use this API", where="Origin")


def _name_of(host: str) -> str:
    """Return the name in a ``Host`` header, without port, in lower case; empty if malformed."""
    try:
        address = urlsplit(f"//{host}")
        _ = address.port
        name = address.hostname or ""
    except ValueError:
        return ""
    return name.rstrip(".") if address.netloc == host and "@" not in host else ""


def _netloc_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""

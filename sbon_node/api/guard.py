"""What every request passes on its way in and out: origin, errors as JSON, and work that a lost connection does not cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import structlog
from aiohttp import web
from multidict import CIMultiDictProxy

from sbon_node.api.problems import problem_response
from sbon_node.errors import SbonError

log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HTTP_CODES = {404: "unknown-path", 405: "method-not-allowed", 413: "too-large"}


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refusals become problem responses; our own bugs are logged and told without their inside."""
    try:
        check_origin(request.headers)
        return await handler(request)
    except SbonError as error:
        return problem_response(error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return problem_response(_of_http(request, error))
    except ConnectionResetError:
        raise
    except Exception as error:
        log.error("request-failed", method=request.method, path=request.path, exc_info=error)
        return problem_response(SbonError("internal", "the node failed to answer; its log says why", where=request.path))


def check_origin(headers: CIMultiDictProxy[str]) -> None:
    """Refuses pages of other sites: a browser on this machine would otherwise let them command the node."""
    origin = headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("Host", ""):
        raise SbonError("forbidden-origin", f"pages of {origin} may not use this API", where="Origin")


def _of_http(request: web.Request, error: web.HTTPException) -> SbonError:
    code = _HTTP_CODES.get(error.status, "bad-request")
    if code == "too-large":
        return SbonError(code, "the request body is too large", where=request.path, hint="api.max_body_bytes sets the limit")
    return SbonError(code, f"{request.method} {request.path}: {error.reason.lower()}", hint="see docs/api.md")


class Uncut:
    """Runs requests that change something to their end even when the caller hangs up in the middle."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[web.StreamResponse]] = set()

    def __call__(self, handler: Handler) -> Handler:
        async def run(request: web.Request) -> web.StreamResponse:
            task = asyncio.get_running_loop().create_task(_awaited(handler(request)))
            self._running.add(task)
            task.add_done_callback(self._done)
            return await asyncio.shield(task)

        return run

    async def close(self, wait_s: float) -> None:
        """Waits for what is under way, then cancels the rest."""
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=wait_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _done(self, task: asyncio.Task[web.StreamResponse]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has had it, unless it hung up


async def _awaited(work: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    return await work

"""The server's state for its own routes: whether it is ready, and its answers, counted by route.

Callers cannot create new counters.
"""

import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from aiohttp import web
from aiohttp.typedefs import Middleware

from sbon_node.api.server.guard import Handler
from sbon_protocol.errors import SbonError

State = Literal["starting", "ready", "stopping"]

UNKNOWN = "unknown"
"""The route of requests that match none."""


class Answered(NamedTuple):
    """Number of requests and their total seconds; for event streams, until their end."""

    requests: int
    seconds: float


class RequestCounts:
    """Counts by method, route and status, since the process started."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], Answered] = {}
        self.under_way = 0

    def snapshot(self) -> dict[tuple[str, str, int], Answered]:
        return dict(sorted(self._counts.items()))

    def middleware(self) -> Middleware:
        """Return the middleware, which runs first because it also counts rejections by the others."""

        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            began, status = time.monotonic(), 499  # for a caller that hangs up
            self.under_way += 1
            try:
                response = await handler(request)
                status = response.status
                return response
            finally:
                self.under_way -= 1
                self._add(request, status, time.monotonic() - began)

        return count

    def _add(self, request: web.Request, status: int, seconds: float) -> None:
        resource = request.match_info.route.resource
        route = UNKNOWN if resource is None else resource.canonical
        key = (request.method if resource is not None else UNKNOWN, route, status)
        before = self._counts.get(key, Answered(0, 0.0))
        self._counts[key] = Answered(before.requests + 1, before.seconds + seconds)


class Serving(NamedTuple):
    """State of the server; ``state`` and ``connections`` are called when needed."""

    state: Callable[[], State]
    connections: Callable[[], int]
    requests: RequestCounts


SERVING = web.AppKey("serving", Serving)


def not_ready(state: State) -> SbonError:
    """Return the error with which nearly all requests are rejected in that state."""
    code = "starting" if state == "starting" else "stopping"
    return SbonError(code, f"the node is {state}", hint="try again soon")

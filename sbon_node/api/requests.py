"""Counts of the requests the API has answered, by route, so that callers cannot make new ones."""

from __future__ import annotations

import time
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Middleware

from sbon_node.api.guard import Handler

UNKNOWN = "unknown"
"""The route of what is none of ours."""


class Answered(NamedTuple):
    """How many requests, and the seconds they took together; of event streams, until they ended."""

    requests: int
    seconds: float


class RequestCounts:
    """By method, route and status, since the process started."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], Answered] = {}
        self.under_way = 0

    def snapshot(self) -> dict[tuple[str, str, int], Answered]:
        return dict(sorted(self._counts.items()))

    def middleware(self) -> Middleware:
        """Goes before all others, since it counts what they refuse."""

        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            began, status = time.monotonic(), 499  # for one whose caller hangs up
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

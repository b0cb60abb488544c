"""The table of routes: what the server is built from, and its description. Each subject keeps its own."""

from __future__ import annotations

from functools import cache

from aiohttp import web

from sbon_node.api.encoding import encode
from sbon_node.api.routes import events, node, operations, queries, streams
from sbon_node.api.routes.openapi import description_of
from sbon_node.api.routes.route import Plain, Route


async def openapi(call: Plain) -> web.Response:
    """This description, as OpenAPI 3.1."""
    return web.Response(body=_encoded(), content_type="application/json")


@cache
def _encoded() -> bytes:
    return encode(description_of(ROUTES))


ROUTES: tuple[Route, ...] = (
    *node.ROUTES,
    *operations.ROUTES,
    *events.ROUTES,
    *streams.ROUTES,
    *queries.ROUTES,
    Route("GET", "/v1/openapi.json", openapi, always=True),
)

"""The table of routes: what the server is built from, and its description. Each subject keeps its own."""

from __future__ import annotations

from functools import cache

from aiohttp import web

from sbon_node.api import monitor, node_routes, operations_routes, query_routes, stream_routes
from sbon_node.api.encoding import encode
from sbon_node.api.openapi import description_of
from sbon_node.api.route import Plain, Route


async def openapi(asked: Plain) -> web.Response:
    """This description, as OpenAPI 3.1."""
    return web.Response(body=_encoded(), content_type="application/json")


@cache
def _encoded() -> bytes:
    return encode(description_of(ROUTES))


ROUTES: tuple[Route, ...] = (
    *node_routes.ROUTES,
    *operations_routes.ROUTES,
    *monitor.ROUTES,
    *stream_routes.ROUTES,
    *query_routes.ROUTES,
    Route("GET", "/v1/openapi.json", openapi, always=True),
)

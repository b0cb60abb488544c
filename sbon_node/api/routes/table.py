"""The table of routes: what the server is built from, and its description. Each subject keeps its own."""

import inspect
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec
from aiohttp import web

from sbon_node.api.encoding import encode
from sbon_node.api.routes import operations, queries, streams
from sbon_node.api.routes.route import Plain, Route, Shape, shape_of
from sbon_node.api.server.problems import STATUSES
from sbon_protocol.api.nodes import Problem


async def openapi(call: Plain) -> web.Response:
    """This description, as OpenAPI 3.1."""
    return web.Response(body=_encoded(), content_type="application/json")


@cache
def _encoded() -> bytes:
    return encode(description_of(ROUTES))


ROUTES: tuple[Route, ...] = (
    *operations.ROUTES,
    *streams.ROUTES,
    *queries.ROUTES,
    Route("GET", "/v1/openapi.json", openapi, always=True),
)


# -- The API described as OpenAPI 3.1, from the routes and the types of their handlers --------------------------------

ANYWHERE = (403, 429, 500, 503)
"""A page of another origin, too many requests, a defect of ours, a node that starts or stops or has too many connections."""

_MEANINGS = {number: status.meaning for number, status in STATUSES.items() if status.meaning}
_COMPONENT = "#/components/schemas/{name}"


def description_of(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole description, ready to be written as JSON."""
    shapes = {route: shape_of(route) for route in routes}
    kinds = [kind for shape in shapes.values() for kind in (shape.body, shape.reply, shape.events) if kind is not None]
    kinds = [Problem, *kinds]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_COMPONENT)
    by_kind = dict(zip(map(repr, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route, shape in shapes.items():
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, shape, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sbon",
            "version": version("sbon"),
            "summary": "A node of a stream-based overlay network",
            "description": "Every node answers for the whole cluster. See docs/api.md for what the fields mean.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": components, "responses": {str(status): _refusal(status) for status in _MEANINGS}},
    }


def _operation(route: Route, shape: Shape, schemas: dict[str, Any]) -> dict[str, Any]:
    doc = inspect.getdoc(route.handler) or ""
    names = re.findall(r"{(\w+)}", route.path)
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": " ".join(doc.split()),
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}} for name in names),
            *_parameters(shape.query),
        ],
        "responses": dict([_answer(route, shape, schemas)]),
    }
    if shape.body is not None:
        content = {"application/json": {"schema": schemas[repr(shape.body)]}}
        operation["requestBody"] = {"required": True, "content": content}
    elif route.takes:
        content = {media: {"schema": {"type": "string"}} for media in route.takes}
        operation["requestBody"] = {"required": True, "content": content}
    for status in sorted(_refusals(route, shape, bool(names))):
        operation["responses"][str(status)] = {"$ref": f"#/components/responses/{status}"}
    return operation


def _refusals(route: Route, shape: Shape, has_parts: bool) -> set[int]:
    statuses = {400, *route.refusals, *(() if route.always else ANYWHERE), 403, 429, 500}
    if has_parts:
        statuses.add(404)
    if shape.body is not None or route.takes:
        statuses |= {413, 415}
    return statuses


def _parameters(query: Any) -> Iterator[dict[str, Any]]:
    if query is None:
        return
    _, components = msgspec.json.schema_components([query])
    for name, schema in components[query.__name__]["properties"].items():
        description = schema.pop("description", None) or next(
            (option.pop("description") for option in schema.get("anyOf", ()) if "description" in option), ""
        )
        yield {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _answer(route: Route, shape: Shape, schemas: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Status and description of the answer."""
    if shape.events is not None:
        return "200", {"description": "Events", "content": {"text/event-stream": {"schema": _event(schemas[repr(shape.events)])}}}
    if shape.own:
        return str(route.status), {"description": "The answer", "content": {route.media: {}}}
    if shape.reply is None:
        return "204", {"description": "Done"}
    content = {"application/json": {"schema": schemas[repr(shape.reply)]}}
    answer = {"description": "The answer", "content": content}
    if route.headers:
        answer["headers"] = {
            name: {"description": description, "schema": {"type": "string"}} for name, description in route.headers
        }
    return str(route.status), answer


def _event(schema: Any) -> dict[str, Any]:
    """One server-sent event; a problem is the last one."""
    content = {"anyOf": [schema, {"$ref": _COMPONENT.format(name="Problem")}]}
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
    properties = {"event": {"type": "string"}, "id": {"type": "string"}, "data": data}
    return {"type": "object", "required": ["event", "data"], "properties": properties}


def _refusal(status: int) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": _MEANINGS[status],
        "content": {"application/problem+json": {"schema": {"$ref": _COMPONENT.format(name="Problem")}}},
    }
    if status == 429:
        answer["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 1}}}
    return answer

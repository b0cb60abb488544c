"""The description of the API: of the routes and their types, and held by the documentation too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import aiohttp
import msgspec
import pytest
from aiohttp import web

from sbon_node.api.routes.route import Plain, Route, Shape, shape_of
from sbon_node.api.routes.table import ROUTES
from sbon_node.api.server.http import ApiServer
from tests.api.async_client import AsyncClient

DOCUMENT = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(GET|POST|PUT|DELETE) (/[^?`]*)(\?[^`]*)?`(.*?) \| (.*) \|$", re.MULTILINE)
ROWS = {(method, path): (parameters, body, answer) for method, path, parameters, body, answer in ROW.findall(DOCUMENT)}


def test_the_documentation_has_every_route_and_no_other() -> None:
    assert set(ROWS) == {(route.method, route.path) for route in ROUTES}


def names_of(kind: Any) -> list[str]:
    """Return the names of fields of a struct, a list of structs, or the events of a union."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [str(kind.__struct_config__.tag) if kind.__struct_config__.tag else kind.__name__]
    return [name for one in get_args(kind) for name in names_of(one)]


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_the_documentation_names_what_a_route_takes_and_gives(route: Route) -> None:
    shape = shape_of(route)
    parameters, body, answer = ROWS[route.method, route.path]
    taken = [] if shape.query is None else [field.encode_name for field in msgspec.structs.fields(shape.query)]
    assert re.findall(r"[?&](\w+)=", parameters) == taken
    assert re.findall(r"`(\w+)`", body) == (names_of(shape.body) if shape.body is not None else [])
    for name in names_of(shape.events or shape.reply):
        assert f"`{name}`" in answer
    if shape.reply is shape.events is None and not shape.own:
        assert answer.startswith("204")


async def test_it_is_served_even_before_the_node_has_started(server: ApiServer, client: AsyncClient) -> None:
    server.set_ready(False)
    async with aiohttp.ClientSession(client.api) as session:
        described = await (await session.get("/v1/openapi.json")).json()
    assert described["openapi"] == "3.1.0"
    operations = {(m.upper(), path) for path, item in described["paths"].items() for m in item}
    assert operations == {(route.method, route.path) for route in ROUTES}
    assert references(described) <= {
        f"#/components/{section}/{name}" for section, found in described["components"].items() for name in found
    }
    ids = [operation["operationId"] for item in described["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids))
    assert all(operation["summary"] for item in described["paths"].values() for operation in item.values())


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


async def test_parameters_and_results_come_from_annotations_of_handlers() -> None:
    async def nothing(asked: Plain) -> None: ...

    async def own(asked: Plain) -> web.Response:
        return web.Response()

    assert shape_of(Route("GET", "/", nothing)) == Shape(None, None, None, None, own=False)
    assert shape_of(Route("GET", "/", own)) == Shape(None, None, None, None, own=True)
    by_name = {route.name: shape_of(route) for route in ROUTES}
    assert by_name["create_stream"].body.__name__ == "StreamDeclaration"
    assert by_name["members"].query.__name__ == "MembersQuery"
    assert names_of(by_name["rows"].events) == ["reader", "rows", "finished"]

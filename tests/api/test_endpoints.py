"""The Python API's copies of what the node defines: requests, the header of missing members, schemas, ports and prefixes.

``sbon`` imports nothing of the node, so that a program needs neither Spark nor the node's packages. These tests compare.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import pytest

import sbon.local.node
from sbon import endpoints
from sbon.endpoints import columns_of
from sbon.model import (
    QuerySpec,
    RttRequest,
    SinkRequest,
    SinkSpec,
    SourceDeclaration,
    StreamDeclaration,
    Submission,
    ViewDeclaration,
)
from sbon.requests import DEFAULT_API, Ask
from sbon_cli import operations
from sbon_node.api.routes.route import Route, Shape, shape_of
from sbon_node.api.routes.table import ROUTES
from sbon_node.base.logging.levels import LogLevels
from sbon_node.config.node import NodeSettings
from sbon_node.connectors.access import secrets
from sbon_node.model.schema import parse_schema
from sbon_node.queries.describing.lookup import UNANSWERED_HEADER, Unanswered, header_of
from sbon_protocol.errors import SbonError

NAME = "über all/x?y"
"""A name that must be quoted in a path."""
SQL = "SELECT * FROM s"

ASKS: dict[str, Ask[Any]] = {
    "ready": endpoints.ready(),
    "metrics": endpoints.metrics(),
    "status": endpoints.status(),
    "members": endpoints.members(NAME, 3.5),
    "rtt": endpoints.rtt(RttRequest(pairs=(("a", "b"),))),
    "join": endpoints.join(["127.0.0.1:7400"]),
    "drain": endpoints.drain(),
    "leave": endpoints.leave(force=True),
    "streams": endpoints.streams(),
    "stream": endpoints.stream(NAME),
    "create_stream": endpoints.create_stream(
        StreamDeclaration(name="s", schema=tuple(columns_of("ts timestamp")), event_time="ts")
    ),
    "create_view": endpoints.create_view(ViewDeclaration(name="v", sql=SQL)),
    "drop_stream": endpoints.drop_stream(NAME),
    "attach": endpoints.attach(SourceDeclaration(stream="s", name="a", node="n", connector="file")),
    "detach": endpoints.detach(NAME, NAME),
    "push": endpoints.push(NAME, b"", "text/csv", source=NAME, key="key"),
    "push_rows": endpoints.push_rows(NAME, [{"n": 1}], NAME, "key"),
    "submit": endpoints.submit(Submission(sql=SQL)),
    "queries": endpoints.queries(),
    "query": endpoints.query(NAME),
    "stop": endpoints.stop(NAME),
    "move": endpoints.move(NAME, "b0", "paris"),
    "cancel_move": endpoints.cancel_move(NAME, NAME),
    "query_usage": endpoints.query_usage(NAME),
    "explain": endpoints.explain(QuerySpec(sql=SQL)),
    "explain_query": endpoints.explain_query(NAME),
    "explain_placement": endpoints.explain_placement(QuerySpec(sql=SQL)),
    "explain_query_placement": endpoints.explain_query_placement(NAME),
    "add_sink": endpoints.add_sink(NAME, SinkRequest(sink=SinkSpec(kind="blackhole"))),
    "remove_sink": endpoints.remove_sink(NAME, NAME),
    "rows": endpoints.rows(NAME, {"s": 7}, "any"),
    "acknowledge": endpoints.acknowledge(NAME, {"s": 7}, "a word"),
    "examine": operations.examine(),
    "debug_dump": operations.debug_dump(),
    "resources": operations.resources(),
    "log_levels": operations.log_levels(),
    "set_log_levels": operations.set_log_levels(LogLevels(level="info")),
    "events": operations.events(["queries"], "warning"),
}
"""A request of each endpoint, with all of its parameters."""

UNASKED = {"/healthz": "for load balancers", "/v1/openapi.json": "for other clients", "/v1/usage": "for the dashboard"}


def route_of(ask: Ask[Any]) -> tuple[Route, dict[str, str]]:
    """Return the node's route of a request, and the values in its path."""
    path = urlsplit(ask.path).path
    for route in ROUTES:
        matched = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route.path), path)
        if route.method == ask.method and matched is not None:
            return route, {name: unquote(value) for name, value in matched.groupdict().items()}
    raise AssertionError(f"the node has no route {ask.method} {path}")


def names_of(kind: Any) -> set[str]:
    """Return the names of a type, of each type of a union, or of a list's elements."""
    return {part.__name__ for part in get_args(kind) or (kind,)}


def test_every_endpoint_has_a_request_here() -> None:
    made = {
        name
        for module in (endpoints, operations)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and str(inspect.signature(function).return_annotation).startswith("Ask[")
    }
    assert made - {"anything"} == set(ASKS)


@pytest.mark.parametrize("name", ASKS)
def test_a_request_is_one_that_the_node_takes(name: str) -> None:
    ask = ASKS[name]
    route, values = route_of(ask)
    assert set(values.values()) <= {NAME, "s"}
    shape = shape_of(route)
    _check_reply(ask, shape)
    parameters = dict(parse_qsl(urlsplit(ask.path).query, strict_parsing=True)) if "?" in ask.path else {}
    if shape.query is None:
        assert not parameters
    else:
        assert set(parameters) <= {field.encode_name for field in msgspec.structs.fields(shape.query)}
        msgspec.convert(parameters, shape.query, strict=False)
    if route.takes:
        assert ask.media_type in route.takes
    elif shape.body is not None:
        assert ask.body is not None
        msgspec.json.decode(ask.body, type=shape.body)
    else:
        assert ask.body is None


def _check_reply(ask: Ask[Any], shape: Shape) -> None:
    if shape.own:
        return
    reply = shape.reply if shape.events is None else shape.events
    assert names_of(ask.reply) == names_of(type(None) if reply is None else reply)


def test_names_are_one_part_of_a_path() -> None:
    assert endpoints.detach("flights", "../jfk?x=/é").path == "/v1/streams/flights/sources/..%2Fjfk%3Fx%3D%2F%C3%A9"


def test_every_route_has_an_endpoint_or_a_reason() -> None:
    asked = {route_of(ask)[0].path for ask in ASKS.values()}
    assert {route.path for route in ROUTES} - asked == set(UNASKED)


def test_members_that_did_not_answer_are_read_alike() -> None:
    silent = (Unanswered("new-york", "dead"), Unanswered("paris", "away"))
    for text, read in ((header_of(silent), silent), ("", ()), ("paris", ()), ("=dead, paris=", ())):
        assert endpoints.query_list(b"[]", {UNANSWERED_HEADER: text}).unanswered == read


@pytest.mark.parametrize(
    "text",
    [
        "ts timestamp, price double",
        "a: bool, b: integer,`c` long , d decimal(10, 2), e numeric, f decimal(5)",
        "A String, b BYTE",
        "a array<int>, b map<string, struct<c: int, d: int[]>>, e decimal( 4 , 2 ), f big int",
        "ts timestamp,",
        "ts",
        "",
    ],
)
def test_schemas_are_read_alike(text: str) -> None:
    def read(reader: Any) -> Any:
        try:
            return [(column.name, column.type) for column in reader(text)]
        except SbonError as error:
            return error.code, error.message, error.where, error.hint

    at_node = read(parse_schema)
    if at_node[0] == "bad-type":  # only the node knows the types
        assert [name for name, _ in read(columns_of)] == ["a", "b", "e", "f"]
    else:
        assert read(columns_of) == at_node


def test_defaults_and_prefixes_are_the_nodes() -> None:
    settings = NodeSettings()
    assert urlsplit(DEFAULT_API).port == settings.api_port
    assert (settings.port, settings.api_port) == (sbon.local.node.PORT, sbon.local.node.API_PORT)
    assert secrets.PREFIX == sbon.local.node.SECRETS

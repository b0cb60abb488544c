"""The HTTP API over a scripted node, on a real loopback port: requests, refusals, connections."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec
import pytest

from sbon import endpoints
from sbon.model import Column, StreamDeclaration
from sbon_cli.client import Client
from sbon_node.api.server.http import ApiServer
from sbon_protocol.api.nodes import RttRequest
from sbon_protocol.api.queries import QuerySpec
from sbon_protocol.errors import SbonError
from tests.api.async_client import AsyncClient
from tests.api.explained_placement import explained_placement
from tests.api.switched_node import SETTINGS, SwitchedNode, rows

STREAM = StreamDeclaration(name="flights", schema=(Column("ts", "timestamp"),), event_time="ts")


async def test_status_members_and_health(server: ApiServer, client: AsyncClient) -> None:
    assert (await client.ask(endpoints.status())).counters == {"bad-datagram": 3}
    assert [m.name for m in await client.ask(endpoints.members())] == ["a"]
    async with aiohttp.ClientSession(client.api) as session:
        paths = ("/healthz", "/readyz", "/v1/status")
        assert [(await session.get(path)).status for path in paths] == [200, 200, 200]
        server.set_ready(False)
        assert [(await session.get(path)).status for path in paths] == [200, 503, 503]


async def test_nodes_near_a_node_come_with_their_distance(node: SwitchedNode, client: AsyncClient) -> None:
    asked = RttRequest(pairs=(("b", "a"), ("c", "")), max_age_s=0.0)
    assert [(found.a, found.b, found.measured_ms) for found in await client.ask(endpoints.rtt(asked))] == [
        ("b", "a", 91.25),
        ("c", "a", 91.25),
    ]
    assert node.rtts == [asked]
    await client.ask(endpoints.members("são/1&x", 0))
    await client.ask(endpoints.members(within_ms=30.5))
    assert node.sought == [("são/1&x", 0.0), ("", 30.5)]


async def test_streams_are_created_shown_and_dropped(client: AsyncClient) -> None:
    made = await client.ask(endpoints.create_stream(STREAM))
    assert made.entry.declaration == STREAM
    assert [s.entry.declaration.name for s in await client.ask(endpoints.streams())] == ["flights"]
    with pytest.raises(SbonError) as refused:
        await client.ask(endpoints.create_stream(STREAM))
    error = refused.value
    assert (error.code, error.where, error.hint, error.details) == ("stream-exists", "name", "drop it", ("made by b",))
    await client.ask(endpoints.drop_stream("flights"))
    with pytest.raises(SbonError, match="there is no stream"):
        await client.ask(endpoints.stream("flights"))


async def test_plans_are_explained_and_refused_with_their_place(node: SwitchedNode, client: AsyncClient) -> None:
    asked = QuerySpec(sql="SELECT 1", strategy="random", consumer="b")
    found = await client.ask(endpoints.explain(asked))
    assert (node.asked, node.submitted) == ([asked], [])
    assert (found.strategy, found.consumer, [part.kind for part in found.components]) == (
        "random",
        "b",
        ["sink", "operator", "source"],
    )
    assert (await client.ask(endpoints.explain_query("q1"))).components[1].measured.rows_s == 30.0
    node.refuse_submit = SbonError("bad-sql", "what is x", where="line 1, column 8", hint="say x")
    with pytest.raises(SbonError) as refused:
        await client.ask(endpoints.explain(asked))
    assert (refused.value.code, refused.value.where, refused.value.hint) == ("bad-sql", "line 1, column 8", "say x")


async def test_placements_are_explained_and_refused_with_their_place(node: SwitchedNode, client: AsyncClient) -> None:
    asked = QuerySpec(sql="SELECT 1", strategy="auto", objective="delay", max_delay_ms=80.0, min_throughput_bytes_s=1e4)
    found = await client.ask(endpoints.explain_placement(asked))
    assert msgspec.to_builtins(found) == msgspec.to_builtins(explained_placement("", asked))
    assert (node.asked, node.submitted) == ([asked], [])
    assert (await client.ask(endpoints.explain_query_placement("q1"))).query == "q1"
    node.refuse_submit = SbonError("delay-bound", "45.5 ms too long", where="max_delay_ms", details=("a to b: 125.5 ms",))
    with pytest.raises(SbonError) as refused:
        await client.ask(endpoints.explain_placement(asked))
    assert (refused.value.code, refused.value.details) == ("delay-bound", ("a to b: 125.5 ms",))


STATUSES = [
    ("GET", "/v1/streams/none", None, 404, "unknown-stream"),
    ("GET", "/v1/nothing", None, 404, "unknown-path"),
    ("PUT", "/v1/streams", None, 405, "method-not-allowed"),
    ("POST", "/v1/streams", b"{", 400, "bad-request"),
    ("POST", "/v1/streams", b'{"name": "Bad Name", "schema": [], "event_time": "ts"}', 400, "bad-request"),
    ("POST", "/v1/streams", b"\xff\xfe", 400, "bad-request"),
    ("POST", "/v1/streams", b"[" * 4000, 400, "bad-request"),
    ("POST", "/v1/streams", b" " * 5000, 413, "too-large"),
    ("POST", "/v1/queries", b'{"sql": ""}', 400, "bad-request"),
    ("POST", "/v1/queries", b'{"sql": "SELECT 1", "durability": "twice"}', 400, "bad-request"),
    ("GET", "/v1/members?within_ms=near", None, 400, "bad-request"),
    ("GET", "/v1/members?within_ms=-1", None, 400, "bad-request"),
    ("GET", "/v1/members?within_ms=nan", None, 400, "bad-request"),
    ("POST", "/v1/rtt", b'{"pairs": []}', 400, "bad-request"),
    ("POST", "/v1/rtt", b'{"pairs": [["a"]]}', 400, "bad-request"),
    ("POST", "/v1/rtt", b'{"pairs": [["a", "b"]], "max_age_s": -1}', 400, "bad-request"),
    ("GET", "/v1/queries/q2/rows", None, 404, "unknown-query"),
    ("GET", "/v1/queries/q2/explain", None, 404, "unknown-query"),
    ("GET", "/v1/queries/q2/explain/placement", None, 404, "unknown-query"),
    ("POST", "/v1/explain/placement", b'{"sql": "SELECT 1", "max_delay_ms": 0}', 400, "bad-request"),
    ("POST", "/v1/queries", b'{"sql": "SELECT 1", "min_throughput_bytes_s": -1}', 400, "bad-request"),
    ("POST", "/v1/explain", b'{"sql": ""}', 400, "bad-request"),
    ("POST", "/v1/explain", b" " * 5000, 413, "too-large"),
    ("GET", "/v1/explain", None, 405, "method-not-allowed"),
    ("GET", "/v1/queries/q1/rows?after=x", None, 400, "bad-request"),
    ("GET", '/v1/queries/q1/rows?after={"s":-1}', None, 400, "bad-request"),
    ("POST", "/v1/queries/q1/acknowledge", b'{"numbers": {"s": "1"}, "reader": "w"}', 400, "bad-request"),
    ("POST", "/v1/queries/q1/acknowledge", b'{"numbers": {"s": 1}}', 400, "bad-request"),
    ("POST", "/v1/queries/q1/acknowledge", b'{"numbers": {"s": 1}, "reader": ""}', 400, "bad-request"),
]


@pytest.mark.parametrize("method, path, body, status, code", STATUSES)
async def test_refusals_are_problems(
    client: AsyncClient, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    async with aiohttp.ClientSession(client.api, headers={"Content-Type": "application/json"}) as session:
        response = await session.request(method, path, data=body)
        assert (response.status, (await response.json())["code"]) == (status, code)
        assert response.content_type == "application/problem+json"


async def test_a_body_that_is_not_as_its_headers_say_is_the_callers_fault(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with aiohttp.ClientSession(client.api) as session:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        problem = await session.post("/v1/streams", data=b'{"name": "s"}', headers=headers)
        assert (problem.status, problem.content_type) == (400, "application/problem+json")
        told = await problem.json()
        assert (told["code"], told["where"]) == ("bad-request", "body")
        assert "gzip" in told["message"]
        assert (await session.get("/v1/status")).status == 200
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_position_that_cannot_be_read_is_called_so(client: AsyncClient) -> None:
    async with aiohttp.ClientSession(client.api) as session:
        problem = await (await session.get("/v1/queries/q1/rows?after=x")).json()
    assert (problem["where"], problem["message"]) == ("after", "the position cannot be read")
    assert '{"stream": 7}' in problem["hint"]


async def test_a_field_that_is_wrong_is_named(client: AsyncClient) -> None:
    async with aiohttp.ClientSession(client.api) as session:
        body = {"name": "s", "schema": [["ts"]], "event_time": "ts"}
        problem = await (await session.post("/v1/streams", json=body)).json()
    assert problem["where"] == "schema[0]"


async def test_web_pages_of_others_and_forms_are_kept_out(client: AsyncClient) -> None:
    async with aiohttp.ClientSession(client.api) as session:
        foreign = await session.get("/v1/status", headers={"Origin": "http://evil.example"})
        own = await session.get("/v1/status", headers={"Origin": client.api})
        form = await session.post("/v1/queries", data={"sql": "select 1"})
        assert (foreign.status, own.status, form.status) == (403, 200, 415)


async def test_our_own_bugs_do_not_show_their_inside(node: SwitchedNode, client: AsyncClient) -> None:
    node.refusal = ValueError("secret detail")
    with pytest.raises(SbonError) as refused:
        await client.ask(endpoints.status())
    assert refused.value.code == "internal"
    assert "secret" not in str(refused.value)


async def test_a_change_completes_although_its_caller_is_gone(node: SwitchedNode, server: ApiServer) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = b'{"addresses": ["x:1"]}'
    head = f"POST /v1/join HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    await node.asked_to_join.acquire()
    writer.close()
    await writer.wait_closed()
    while server.connections:  # noqa: ASYNC110  the server has to notice first
        await asyncio.sleep(0)
    node.joining.set()
    await server.close()
    assert node.joined == ["x:1"]


async def test_a_port_in_use_is_reported(server: ApiServer, node: SwitchedNode) -> None:
    with pytest.raises(SbonError) as refused:
        await ApiServer(node).start("127.0.0.1", server.port)
    assert refused.value.code == "port-in-use"
    with pytest.raises(SbonError) as refused:
        await ApiServer(node).start("192.0.2.1", 0)
    assert refused.value.code == "bad-address"


async def test_closing_ends_followers(node: SwitchedNode) -> None:
    served = ApiServer(node, SETTINGS)
    await served.start("127.0.0.1", 0)
    served.set_ready()
    node.events = [rows(1, (1,))]
    async with AsyncClient(f"http://127.0.0.1:{served.port}") as opened:
        events = opened.events(endpoints.rows("q1", {}))
        await anext(events)
        await anext(events)
        await served.close()
        with pytest.raises(SbonError, match="no node answers"):
            await anext(events)
    assert node.open_followers == 0


async def test_a_server_that_is_no_node_is_recognised(client: AsyncClient) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()

    stranger = await asyncio.start_server(other, "127.0.0.1", 0)
    port = stranger.sockets[0].getsockname()[1]
    with pytest.raises(SbonError) as refused:
        await asyncio.to_thread(Client(f"127.0.0.1:{port}").status)
    assert refused.value.code == "bad-answer"
    stranger.close()
    await stranger.wait_closed()
    with pytest.raises(SbonError) as refused:
        await asyncio.to_thread(Client(f"127.0.0.1:{port}").status)
    assert refused.value.code == "node-unreachable"

"""Names of others and pages of other sites, malformed requests and deep JSON: refused, and never an inner error."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from sbon_node.api.server.guard import HostNames
from sbon_node.api.server.http import ApiServer
from sbon_node.net.counters import WARNINGS_IN_A_PERIOD, Counters
from sbon_protocol.errors import SbonError
from tests.api.switched_node import SETTINGS, SwitchedNode

ANSWERED = [
    "127.0.0.1",
    "127.0.0.1:7480",
    "[::1]:7480",
    "192.0.2.7:7480",
    "localhost:7480",
    "LOCALHOST",
    "London.Example.org:80",
    "london.example.org.",
    "a.example.net",
]
REFUSED = ["evil.example", "evil.example:7480", "example.org", "localhost.evil.example", "", "a@localhost", "[::1", "localhost:x"]
HOSTS = HostNames(["london.example.org", "*.example.net"])


@pytest.mark.parametrize("host", ANSWERED)
def test_addresses_and_the_nodes_own_names_are_answered(host: str) -> None:
    HOSTS.check_headers({"Host": host})
    HOSTS.check_headers({"Host": host, "Origin": f"http://{host}"})


@pytest.mark.parametrize("host", REFUSED)
def test_names_of_others_are_refused_whatever_their_page_says(host: str) -> None:
    with pytest.raises(SbonError) as refused:
        HOSTS.check_headers({"Host": host, "Origin": f"http://{host}"})
    assert refused.value.code == "forbidden-host"


PAGES = [
    {"Origin": "http://evil.example"},
    {"Origin": "http://[::1"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "Cross-Site "},
]


@pytest.mark.parametrize("headers", PAGES)
async def test_pages_of_other_sites_are_refused(server: ApiServer, headers: dict[str, str]) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
        for path in ("/v1/status", "/healthz", "/", "/no/such/path"):
            answer = await session.get(path, headers=headers)
            assert (answer.status, (await answer.json())["code"]) == (403, "forbidden-origin")


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_the_nodes_own_pages_are_served(server: ApiServer, site: str) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
        assert (await session.get("/v1/status", headers={"Sec-Fetch-Site": site})).status == 200


async def test_a_name_that_was_made_to_lead_here_is_refused(server: ApiServer) -> None:
    host = f"evil.example:{server.port}"
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
        for headers in ({"Host": host, "Origin": f"http://{host}"}, {"Host": host}):
            answer = await session.post("/v1/leave", json={}, headers=headers)
            assert (answer.status, (await answer.json())["code"]) == (403, "forbidden-host")


async def test_the_names_in_the_configuration_are_answered(node: SwitchedNode) -> None:
    served = ApiServer(node, SETTINGS, names=("london.example.org",))
    await served.start("127.0.0.1", 0)
    served.set_ready()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{served.port}") as session:
        named = {"Host": f"london.example.org:{served.port}"}
        assert (await session.get("/v1/status", headers=named)).status == 200
        assert (await session.get("/v1/status", headers={"Host": "paris.example.org"})).status == 403
    await served.close()


DEEP = [
    b'{"sql": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    b'{"sql": ' + b"[" * 2000,
    b"[" * 2000 + b"]" * 2000,
    b'{"source": {"stream": "s", "name": "a", "node": "", "connector": "c", "options": {"a": ' + b"[" * 90 + b"]" * 90 + b"}}}",
]


@pytest.mark.parametrize("path", ["/v1/queries", "/v1/explain", "/v1/streams", "/v1/streams/s/sources"])
@pytest.mark.parametrize("body", DEEP)
async def test_deep_json_is_the_callers_fault(server: ApiServer, path: str, body: bytes) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
        answer = await session.post(path, data=body, headers={"Content-Type": "application/json"})
        assert (answer.status, (await answer.json())["code"]) == (400, "bad-request")


MALFORMED = [
    b"GET /v1/status HTTP/1.1\r\nHost: a\r\nHost : b\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: \x00\r\n\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
]


async def test_malformed_requests_are_counted_and_logged_at_a_limited_rate(
    node: SwitchedNode, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    counters = Counters(lambda: 0.0)
    served = ApiServer(node, SETTINGS, counters=counters)
    await served.start("127.0.0.1", 0)
    served.set_ready()
    for _ in range(10):
        for request in MALFORMED:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(request)
            assert (await reader.read()).startswith(b"HTTP/1.0 400 ")
            writer.close()
    await served.close()
    assert counters.snapshot()["http-malformed"] == 10 * len(MALFORMED)
    assert caplog.records == []
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("http-malformed") == WARNINGS_IN_A_PERIOD


BYTES = [b"Origin: http://\xff", b"Expect: \xff", b"Host: \xff", b"Content-Type: \xff", b"Last-Event-ID: \xff"]


@pytest.mark.parametrize("header", BYTES)
@pytest.mark.parametrize("path", ["/v1/status", "/v1/queries/q1/rows", "/dashboard/"])
async def test_bytes_that_are_no_text_are_the_callers_fault(
    node: SwitchedNode, server: ApiServer, path: str, header: bytes
) -> None:
    node.more.set()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    host = b"" if header.startswith(b"Host") else b"Host: 127.0.0.1\r\n"
    writer.write(b"GET " + path.encode() + b" HTTP/1.1\r\n" + host + header + b"\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    assert answer.split(b" ")[1] in (b"200", b"400", b"403", b"417")
    writer.close()


async def test_a_body_is_asked_for_with_100_continue(server: ApiServer) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
        answer = await session.post("/v1/explain", data=b"{}", headers={"Content-Type": "application/json"}, expect100=True)
        assert answer.status == 400

"""No sink or source reaches this machine's own services unasked, by whatever name; and a second resolution changes nothing."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import msgspec
import pytest
from aiohttp import web

from sbon_node.base.clock import Clock
from sbon_node.connectors.access.permitted import checked_addresses, is_named
from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.registry import check_sink
from sbon_node.connectors.sources.registry import open_source
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.errors import SbonError
from tests.connectors.sink_world import Sinking

STREAM = StreamDeclaration(name="s", schema=(Column("ts", "timestamp"), Column("v", "string")), event_time="ts")
ANY = ConnectorSettings()
NEAR = [
    "127.0.0.1",
    "127.8.9.1",
    "localhost",
    "LocalHost",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "0.0.0.0",
    "[::]",
    "169.254.169.254",
    "[fe80::1]",
]
ODD = ["127.1", "2130706433", "0x7f000001", "017700000001"]
"""Texts that the system's resolver takes for loopback."""


def own_address() -> str:
    """This machine's address towards others, where it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def declare(kind: str, host: str, settings: ConnectorSettings) -> None:
    if kind == "http":
        check_sink("http", {"url": f"http://{host}:7480/v1/leave"}, settings)
    elif kind == "postgres":
        check_sink("postgres", {"url": f"postgres://me@{host}:5432/db", "table": "t"}, settings)
    else:
        options = {"url": f"mqtt://{host}:1883", "topic": "t"}
        declared = SourceDeclaration(stream="s", name="n", node="a", connector="mqtt", options=options)
        open_source(declared, STREAM, settings, Clock())


@pytest.mark.parametrize("kind", ["http", "postgres", "mqtt"])
@pytest.mark.parametrize("host", NEAR)
def test_local_addresses_are_refused_when_declared(kind: str, host: str) -> None:
    with pytest.raises(SbonError) as refused:
        declare(kind, host, ANY)
    assert refused.value.code == "outside-endpoints"
    entry = host if "localhost" in host.lower() else host.strip("[]").removeprefix("::ffff:")
    declare(kind, host, ConnectorSettings(endpoints=("*", f"{entry}")))


@pytest.mark.parametrize("host", [*(one.strip("[]") for one in NEAR), *ODD])
async def test_local_addresses_are_refused_when_resolved(host: str) -> None:
    with pytest.raises(SbonError) as refused:
        await checked_addresses(host, 80, ANY)
    assert refused.value.code == "outside-endpoints"


async def test_this_machines_own_address_is_near() -> None:
    own = own_address()
    if not own:
        pytest.skip("this machine has loopback alone")
    for endpoints in (("*",), ("0.0.0.0/0",), (f"{own}/8",), (f"{own}:81",)):
        with pytest.raises(SbonError) as refused:
            await checked_addresses(own, 80, ConnectorSettings(endpoints=endpoints))
        assert refused.value.code == "outside-endpoints"
    assert await checked_addresses(own, 80, ConnectorSettings(endpoints=(own,))) == [own]


OWN_PORTS = ConnectorSettings(endpoints=("*", "localhost", "127.0.0.0/8", "::1", "127.0.0.1:7480"), own_ports=(7400, 7480))
"""Permissions of a local development cluster, and more."""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.10.2", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
def test_no_entry_permits_a_port_of_nodes_on_this_machine(host: str) -> None:
    check_sink("http", {"url": f"http://{host}:8080/hook"}, OWN_PORTS)
    for port in (7400, 7480):
        with pytest.raises(SbonError, match="is an address of a node on this machine") as refused:
            check_sink("http", {"url": f"http://{host}:{port}/v1/leave"}, OWN_PORTS)
        assert refused.value.code == "outside-endpoints"


async def test_no_name_leads_to_a_port_of_nodes_on_this_machine(names: dict[str, list[str]]) -> None:
    names["evil.example"], names["far.example"] = ["127.0.10.2"], ["192.0.2.9"]
    for entry in ("evil.example", "evil.example:7480"):
        settings = msgspec.structs.replace(OWN_PORTS, endpoints=("*", entry))
        with pytest.raises(SbonError, match="is an address of a node on this machine"):
            await checked_addresses("evil.example", 7480, settings)
    assert await checked_addresses("evil.example", 8080, OWN_PORTS) == ["127.0.10.2"]
    assert await checked_addresses("far.example", 7480, OWN_PORTS) == ["192.0.2.9"]
    announced = msgspec.structs.replace(OWN_PORTS, endpoints=("far.example",), own_hosts=("far.example",))
    with pytest.raises(SbonError, match="is an address of a node on this machine"):
        await checked_addresses("far.example", 7480, announced)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """A name server of our own: the addresses of a name, each answer taking the first of several away."""
    known: dict[str, list[str]] = {}
    ask = socket.getaddrinfo

    def answer(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host not in known:
            return ask(host, port, *rest, **more)
        addresses = known[host]
        found = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        return ask(found, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return known


async def test_a_name_that_leads_near_is_refused(names: dict[str, list[str]]) -> None:
    names["evil.example"] = ["127.0.0.1"]
    for endpoints in (("*",), ("*.example",), ("127.0.0.0/8",), ("127.0.0.1:81", "*")):
        with pytest.raises(SbonError) as refused:
            await checked_addresses("evil.example", 80, ConnectorSettings(endpoints=endpoints))
        assert refused.value.code == "outside-endpoints"
    for endpoints in (("evil.example",), ("*", "127.0.0.1"), ("*", "127.0.0.0/8:80")):
        assert await checked_addresses("evil.example", 80, ConnectorSettings(endpoints=endpoints)) == ["127.0.0.1"]
    names["far.example"] = ["192.0.2.9"]
    assert await checked_addresses("far.example", 80, ANY) == ["192.0.2.9"]
    with pytest.raises(SbonError) as refused:
        await checked_addresses("far.example", 80, ConnectorSettings(own_hosts=("FAR.example",)))
    assert refused.value.code == "outside-endpoints"
    with pytest.raises(SbonError) as refused:
        await checked_addresses("192.0.2.9", 80, ConnectorSettings(own_hosts=("far.example",)))
    assert refused.value.code == "outside-endpoints"
    with pytest.raises(SbonError) as refused:
        await checked_addresses("no-such-name.invalid", 80, ANY)
    assert refused.value.code == AWAY


async def test_of_several_addresses_only_those_are_used_that_are_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def both(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        return [answer for address in ("192.0.2.9", "127.0.0.1") for answer in resolve(address, port, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    assert await checked_addresses("evil.example", 80, ANY) == ["192.0.2.9"]
    named = ConnectorSettings(endpoints=("*", "evil.example"))
    assert await checked_addresses("evil.example", 80, named) == ["192.0.2.9", "127.0.0.1"]


async def test_a_sink_never_reaches_the_nodes_own_api(names: dict[str, list[str]], tmp_path: Any) -> None:
    """It is refused as it is opened, and where the name leads here only later, before a byte is sent."""
    asked: list[str] = []

    async def leave(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", leave)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    options = {"url": f"http://evil.example:{port}/v1/leave", "headers": {"Content-Type": "application/json"}}
    try:
        for answers in (["127.0.0.1"], ["192.0.2.9", "127.0.0.1"]):
            names["evil.example"] = answers
            sinking = Sinking(tmp_path, "http", options, settings=ConnectorSettings(retry_s=0.1), claim=f"c{len(answers)}")
            with pytest.raises(SbonError) as refused:
                async with asyncio.timeout(20):
                    await sinking.run()
            assert refused.value.code == "outside-endpoints"
        assert asked == []
        names["evil.example"] = ["127.0.0.1"]
        allowed = ConnectorSettings(retry_s=0.1, endpoints=(f"evil.example:{port}",))
        await Sinking(tmp_path, "http", options, settings=allowed, claim="c3").run()
        assert set(asked) == {"/v1/leave"}
    finally:
        await runner.cleanup()


CONFUSING = ["http://a.example\\@127.0.0.1/", "http://a.example:80:81/", "http://a.example@127.0.0.1/"]


@pytest.mark.parametrize("url", CONFUSING)
def test_a_url_that_can_be_read_in_two_ways_reaches_nothing_near(url: str) -> None:
    with pytest.raises(SbonError) as refused:
        check_sink("http", {"url": url}, ANY)
    assert refused.value.code in ("bad-option", "outside-endpoints")


def test_only_an_entry_without_a_pattern_names_a_host() -> None:
    named = ConnectorSettings(endpoints=("*", "*.example.org", "10.0.0.0/8", "db.example.org:5432", "10.1.2.3"))
    assert is_named("db.example.org", 5432, named)
    assert is_named("10.1.2.3", 1, named)
    for host, port in (("db.example.org", 5433), ("x.example.org", 5432), ("10.1.2.4", 1), ("evil.example", 80)):
        assert not is_named(host, port, named)

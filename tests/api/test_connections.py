"""Attacks with real sockets on uvloop, as the daemon runs: connections that say nothing, or too little, leave room for others."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import uvloop

from sbon_node.api.server.http import ApiServer
from sbon_node.config.api import ApiSettings
from sbon_protocol.api.delivery import Rows
from tests.api.switched_node import SwitchedNode

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Scenario = Callable[[SwitchedNode, ApiServer], Awaitable[None]]
HALF = b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-More: "
READY = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
FOLLOW = b"GET /v1/queries/q1/rows HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
JOIN = b"POST /v1/join HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
JOIN += b"Content-Type: application/json\r\nContent-Length: 22\r\n\r\n"
BODY = b'{"addresses": ["x:1"]}'


def on_uvloop(scenario: Scenario, **settings: object) -> None:
    async def run() -> None:
        node = SwitchedNode()
        served = ApiServer(node, ApiSettings(shutdown_s=1.0, **settings))  # type: ignore[arg-type]
        await served.start("0.0.0.0", 0)
        served.set_ready()
        try:
            async with asyncio.timeout(60):
                await scenario(node, served)
        finally:
            await served.close()

    uvloop.run(run())


async def opened(server: ApiServer, said: bytes = b"", source: str = "127.0.0.1") -> Opened:
    pair = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(source, 0))
    pair[1].write(said)
    await pair[1].drain()
    return pair


async def answer(pair: Opened) -> bytes:
    try:
        return await pair[0].read()
    finally:
        pair[1].close()


async def is_ready(server: ApiServer, source: str = "127.0.0.1") -> bool:
    return (await answer(await opened(server, READY, source))).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("said", [b"", HALF], ids=["idle", "half a header"])
def test_idle_connections_leave_room_for_others(said: bytes) -> None:
    async def scenario(node: SwitchedNode, server: ApiServer) -> None:
        held = [await opened(server, said) for _ in range(600)]
        assert server.connections <= ApiSettings().max_connections_per_address
        assert await is_ready(server)
        assert await is_ready(server, "127.0.0.2")
        for _, writer in held:
            writer.close()

    on_uvloop(scenario, header_s=600.0)


@pytest.mark.parametrize("said", [b"", HALF, READY.replace(b"close", b"keep-alive") + HALF], ids=["idle", "half", "second"])
def test_headers_have_to_come_in_time(said: bytes) -> None:
    async def scenario(node: SwitchedNode, server: ApiServer) -> None:
        reader, writer = await opened(server, said)
        with suppress(ConnectionError):
            while not reader.at_eof():  # drop by drop
                writer.write(b"a")
                await writer.drain()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await reader.read(4096)
        assert server.connections == 0
        writer.close()

    on_uvloop(scenario, header_s=0.6)


def test_headers_that_came_while_the_process_was_stopped_are_read() -> None:
    async def scenario(node: SwitchedNode, server: ApiServer) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            while not server.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            client.sendall(READY)
            time.sleep(0.8)  # noqa: ASYNC251  as SIGSTOP does
            assert (await asyncio.to_thread(client.recv, 1024)).startswith(b"HTTP/1.1 200 ")

    on_uvloop(scenario, header_s=0.5)


def test_a_request_that_is_under_way_is_never_cut_off_for_another() -> None:
    async def scenario(node: SwitchedNode, server: ApiServer) -> None:
        joins = [await opened(server, JOIN + BODY) for _ in range(3)]
        for _ in range(3):
            await node.asked_to_join.acquire()
        idle = [await opened(server) for _ in range(20)]
        node.joining.set()
        for reader, _ in joins:
            assert (await reader.read(100)).startswith(b"HTTP/1.1 200 ")
        for _, writer in [*joins, *idle]:
            writer.close()

    on_uvloop(scenario, max_connections=4, max_connections_per_address=4)


def test_one_connection_too_many_gets_a_reason() -> None:
    async def scenario(node: SwitchedNode, server: ApiServer) -> None:
        joins = [await opened(server, JOIN + BODY) for _ in range(4)]
        for _ in range(4):
            await node.asked_to_join.acquire()
        for said in (b"", READY, JOIN + BODY):
            head, _, body = (await answer(await opened(server, said))).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After: 1" in head
            assert json.loads(body)["code"] == "too-many-connections"
        node.joining.set()
        for _, writer in joins:
            writer.close()
        for reader, _ in joins:
            await reader.read()
        assert await is_ready(server)

    on_uvloop(scenario, max_connections=4)


def test_one_address_leaves_room_for_others() -> None:
    async def scenario(node: SwitchedNode, server: ApiServer) -> None:
        joins = [await opened(server, JOIN + BODY) for _ in range(9)]
        for _ in range(4):
            await node.asked_to_join.acquire()
        assert not await is_ready(server)
        assert await is_ready(server, "127.0.0.2")
        node.joining.set()
        for _, writer in joins:
            writer.close()

    on_uvloop(scenario, max_connections=8, max_connections_per_address=4)


def test_followers_are_no_idle_connections() -> None:
    async def scenario(node: SwitchedNode, server: ApiServer) -> None:
        node.events = [Rows(stream="s", number=1, columns=("x",), rows=((1,),), watermark_ms=0, delay_ms=1)]
        reader, writer = await opened(server, FOLLOW)
        await reader.readuntil(b"data: ")
        idle = [await opened(server) for _ in range(10)]
        await asyncio.sleep(0.5)
        assert node.open_followers == 1
        assert await is_ready(server)
        assert node.open_followers == 1
        node.more.set()
        for _, one in [*idle, (reader, writer)]:
            one.close()

    on_uvloop(scenario, max_connections=4, header_s=0.2)


def test_a_body_has_to_come_in_time() -> None:
    async def scenario(node: SwitchedNode, server: ApiServer) -> None:
        reader, writer = await opened(server, JOIN + BODY[:5])
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        writer.close()

    on_uvloop(scenario, body_s=0.2)

"""The engine's local port: who shows the token is served, all others are turned away with next to nothing read of them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import pytest

from sbon_node.engine.spark.listener import Listener
from sbon_node.engine.spark.wire import HELLO_BYTES, pack
from sbon_node.errors import SbonError
from tests.engine.states import PATIENCE_S

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Door:
    """An open listener, and those who knock."""

    def __init__(self, **limits: float) -> None:
        self.asked: list[dict[str, Any]] = []
        self.listener = Listener(self._serve, **limits)  # type: ignore[arg-type]
        self.port, self.token = 0, ""

    async def _serve(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        if request["do"] == "wait":
            await asyncio.get_running_loop().create_future()
        if request["do"] == "refuse":
            raise SbonError("no-capacity", "full", where="here")
        return {"did": request["do"]}

    async def knock(self, said: bytes) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(said)
        return reader, writer

    def hello(self, role: str = "reader") -> bytes:
        return pack({"role": role, "token": self.token})


@asynccontextmanager
async def door(**limits: float) -> AsyncIterator[Door]:
    made = Door(**limits)
    _, port, made.token = (await made.listener.open()).split(":")
    made.port = int(port)
    try:
        yield made
    finally:
        await made.listener.close()


async def answer(connection: Connection) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        (length,) = struct.unpack(">I", await connection[0].readexactly(4))
        return msgpack.unpackb(await connection[0].readexactly(length))


async def closed(connection: Connection) -> bool:
    """Waits for the other side to close, having said nothing."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await connection[0].read() == b""
        except ConnectionResetError:
            return True


async def test_who_shows_the_token_is_served() -> None:
    async with door() as it:
        connection = await it.knock(it.hello() + pack({"do": "this"}) + pack({"do": "refuse"}) + pack({"do": "that"}))
        assert await answer(connection) == {"did": "this"}
        assert await answer(connection) == {"error": "no-capacity", "message": "here: full"}
        assert await answer(connection) == {"did": "that"}


@pytest.mark.parametrize(
    "said",
    [
        lambda token: pack({"role": "reader", "token": "0" * len(token)}),
        lambda token: pack({"role": "host", "token": ""}),
        lambda token: pack({"role": "reader", "token": "ü" * len(token)}),
        lambda token: pack({"role": "reader", "token": 7}),
        lambda token: pack({"role": "king", "token": token}),
        lambda token: pack({"token": token}),
        lambda token: pack({"role": "reader", "token": token, "more": "x" * HELLO_BYTES}),
        lambda token: struct.pack(">I", 3) + msgpack.packb([1, 2]),
        lambda token: struct.pack(">I", 4) + b"\xc1\xc1\xc1\xc1",
        lambda token: struct.pack(">I", 200 * 1024 * 1024),
        lambda token: b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_anybody_else_is_turned_away_at_once(said: Callable[[str], bytes]) -> None:
    """What is longer than a greeting is not waited for."""
    async with door(hello_s=3600.0) as it:
        assert await closed(await it.knock(said(it.token) + pack({"do": "this"})))
        assert not it.asked


@pytest.mark.parametrize("said", [b"", b"\0\0", struct.pack(">I", HELLO_BYTES) + b"x"])
async def test_who_says_nothing_is_not_waited_for(said: bytes) -> None:
    async with door(hello_s=0.05) as it:
        assert await closed(await it.knock(said))


async def test_strangers_are_few_at_a_time() -> None:
    async with door(max_strangers=2, hello_s=3600.0) as it:
        silent = [await it.knock(b"") for _ in range(2)]
        assert await closed(await it.knock(it.hello()))
        silent[0][1].close()
        served = None
        while served is None:
            connection = await it.knock(it.hello() + pack({"do": "this"}))
            try:
                served = await answer(connection)
            except (asyncio.IncompleteReadError, ConnectionResetError):
                continue  # it takes a moment to notice that the other one has gone
        assert served == {"did": "this"}


async def test_there_is_one_host() -> None:
    async with door() as it:
        first = await it.knock(it.hello("host"))
        _, writer = await it.listener.control
        writer.write(pack({"do": "start"}))
        assert await answer(first) == {"do": "start"}
        assert await closed(await it.knock(it.hello("host")))


async def test_closing_ends_every_connection_and_what_is_answered_there() -> None:
    before = len(asyncio.all_tasks())
    async with door() as it:
        host, reader, stranger = await it.knock(it.hello("host")), await it.knock(it.hello()), await it.knock(b"")
        reader[1].write(pack({"do": "this"}) + pack({"do": "wait"}))
        assert await answer(reader) == {"did": "this"}
        await it.listener.control
    for connection in (host, reader, stranger):
        assert await closed(connection)
    assert len(asyncio.all_tasks()) == before


async def test_who_awaits_the_host_of_a_closed_listener_is_told() -> None:
    async with door() as it:
        control = it.listener.control
    with pytest.raises(ConnectionAbortedError):
        await control

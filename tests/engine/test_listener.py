"""The engine's local port: who shows the token is served, all others are turned away with next to nothing read of them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import msgspec
import pytest

from sbon_node.engine.spark.listener import Listener
from sbon_node.engine.spark.messages import (
    COMMAND,
    HELLO_BYTES,
    REQUEST,
    Close,
    Committed,
    Done,
    Ended,
    Fetch,
    Fetched,
    Message,
    Refused,
    Request,
    Stop,
    answer_decoder,
    decode,
    encode,
)
from sbon_protocol.errors import SbonError
from tests.engine.states import PATIENCE_S

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


THIS, THAT = (Fetch(operator="q.o1", position=0, after=0, upto=upto) for upto in (1, 2))
"""Requests that the door answers with their last frame's number."""
WAIT = Committed(operator="q.o1", batch=0)
REFUSE = Ended(operator="q.o1", run=1, code="", reason="")


class Door:
    """An open listener, and those who knock."""

    def __init__(self, **limits: float) -> None:
        self.asked: list[Request] = []
        self.listener = Listener(self._serve, REQUEST, **limits)  # type: ignore[arg-type]
        self.port, self.token = 0, ""

    async def _serve(self, request: Request) -> Message:
        self.asked.append(request)
        if request == WAIT:
            await asyncio.get_running_loop().create_future()
        if request == REFUSE:
            raise SbonError("no-capacity", "full", where="here")
        assert isinstance(request, Fetch)
        return did(request)

    async def knock(self, said: bytes) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(said)
        return reader, writer

    def hello(self, role: str = "reader") -> bytes:
        return framed({"role": role, "token": self.token})


def framed(content: Any) -> bytes:
    body: bytes = msgpack.packb(content)
    return struct.pack(">I", len(body)) + body


def did(request: Fetch) -> Fetched:
    return Fetched(payloads=(str(request.upto).encode(),))


@asynccontextmanager
async def door(**limits: float) -> AsyncIterator[Door]:
    made = Door(**limits)
    _, port, made.token = (await made.listener.open()).split(":")
    made.port = int(port)
    try:
        yield made
    finally:
        await made.listener.close()


async def body(connection: Connection) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        (length,) = struct.unpack(">I", await connection[0].readexactly(4))
        return await connection[0].readexactly(length)


async def answer(connection: Connection) -> Message:
    return decode(await body(connection), answer_decoder(Fetched))


async def closed(connection: Connection) -> bool:
    """Waits for the other side to close, having said nothing."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await connection[0].read() == b""
        except ConnectionResetError:
            return True


async def test_a_connection_with_the_token_is_served() -> None:
    async with door() as it:
        connection = await it.knock(it.hello() + encode(THIS) + encode(REFUSE) + encode(THAT))
        assert await answer(connection) == did(THIS)
        assert await answer(connection) == Refused(code="no-capacity", message="full", where="here")
        assert await answer(connection) == did(THAT)


@pytest.mark.parametrize(
    "content, why",
    [
        (b"\xc1\xc1\xc1\xc1", "malformed"),
        (msgpack.packb([1, 2]), "Expected `object`, got `array`"),
        (msgpack.packb({"type": "Dance", "operator": "q.o1"}), "Invalid value 'Dance'"),
        (msgpack.packb({"type": "Committed", "operator": "q.o1"}), "missing required field `batch`"),
        (msgpack.packb({"type": "Committed", "operator": "q.o1", "batch": "first"}), "Expected `int`, got `str`"),
        (encode(Close())[4:], "Invalid value 'Close'"),
    ],
)
async def test_a_message_that_is_no_request_is_refused_with_the_reason_and_the_next_one_is_served(
    content: bytes, why: str
) -> None:
    async with door() as it:
        connection = await it.knock(it.hello() + struct.pack(">I", len(content)) + content + encode(THIS))
        refused = await answer(connection)
        assert isinstance(refused, Refused)
        assert (refused.code, refused.message.count(why)) == ("bad-engine-message", 1)
        assert await answer(connection) == did(THIS)
        assert it.asked == [THIS]


def test_an_answer_of_another_type_is_an_error_and_a_refusal_is_an_answer() -> None:
    refused = Refused.of(SbonError("no-capacity", "full", where="here", hint="wait"))
    assert decode(encode(refused)[4:], answer_decoder(Done)) == refused
    assert str(refused.error()) == "here: full (wait)"
    with pytest.raises(SbonError, match="Invalid value 'Fetched'"):
        decode(encode(did(THIS))[4:], answer_decoder(Done))


def test_messages_of_each_kind_are_decoded_as_they_were_encoded() -> None:
    decoders: list[tuple[msgspec.Struct, msgspec.msgpack.Decoder[Any]]] = [
        (THIS, REQUEST),
        (WAIT, REQUEST),
        (Stop(operator="o"), COMMAND),
    ]
    for message, decoder in decoders:
        assert decode(encode(message)[4:], decoder) == message


@pytest.mark.parametrize(
    "said",
    [
        lambda token: framed({"role": "reader", "token": "0" * len(token)}),
        lambda token: framed({"role": "engine", "token": ""}),
        lambda token: framed({"role": "reader", "token": "ü" * len(token)}),
        lambda token: framed({"role": "reader", "token": 7}),
        lambda token: framed({"role": "king", "token": token}),
        lambda token: framed({"token": token}),
        lambda token: framed({"role": "reader", "token": token, "more": "x" * HELLO_BYTES}),
        lambda token: struct.pack(">I", 3) + msgpack.packb([1, 2]),
        lambda token: struct.pack(">I", 4) + b"\xc1\xc1\xc1\xc1",
        lambda token: struct.pack(">I", 200 * 1024 * 1024),
        lambda token: b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_anybody_else_is_turned_away_at_once(said: Callable[[str], bytes]) -> None:
    """The listener does not wait for a message that is longer than a greeting."""
    async with door(hello_s=3600.0) as it:
        assert await closed(await it.knock(said(it.token) + encode(THIS)))
        assert not it.asked


@pytest.mark.parametrize("said", [b"", b"\0\0", struct.pack(">I", HELLO_BYTES) + b"x"])
async def test_a_silent_connection_is_closed(said: bytes) -> None:
    async with door(hello_s=0.05) as it:
        assert await closed(await it.knock(said))


async def test_strangers_are_few_at_a_time() -> None:
    async with door(max_strangers=2, hello_s=3600.0) as it:
        silent = [await it.knock(b"") for _ in range(2)]
        assert await closed(await it.knock(it.hello()))
        silent[0][1].close()
        served = None
        while served is None:
            connection = await it.knock(it.hello() + encode(THIS))
            try:
                served = await answer(connection)
            except (asyncio.IncompleteReadError, ConnectionResetError):
                continue  # it takes a moment to notice that the other one has gone
        assert served == did(THIS)


async def test_a_second_engine_process_is_refused() -> None:
    async with door() as it:
        first = await it.knock(it.hello("engine"))
        _, writer = await it.listener.control
        writer.write(encode(Stop(operator="o")))
        assert decode(await body(first), COMMAND) == Stop(operator="o")
        assert await closed(await it.knock(it.hello("engine")))


async def test_closing_ends_every_connection_and_what_is_answered_there() -> None:
    before = len(asyncio.all_tasks())
    async with door() as it:
        engine, reader, stranger = await it.knock(it.hello("engine")), await it.knock(it.hello()), await it.knock(b"")
        reader[1].write(encode(THIS) + encode(WAIT))
        assert await answer(reader) == did(THIS)
        await it.listener.control
    for connection in (engine, reader, stranger):
        assert await closed(connection)
    assert len(asyncio.all_tasks()) == before


async def test_a_closed_listener_ends_the_wait_for_its_engine_process() -> None:
    async with door() as it:
        control = it.listener.control
    with pytest.raises(ConnectionAbortedError):
        await control

"""``GET /v1/events``: events of a node, sent to its listeners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import aiohttp
import pytest

from sbon_cli import operations
from sbon_node.api.server.http import ApiServer
from sbon_node.base.events import Listening, LogLine, Lost, MemberChanged, NodeEvent
from sbon_protocol.api.nodes import Problem
from tests.api.async_client import AsyncClient
from tests.api.switched_node import SETTINGS, SwitchedNode


def line(message: str) -> partial[LogLine]:
    return partial(LogLine, level="info", message=message)


async def test_listeners_hear_what_they_asked_for_and_are_forgotten(node: SwitchedNode, client: AsyncClient) -> None:
    events = client.events(operations.events(["membership"], "info"))
    assert await anext(events) == Listening(node="a", at_ms=0, kinds=("membership",), level="info")
    node.bus.publish("logs", line("not asked for"))
    node.bus.publish("membership", partial(MemberChanged, member="b", change="suspected", state="suspect"))
    assert await anext(events) == MemberChanged(node="a", at_ms=0, member="b", change="suspected", state="suspect")
    await events.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(30):
        while node.bus.wanted("membership"):  # noqa: ASYNC110  the server has to notice first
            await asyncio.sleep(0.01)


async def test_all_kinds_where_none_are_named(client: AsyncClient) -> None:
    async with aiohttp.ClientSession(client.api) as session, session.get("/v1/events") as response:
        assert response.content_type == "text/event-stream"
        assert await response.content.readline() == b"event: listening\n"
        assert b'"kinds":["logs","membership","placement","queries"]' in await response.content.readline()


async def test_a_slow_listener_learns_how_many_events_it_lost_and_others_continue(
    node: SwitchedNode, client: AsyncClient, server: ApiServer
) -> None:
    """The slow one's socket is full: what it cannot take waits in a bounded queue, the rest is counted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**16)
    writer.write(b"GET /v1/events?kinds=logs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    while b"listening" not in (said := await reader.readline()):
        assert said, "the connection was closed"
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    text = "x" * 4000
    sent = 20_000
    for number in range(sent):
        node.bus.publish("logs", line(f"{number} {text}"))
        if number % 500 == 0:
            await asyncio.sleep(0)
    quick = client.events(operations.events(["logs"], "info"))
    assert isinstance(await anext(quick), Listening)
    reader._transport.resume_reading()  # type: ignore[attr-defined]
    told, lost = 0, 0
    async with asyncio.timeout(60):
        while told + lost < sent:
            data = await reader.readline()
            assert data, "the connection was closed"
            if data.startswith(b"data: "):
                event = operations.events(["logs"], "info").decoded(data[6:])
                if isinstance(event, Lost):
                    lost += event.count
                elif isinstance(event, LogLine):
                    told += 1
    assert lost > 0
    assert told >= SETTINGS.event_queue
    assert told + lost == sent
    node.bus.publish("logs", line("last"))
    last = await anext(quick)
    assert isinstance(last, LogLine)
    assert last.message == "last"
    writer.close()
    await quick.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("query, where", [("kinds=membership,weather", "kinds"), ("level=loud", "level")])
async def test_an_unknown_kind_or_level_is_refused(client: AsyncClient, query: str, where: str) -> None:
    async with aiohttp.ClientSession(client.api) as session, session.get(f"/v1/events?{query}") as response:
        problem = await response.json()
        assert (response.status, problem["code"], problem["where"]) == (400, "bad-request", where)
        assert "known: " in problem["hint"]


async def test_a_node_that_stops_ends_them(node: SwitchedNode) -> None:
    served = ApiServer(node, SETTINGS)
    await served.start("127.0.0.1", 0)
    served.set_ready()
    async with AsyncClient(f"http://127.0.0.1:{served.port}") as opened:
        events: AsyncIterator[NodeEvent | Problem] = opened.events(operations.events([], "info"))
        await anext(events)
        await served.close()
        with pytest.raises(Exception, match="no node answers"):
            await anext(events)
    assert not node.bus.wanted("logs")

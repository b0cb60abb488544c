"""Calls between peers: answered, overtaking each other, bounded, refused with every field."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbon_node.net.peers import Caller
from sbon_node.net.transport import Address, Connection
from sbon_protocol.calls import AskNode, ClaimComponent, Claimed, ListQueries, NodeAnswer, PushCatalogue, QueryRecords, StopQuery
from sbon_protocol.errors import SbonError
from tests.net.two_peers import ASK, RTT_S, B, Two, answer, in_virtual_time, no_reply, refused


def test_a_call_is_answered_and_the_connection_kept() -> None:
    async def body(two: Two) -> None:
        two.server.handle(AskNode, answer)
        two.server.handle(PushCatalogue, no_reply)
        assert await two.server.start(B) == B
        started = two.clock.now()
        reply = await two.peers.call(B, ASK)
        assert reply.reason == "a i-a at 10.0.0.1"
        first_s = two.clock.now() - started
        assert await two.peers.call(B, PushCatalogue(entries=({"name": "x"},))) is None
        assert first_s == pytest.approx(3 * RTT_S)  # connect, handshake, call
        assert two.clock.now() - started - first_s == pytest.approx(RTT_S)

    in_virtual_time(body)


def test_calls_share_a_connection_and_overtake_each_other() -> None:
    async def body(two: Two) -> None:
        accepted = 0

        async def slow_where_asked(call: ClaimComponent, caller: Caller) -> Claimed:
            await two.clock.sleep(call.epoch)
            return Claimed(epoch=call.epoch)

        two.server.handle(ClaimComponent, slow_where_asked)
        await two.server.start(B)
        connect = two.at_a.connect

        async def counting(to: Address, *, timeout_s: float) -> Connection:
            nonlocal accepted
            accepted += 1
            return await connect(to, timeout_s=timeout_s)

        two.at_a.connect = counting  # type: ignore[method-assign]
        order: list[int] = []

        async def claim(epoch: int) -> None:
            order.append((await two.peers.call(B, ClaimComponent(query="q", component="p", epoch=epoch))).epoch)

        await asyncio.gather(*(claim(epoch) for epoch in (3, 1, 2)))
        assert order == [1, 2, 3]
        assert accepted == 1

    in_virtual_time(body)


def test_requests_of_one_connection_are_served_in_bounded_number() -> None:
    async def body(two: Two) -> None:
        running = most = 0

        async def count(call: ListQueries, caller: Caller) -> QueryRecords:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await two.clock.sleep(1)
            running -= 1
            return QueryRecords(queries=())

        two.server.handle(ListQueries, count)
        await two.server.start(B)
        await asyncio.gather(*(two.peers.call(B, ListQueries()) for _ in range(10)))
        assert most == 4

    in_virtual_time(body, max_requests=4)


def test_a_refusal_keeps_every_field_and_the_connection() -> None:
    async def body(two: Two) -> None:
        async def refuse(call: StopQuery, caller: Caller) -> None:
            raise SbonError("no-query", "there is no query x", where="query", hint="list them", details=("one", "two"))

        two.server.handle(StopQuery, refuse)
        two.server.handle(AskNode, answer)
        await two.server.start(B)
        error = await refused(two.peers.call(B, StopQuery(query="x")))
        told = (error.code, error.message, error.where, error.hint, error.details)
        assert told == ("no-query", "there is no query x", "query", "list them", ("one", "two"))
        started = two.clock.now()
        await two.peers.call(B, ASK)
        assert two.clock.now() - started == pytest.approx(RTT_S)

    in_virtual_time(body)


async def _breaks(call: AskNode, caller: Caller) -> NodeAnswer:
    raise KeyError("secret")


async def _answers_too_much(call: AskNode, caller: Caller) -> Any:
    return QueryRecords(queries=tuple("x" * 2000 for _ in range(4000)))


async def _answers_nonsense(call: AskNode, caller: Caller) -> Any:
    return QueryRecords(queries=("x",))


async def _answers_infinity(call: AskNode, caller: Caller) -> Any:
    return NodeAnswer(True, "", (), float("inf"), 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "handler, code",
    [
        (_breaks, "internal"),
        (_answers_too_much, "internal"),
        (_answers_nonsense, "bad-reply"),
        (_answers_infinity, "internal"),
        (None, "unknown-method"),
    ],
)
def test_a_broken_or_missing_handler_is_reported_to_its_caller(handler: Any, code: str) -> None:
    async def body(two: Two) -> None:
        if handler is not None:
            two.server.handle(AskNode, handler)
        await two.server.start(B)
        error = await refused(two.peers.call(B, ASK))
        assert error.code == code
        assert "secret" not in str(error)

    in_virtual_time(body)


def test_a_request_that_is_too_large_is_refused_here() -> None:
    async def body(two: Two) -> None:
        await two.server.start(B)
        error = await refused(two.peers.call(B, PushCatalogue(entries=tuple("x" * 2000 for _ in range(4000)))))
        assert error.code == "too-large"

    in_virtual_time(body)

"""Calls to peers that are away, go away, are idle, too many or closed."""

from __future__ import annotations

import asyncio

import pytest

from sbon_node.net.peers import Caller
from sbon_node.net.transport import Address, ConnectionLostError
from sbon_protocol.calls import AskNode, NodeAnswer
from tests.net.two_peers import ASK, HELLO, ONE_WAY_S, RTT_S, B, Two, answer, in_virtual_time, refused


def test_an_absent_node_a_silent_handler_and_a_cut_are_peer_unreachable() -> None:
    async def body(two: Two) -> None:
        async def never(call: AskNode, caller: Caller) -> None:
            await asyncio.get_running_loop().create_future()

        error = await refused(two.peers.call(B, ASK))
        assert (error.code, error.where) == ("peer-unreachable", str(B))
        two.server.handle(AskNode, never)
        await two.server.start(B)
        started = two.clock.now()
        assert (await refused(two.peers.call(B, ASK, timeout_s=7))).code == "peer-unreachable"
        assert two.clock.now() - started == pytest.approx(7)
        two.network.cut("a", "b")
        assert (await refused(two.peers.call(B, ASK, timeout_s=3))).code == "peer-unreachable"
        assert (await refused(two.caller().call(B, ASK))).code == "peer-unreachable"

    in_virtual_time(body)


def test_a_lost_connection_fails_what_is_under_way_and_is_made_anew() -> None:
    async def body(two: Two) -> None:
        async def never(call: AskNode, caller: Caller) -> None:
            await asyncio.get_running_loop().create_future()

        two.server.handle(AskNode, never)
        await two.server.start(B)
        calls = [asyncio.create_task(refused(two.peers.call(B, ASK, timeout_s=100))) for _ in range(3)]
        await two.clock.sleep(1)
        started = two.clock.now()
        await two.server.close()
        assert [error.code for error in await asyncio.gather(*calls)] == ["peer-unreachable"] * 3
        assert two.clock.now() - started < 1
        two.server = two.serving()
        two.server.handle(AskNode, answer)
        await two.server.start(B)
        assert (await two.peers.call(B, ASK)).accepted

    in_virtual_time(body)


def test_callers_to_a_dead_address_share_one_attempt() -> None:
    async def body(two: Two) -> None:
        two.network.cut("a", "b")
        started = two.clock.now()
        errors = await asyncio.gather(*(refused(two.peers.call(B, ASK, timeout_s=60)) for _ in range(5)))
        assert [error.code for error in errors] == ["peer-unreachable"] * 5
        assert two.clock.now() - started == pytest.approx(5)

    in_virtual_time(body, connect_timeout_s=5)


def test_a_caller_that_gives_up_spoils_nothing_for_the_others() -> None:
    async def body(two: Two) -> None:
        two.server.handle(AskNode, answer)
        await two.server.start(B)
        impatient = asyncio.create_task(two.peers.call(B, ASK))
        patient = asyncio.create_task(two.peers.call(B, ASK))
        await two.clock.sleep(RTT_S * 1.5)
        impatient.cancel()
        assert (await patient).accepted
        assert impatient.cancelled()
        impatient = asyncio.create_task(two.peers.call(B, ASK))
        await two.clock.sleep(RTT_S / 2)
        impatient.cancel()
        assert (await two.peers.call(B, ASK)).accepted

    in_virtual_time(body)


def test_idle_connections_end_and_the_next_call_makes_one() -> None:
    async def body(two: Two) -> None:
        async def slow(call: AskNode, caller: Caller) -> NodeAnswer:
            await two.clock.sleep(100)
            return await answer(call, caller)

        two.server.handle(AskNode, slow)
        await two.server.start(B)
        assert (await two.peers.call(B, ASK, timeout_s=200)).accepted  # a request under way is not idleness
        idle = await two.raw(HELLO)
        started = two.clock.now()
        with pytest.raises(ConnectionLostError):
            await idle.read_exactly(1)
        assert two.clock.now() - started == pytest.approx(10, abs=1)
        assert (await two.peers.call(B, ASK, timeout_s=200)).accepted

    in_virtual_time(body, idle_s=10)


def test_connections_are_bounded_on_both_sides() -> None:
    async def body(two: Two) -> None:
        two.server.handle(AskNode, answer)
        await two.server.start(B)
        kept = [await two.raw(HELLO) for _ in range(2)]
        more = await two.raw()
        with pytest.raises(ConnectionLostError):
            await more.read_exactly(1)
        assert two.b_counters.snapshot()["connection-refused"] == 1
        kept[0].close()
        await two.clock.sleep(1)
        assert (await two.peers.call(B, ASK)).accepted
        for port in range(10):
            await refused(two.peers.call(Address(B.host, 9000 + port), ASK))
        assert len(two.peers._routes) <= 2

    in_virtual_time(body, max_connections=2)


def test_closing_ends_calls_and_refuses_new_ones() -> None:
    async def body(two: Two) -> None:
        async def never(call: AskNode, caller: Caller) -> None:
            await asyncio.get_running_loop().create_future()

        two.server.handle(AskNode, never)
        await two.server.start(B)
        call = asyncio.create_task(refused(two.peers.call(B, ASK, timeout_s=100)))
        await two.clock.sleep(1)
        connecting = asyncio.create_task(refused(two.peers.call(Address(B.host, 1), ASK, timeout_s=100)))
        await two.clock.sleep(ONE_WAY_S)
        await two.peers.close()
        assert [(await task).code for task in (call, connecting)] == ["peer-unreachable"] * 2
        assert (await refused(two.peers.call(B, ASK))).code == "peer-unreachable"

    in_virtual_time(body)

"""The handshake of peers, and peers that break the protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbon_node.net.peers import Caller, Expected
from sbon_node.net.transport import Connection, ConnectionLostError
from sbon_protocol.calls import AskNode, NodeAnswer
from sbon_protocol.frames import encode_frame, read_frame
from sbon_protocol.messages import Ended, Endpoint, Frame, Hello, Refused, Request, Response, Welcome
from sbon_protocol.version import VERSION
from tests.net.two_peers import ASK, BROKEN, HELLO, RTT_S, A, B, Two, answer, in_virtual_time, refused


@pytest.mark.parametrize(
    "change, code",
    [
        ({"version": 9, "oldest_version": 8}, "version"),
        ({"version": 0, "oldest_version": 0}, "version"),
        ({"cluster": "other"}, "wrong-cluster"),
        ({"role": "stream"}, "no-streams"),
        ({"role": "copy"}, "no-copies"),
        ({"expected_node": "c"}, "wrong-node"),
        ({"expected_node": "b", "expected_instance": "i-earlier"}, "wrong-node"),
        ({"expected_instance": "i-earlier"}, "wrong-node"),
    ],
)
def test_a_hello_that_cannot_be_served_is_refused_with_a_reason(change: dict[str, Any], code: str) -> None:
    async def body(two: Two) -> None:
        await two.server.start(B)
        connection = await two.raw()
        hello = {name: getattr(HELLO, name) for name in HELLO.__struct_fields__} | change
        connection.write(encode_frame(Hello(**hello)))
        told = await read_frame(connection.read_exactly)
        assert isinstance(told, Refused)
        assert told.code == code
        with pytest.raises(ConnectionLostError):
            await connection.read_exactly(1)
        assert two.b_counters.snapshot() == {"handshake-refused": 1}

    in_virtual_time(body)


def test_the_greatest_common_version_is_used_and_the_caller_learns_its_observed_address() -> None:
    async def body(two: Two) -> None:
        await two.server.start(B)
        connection = await two.raw()
        connection.write(encode_frame(Hello(version=VERSION + 5, oldest_version=2, cluster="sbon", node="a", role="rpc")))
        told = await read_frame(connection.read_exactly)
        assert isinstance(told, Welcome)
        assert (told.version, told.node, told.seen.host) == (VERSION, "b", A.host)

    in_virtual_time(body)


def test_a_caller_of_another_cluster_learns_its_name() -> None:
    async def body(two: Two) -> None:
        await two.server.start(B)
        stranger = two.caller("other")
        assert (await refused(stranger.call(B, ASK))).code == "wrong-cluster"
        assert (await refused(stranger.open_stream(B))).code == "wrong-cluster"
        await stranger.close()

    in_virtual_time(body)


WRONG = [Expected("c"), Expected("b", "i-earlier")]


@pytest.mark.parametrize("expected", WRONG)
def test_a_call_for_another_node_reaches_no_handler(expected: Expected) -> None:
    served = []

    async def serve(call: AskNode, caller: Caller) -> NodeAnswer:
        served.append(call)
        return await answer(call, caller)

    async def body(two: Two) -> None:
        two.server.handle(AskNode, serve)
        await two.server.start(B)
        assert (await two.peers.call(B, ASK)).accepted
        assert (await two.peers.call(B, ASK, expected=Expected("b", "i-b"))).accepted
        error = await refused(two.peers.call(B, ASK, expected=expected))
        assert (error.code, "b is there" in error.message, len(served)) == ("peer-unreachable", True, 2)
        with pytest.raises(ConnectionLostError, match="b is there"):
            await two.peers.open_stream(B, expected)
        assert two.b_counters.snapshot() == {"handshake-refused": 2}

    in_virtual_time(body)


@pytest.mark.parametrize("expected", WRONG)
def test_an_answer_of_another_node_ends_the_connection(expected: Expected) -> None:
    """The node that answers ignores the caller's expectation."""

    async def body(two: Two) -> None:
        async def serve(connection: Connection) -> None:
            await read_frame(connection.read_exactly)
            connection.write(encode_frame(Welcome(version=VERSION, node="b", seen=Endpoint(host="h", port=1), instance="i-b")))
            with pytest.raises(ConnectionLostError):
                await connection.read_exactly(1)

        listener = await two.at_b.listen(B, serve)
        assert (await refused(two.peers.call(B, ASK, expected=expected))).code == "peer-unreachable"
        with pytest.raises(ConnectionLostError, match="b is there"):
            await two.peers.open_stream(B, expected)
        assert two.a_counters.snapshot() == {"wrong-node": 2}
        await listener.close()

    in_virtual_time(body)


@pytest.mark.parametrize("greeted", [False, True], ids=["instead of a hello", "after it"])
@pytest.mark.parametrize("rubbish", BROKEN.values(), ids=BROKEN.keys())
def test_rubbish_is_counted_once_and_ends_only_its_own_connection(rubbish: bytes, greeted: bool) -> None:
    async def body(two: Two) -> None:
        two.server.handle(AskNode, answer)
        await two.server.start(B)
        await two.peers.call(B, ASK)
        connection = await two.raw(HELLO if greeted else None)
        connection.write(rubbish)
        with pytest.raises(ConnectionLostError):
            await connection.read_exactly(1)
        assert two.b_counters.snapshot() == {"frame-malformed": 1}
        started = two.clock.now()
        assert (await two.peers.call(B, ASK)).accepted
        assert two.clock.now() - started == pytest.approx(RTT_S)

    in_virtual_time(body)


def test_a_silent_caller_is_disconnected() -> None:
    async def body(two: Two) -> None:
        await two.server.start(B)
        connection = await two.raw()
        connection.write(encode_frame(HELLO)[:9])
        with pytest.raises(ConnectionLostError):
            await connection.read_exactly(1)
        assert two.b_counters.snapshot() == {"connection-timeout": 1}

    in_virtual_time(body, connect_timeout_s=2)


def test_a_body_of_the_wrong_form_is_a_bad_request_and_the_connection_stays() -> None:
    async def body(two: Two) -> None:
        two.server.handle(AskNode, answer)
        await two.server.start(B)
        connection = await two.raw(HELLO)
        for number, wrong in enumerate([None, 5, ["a"], [1, 2], [-1.0, 1.0, 1.0], {"cores": 1}]):
            connection.write(encode_frame(Request(id=number, method="ask-node", body=wrong)))
            told = await read_frame(connection.read_exactly)
            assert (told.id, told.code) == (number, "bad-request")  # type: ignore[union-attr]
        connection.write(encode_frame(Request(id=9, method="ask-node", body=[1.0, 1, 1.0, "unknown to us"])))
        assert isinstance(await read_frame(connection.read_exactly), Response)

    in_virtual_time(body)


@pytest.mark.parametrize("wrong", [Ended(code="x", reason="y"), HELLO, None], ids=lambda value: type(value).__name__)
def test_a_server_that_breaks_the_protocol_is_left(wrong: Frame | None) -> None:
    async def body(two: Two) -> None:
        async def serve(connection: Connection) -> None:
            await read_frame(connection.read_exactly)
            connection.write(encode_frame(Welcome(version=VERSION, node="b", seen=Endpoint(host="h", port=1))))
            await read_frame(connection.read_exactly)
            connection.write(encode_frame(wrong) if wrong is not None else b"\0\0\0\1\xc1")
            await asyncio.get_running_loop().create_future()

        listener = await two.at_b.listen(B, serve)
        assert (await refused(two.peers.call(B, ASK))).code == "peer-unreachable"
        assert two.a_counters.snapshot() == {"frame-malformed": 1}
        await listener.close()

    in_virtual_time(body)

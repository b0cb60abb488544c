"""Stream connections between peers, and subscribers that break the protocol."""

from __future__ import annotations

import random

import pytest

from sbon_node.net.peers import FrameChannel
from sbon_node.net.transport import Address, ConnectionLostError
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Data, Ended, Hello, Subscribe, Welcome
from sbon_protocol.version import VERSION
from tests.net.two_peers import BROKEN, B, Two, in_virtual_time


def test_a_stream_connection_is_its_handlers_own() -> None:
    async def body(two: Two) -> None:
        async def serve(channel: FrameChannel, hello: Hello) -> None:
            subscribe = await channel.receive()
            assert isinstance(subscribe, Subscribe)
            payload = random.Random(1).randbytes(4 * 1024 * 1024)
            for number in (1, 2):
                await channel.send(Data(number, 1, 5, 0, False, 0, payload))
            await channel.send(Ended(code="done", reason=f"{hello.node} {channel.peer is hello}"))

        two.server.on_stream(serve)
        await two.server.start(B)
        channel = await two.peers.open_stream(B)
        assert isinstance(channel.peer, Welcome)
        assert (channel.peer.node, channel.address) == ("b", B)
        await channel.send(Subscribe(stream="s", subscriber="x", next=1, epoch=0, credit_bytes=1))
        got = [await channel.receive() for _ in range(3)]
        assert [frame.number for frame in got if isinstance(frame, Data)] == [1, 2]
        assert {frame.payload for frame in got if isinstance(frame, Data)} == {random.Random(1).randbytes(4 * 1024 * 1024)}
        assert got[2] == Ended(code="done", reason="a True")
        with pytest.raises(ConnectionLostError):
            await channel.receive()
        with pytest.raises(ConnectionLostError):
            await two.peers.open_stream(Address(B.host, 1))

    in_virtual_time(body)


def test_a_subscriber_that_breaks_the_protocol_is_counted_once() -> None:
    async def body(two: Two) -> None:
        async def serve(channel: FrameChannel, hello: Hello) -> None:
            with pytest.raises(ProtocolError) as caught:
                await channel.receive()
            raise caught.value

        two.server.on_stream(serve)
        await two.server.start(B)
        hello = Hello(version=VERSION, oldest_version=VERSION, cluster="sbon", node="a", role="stream")
        connection = await two.raw(hello)
        connection.write(BROKEN["no message"])
        with pytest.raises(ConnectionLostError):
            await connection.read_exactly(1)
        assert two.b_counters.snapshot() == {"frame-malformed": 1}

    in_virtual_time(body)

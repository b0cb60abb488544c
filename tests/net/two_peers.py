"""Two peers over the network in memory, in virtual time, and what they ask and answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_lab.simulation.network.network import SimulatedNetwork
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.process import Process
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Caller, Identity, Peers, PeerServer
from sbon_node.net.settings import NetSettings
from sbon_node.net.transport import Address, Connection
from sbon_protocol.calls import AskNode, NodeAnswer
from sbon_protocol.errors import SbonError
from sbon_protocol.frames import encode_frame, read_frame
from sbon_protocol.messages import Hello, Progress, Welcome
from sbon_protocol.version import VERSION

A, B = Address("10.0.0.1", 7400), Address("10.0.0.2", 7400)
ONE_WAY_S = 0.05
RTT_S = 2 * ONE_WAY_S


class Two:
    """a calls, b serves; 50 ms apart, without jitter."""

    def __init__(self, loop: VirtualLoop, settings: NetSettings) -> None:
        self.settings = settings
        self.network = SimulatedNetwork(random.Random(1), lambda a, b: ONE_WAY_S, NetworkQuality(jitter=0.0, spike=0.0))
        self.clock = loop.clock()
        self.at_a = self.network.transport(Process("a#1"), "a", A.host)
        self.at_b = self.network.transport(Process("b#1"), "b", B.host)
        self.a_counters, self.b_counters = Counters(self.clock.now), Counters(self.clock.now)
        self.peers = self.caller()
        self.server = self.serving()

    def caller(self, cluster: str = "sbon") -> Peers:
        return Peers(self.at_a, self.clock, Identity(cluster, "a", "i-a"), self.settings, self.a_counters)

    def serving(self) -> PeerServer:
        return PeerServer(self.at_b, self.clock, Identity("sbon", "b", "i-b"), self.settings, self.b_counters)

    async def raw(self, hello: Hello | None = None) -> Connection:
        """A bare connection from a, having said ``hello`` and read the answer, if given."""
        connection = await self.at_a.connect(B, timeout_s=5)
        if hello is not None:
            connection.write(encode_frame(hello))
            assert isinstance(await read_frame(connection.read_exactly), Welcome)
        return connection


HELLO = Hello(version=VERSION, oldest_version=VERSION, cluster="sbon", node="a", role="rpc", instance="i-a")
ASK = AskNode(cores=1.0, memory_mb=10.0, bandwidth_bytes_s=0.0)


def in_virtual_time(body: Callable[[Two], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        two = Two(loop, NetSettings(**settings))
        await body(two)
        await two.peers.close()
        await two.server.close()
        assert loop.unhandled == []

    run(main, seed=1, max_time_s=3600)


async def refused(asking: Coroutine[Any, Any, Any]) -> SbonError:
    with pytest.raises(SbonError) as caught:
        await asking
    return caught.value


async def answer(call: AskNode, caller: Caller) -> NodeAnswer:
    return NodeAnswer(
        accepted=True,
        reason=f"{caller.node} {caller.instance} at {caller.address.host}",
        operators=(),
        free_cores=call.cores,
        free_memory_mb=1.0,
        free_bandwidth_bytes_s=1.0,
        load=0.0,
    )


async def no_reply(call: Any, caller: Caller) -> None:
    """Served, and nothing to say."""


def _length(size: int) -> bytes:
    return size.to_bytes(4, "big")


BROKEN = {
    "no frame": b"GET / HTTP/1.1\r\n\r\n",
    "too long": _length(2**31),
    "empty": _length(0),
    "no message": _length(3) + b"\xc1\xc1\xc1",
    "unknown tag": _length(5) + b"\x91\xa3new",
    "no request": encode_frame(Progress(received=0, acknowledged=0, credit_bytes=0, epoch=0)),
}

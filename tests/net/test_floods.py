"""Connections of one address leave room for others: real sockets on uvloop, as the daemon runs."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from sbon_node.base.clock import Clock
from sbon_node.net.counters import Counters
from sbon_node.net.names import site_of
from sbon_node.net.peers import Identity, Peers, PeerServer
from sbon_node.net.settings import NetSettings
from sbon_node.net.sockets import SocketTransport
from sbon_node.net.transport import Address
from sbon_protocol.calls import AskNode
from sbon_protocol.frames import encode_frame
from sbon_protocol.messages import Hello
from sbon_protocol.version import OLDEST_VERSION, VERSION
from tests.net.two_peers import answer

ASK = AskNode(cores=1.0, memory_mb=10.0, bandwidth_bytes_s=0.0)
HELLO = Hello(version=VERSION, oldest_version=OLDEST_VERSION, cluster="c", node="mallory", role="rpc", instance="m" * 16)
FLOOD = 1100
"""More connections than a node takes altogether."""


async def flood(address: Address, said: bytes, count: int) -> list[asyncio.StreamWriter]:
    held = []
    for _ in range(count):
        _, writer = await asyncio.open_connection(address.host, address.port, local_addr=("127.0.0.3", 0))
        writer.write(said)
        held.append(writer)
    return held


async def answered_and_refused(said: bytes) -> tuple[int, int]:
    """Return the calls from two other addresses that are accepted, and the connections refused, beside a flood that says this."""
    clock, settings = Clock.real(), NetSettings(connect_timeout_s=30.0)
    counters = Counters(clock.now)
    server = PeerServer(SocketTransport(clock, settings, counters), clock, Identity("c", "a", "a" * 16), settings, counters)

    server.handle(AskNode, answer)
    address = await server.start(Address("127.0.0.1", 0))
    held, accepted = await flood(address, said, FLOOD), 0
    try:
        for source in ("127.0.0.1", "127.0.0.2"):
            transport = SocketTransport(clock, settings, counters, source_host=source)
            peers = Peers(transport, clock, Identity("c", "b", "b" * 16), settings, counters)
            accepted += (await peers.call(address, ASK)).accepted
            await peers.close()
        return accepted, counters.snapshot()["connection-refused"]
    finally:
        for writer in held:
            writer.close()
        await server.close()


@pytest.mark.parametrize("said", [b"", encode_frame(HELLO)], ids=["nothing", "hello"])
def test_connections_of_one_address_leave_room_for_others(said: bytes) -> None:
    accepted, refused = uvloop.run(answered_and_refused(said))
    assert accepted == 2
    assert FLOOD - NetSettings().max_connections_per_address <= refused <= FLOOD


@pytest.mark.parametrize(
    "one, other, same",
    [
        ("2001:db8::1", "2001:db8::ffff:0:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("192.0.2.1", "192.0.2.2", False),
    ],
)
def test_addresses_of_one_network_count_as_one(one: str, other: str, same: bool) -> None:
    assert (site_of(one) == site_of(other)) == same

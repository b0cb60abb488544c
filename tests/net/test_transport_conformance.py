"""One contract (:mod:`sbon_node.net.transport`), kept by every transport: a new one is added as a line of ``WORLDS``."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import pytest
import uvloop

from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.loop import run as run_virtually
from sbon_lab.simulation.network.network import SimulatedNetwork
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.process import Process
from sbon_node.base.clock import Clock
from sbon_node.net.counters import Counters
from sbon_node.net.emulation import Delays, DelayTable, EmulatedTransport
from sbon_node.net.settings import NetSettings
from sbon_node.net.sockets import SocketTransport
from sbon_node.net.transport import Address, Connection, ConnectionLostError, Listener, Transport
from tests.addresses import own_host

PATIENCE_S = 30.0
A_HOST, B_HOST = own_host(1), own_host(2)
SETTINGS = NetSettings(write_buffer_bytes=64 * 1024, emulated_flight_bytes=64 * 1024)


class Two(NamedTuple):
    """Two nodes that reach each other, and the time both live in."""

    a: Transport
    b: Transport
    a_host: str
    b_host: str
    clock: Clock

    def at_b(self, port: int = 0) -> Address:
        return Address(self.b_host, port)


Body = Callable[[Two], Coroutine[Any, Any, None]]


def _on_sockets(body: Body, emulate: Callable[[Transport, str, Clock], Transport], clock: Clock) -> Coroutine[Any, Any, None]:
    def transport(host: str) -> Transport:
        return emulate(SocketTransport(clock, SETTINGS, Counters(clock.now), source_host=host), host, clock)

    return asyncio.wait_for(body(Two(transport(A_HOST), transport(B_HOST), A_HOST, B_HOST, clock)), PATIENCE_S)


def _plain(inner: Transport, host: str, clock: Clock) -> Transport:
    return inner


def _emulated(inner: Transport, host: str, clock: Clock) -> Transport:
    table = DelayTable(sites={A_HOST: "here", B_HOST: "there"}, names=("here", "there"), rtt_ms=((0, 6), (6, 0)))
    return EmulatedTransport(inner, Delays(table), host, clock, random.Random(1), SETTINGS, Counters(clock.now))


def sockets(body: Body) -> None:
    asyncio.run(_on_sockets(body, _plain, Clock()))


def sockets_uvloop(body: Body) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_on_sockets(body, _plain, Clock.real()))


def emulation(body: Body) -> None:
    asyncio.run(_on_sockets(body, _emulated, Clock()))


def emulation_uvloop(body: Body) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_on_sockets(body, _emulated, Clock.real()))


def simulation(body: Body) -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        network = SimulatedNetwork(rng, lambda a, b: 0.05, NetworkQuality(jitter=0.0, spike=0.0))
        a = network.transport(Process("a#1"), "a", "10.0.0.1")
        b = network.transport(Process("b#1"), "b", "10.0.0.2")
        await asyncio.wait_for(body(Two(a, b, "10.0.0.1", "10.0.0.2", loop.clock())), 600)
        assert loop.unhandled == []

    run_virtually(main, seed=1)


WORLDS = [sockets, sockets_uvloop, emulation, emulation_uvloop, simulation]
World = Callable[[Body], None]


@pytest.fixture(params=WORLDS, ids=lambda world: str(world.__name__))
def world(request: pytest.FixtureRequest) -> World:
    chosen: World = request.param
    return chosen


class Accepted:
    """A listener at b that hands its connections to the test and keeps them open until told."""

    def __init__(self) -> None:
        self.connections: asyncio.Queue[Connection] = asyncio.Queue()
        self.done = asyncio.Event()
        self.cancelled = 0
        self.listener: Listener

    async def handle(self, connection: Connection) -> None:
        self.connections.put_nowait(connection)
        try:
            await self.done.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def joined(two: Two) -> tuple[Connection, Connection, Accepted]:
    """A connection from a to b: a's end, b's end, and the listener."""
    accepted = Accepted()
    accepted.listener = await two.b.listen(two.at_b(), accepted.handle)
    at_a = await two.a.connect(accepted.listener.local, timeout_s=5)
    return at_a, await accepted.connections.get(), accepted


async def ended(reading: Awaitable[object]) -> str:
    with pytest.raises(ConnectionLostError) as caught:
        await reading
    return str(caught.value)


# -- datagrams --------------------------------------------------------------------------------------------------------


def test_datagrams_arrive_whole_with_sender_and_stamps(world: World) -> None:
    async def body(two: Two) -> None:
        got: asyncio.Queue[tuple[bytes, Address, float]] = asyncio.Queue()
        a = await two.a.open_datagrams(Address(two.a_host, 0), lambda *arrival: got.put_nowait(arrival))
        b = await two.b.open_datagrams(two.at_b(), lambda payload, sender, stamp: void(b.send(payload[::-1], sender)))
        sent = a.send(b"x" * 1199 + b"y", b.local)
        payload, sender, stamp = await got.get()
        assert payload == b"y" + b"x" * 1199
        assert sender == b.local
        assert sent <= stamp <= two.clock.now()
        assert a.local.host == two.a_host
        assert a.local.port > 0
        a.close()
        b.close()

    world(body)


def void(_: object) -> None:
    """Handlers of datagrams give nothing back."""


def test_a_datagram_over_the_limit_is_our_own_bug(world: World) -> None:
    async def body(two: Two) -> None:
        a = await two.a.open_datagrams(Address(two.a_host, 0), lambda *_: None)
        with pytest.raises(ValueError, match="1201"):
            a.send(b"x" * 1201, two.at_b(9))
        a.close()

    world(body)


def test_sending_to_an_absent_address_does_no_harm(world: World) -> None:
    async def body(two: Two) -> None:
        got: asyncio.Queue[bytes] = asyncio.Queue()
        a = await two.a.open_datagrams(Address(two.a_host, 0), lambda *_: None)
        b = await two.b.open_datagrams(two.at_b(), lambda payload, sender, stamp: got.put_nowait(payload))
        gone = await two.b.open_datagrams(two.at_b(), lambda *_: None)
        nobody = gone.local
        gone.close()
        for number in range(20):
            a.send(b"lost", nobody)
            a.send(bytes([number]), b.local)
            assert await got.get() == bytes([number])
        a.close()
        b.close()

    world(body)


def test_a_closed_endpoint_neither_sends_nor_receives(world: World) -> None:
    async def body(two: Two) -> None:
        got: list[bytes] = []
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        a = await two.a.open_datagrams(Address(two.a_host, 0), lambda *_: None)
        closed = await two.b.open_datagrams(two.at_b(), lambda payload, sender, stamp: got.append(payload))
        open_ = await two.b.open_datagrams(two.at_b(), lambda payload, sender, stamp: heard.put_nowait(payload))
        closed.close()
        closed.close()
        closed.send(b"too late", open_.local)
        a.send(b"x", closed.local)
        a.send(b"after", open_.local)
        assert await heard.get() == b"after"
        assert got == []
        a.close()
        open_.close()

    world(body)


def test_udp_and_tcp_share_a_port_and_each_is_taken_once(world: World) -> None:
    async def body(two: Two) -> None:
        listener = await two.b.listen(two.at_b(), Accepted().handle)
        endpoint = await two.b.open_datagrams(listener.local, lambda *_: None)
        assert endpoint.local == listener.local
        with pytest.raises(OSError, match=r"in use|bind"):
            await two.b.listen(listener.local, Accepted().handle)
        with pytest.raises(OSError, match=r"in use|bind"):
            await two.b.open_datagrams(listener.local, lambda *_: None)
        await listener.close()
        endpoint.close()

    world(body)


def test_an_address_that_is_not_ours_is_refused(world: World) -> None:
    async def body(two: Two) -> None:
        with pytest.raises(OSError, match=r"assign|bind"):
            await two.b.listen(Address("192.0.2.1", 0), Accepted().handle)
        with pytest.raises(OSError, match=r"assign|bind"):
            await two.b.open_datagrams(Address("192.0.2.1", 0), lambda *_: None)

    world(body)


# -- connections ------------------------------------------------------------------------------------------------------


def test_bytes_arrive_in_order_and_each_side_sees_the_other(world: World) -> None:
    async def body(two: Two) -> None:
        at_a, at_b, accepted = await joined(two)
        assert at_a.peer == accepted.listener.local
        assert at_b.peer.host == two.a_host
        for piece in (b"one", b"", b"two", b"three"):
            at_a.write(piece)
        at_b.write(b"back")
        assert await at_b.read_exactly(5) == b"onetw"
        assert await at_b.read_exactly(0) == b""
        assert await at_b.read_exactly(6) == b"othree"
        assert await at_a.read_exactly(4) == b"back"
        at_a.close()
        accepted.done.set()
        await accepted.listener.close()

    world(body)


@pytest.mark.one_part_per_commit("sockets", parts=6)
def test_a_writer_waits_for_a_slow_reader_and_nothing_is_lost(world: World) -> None:
    async def body(two: Two) -> None:
        at_a, at_b, accepted = await joined(two)
        chunk, count = random.Random(1).randbytes(256 * 1024), 128
        written = 0

        async def write() -> None:
            nonlocal written
            for _ in range(count):
                at_a.write(chunk)
                await at_a.drain()
                written += 1

        writing = asyncio.create_task(write())
        still = -1
        while written != still:
            still = written
            await two.clock.sleep(0.3)
        assert written < count
        for _ in range(count):
            assert await at_b.read_exactly(len(chunk)) == chunk
        await writing
        at_a.close()
        await accepted.listener.close()

    world(body)


def test_bytes_written_before_closing_arrive_before_the_end(world: World) -> None:
    async def body(two: Two) -> None:
        at_a, at_b, accepted = await joined(two)
        at_a.write(b"last words")
        at_a.close()
        at_a.close()
        assert await at_b.read_exactly(4) == b"last"
        await ended(at_b.read_exactly(7))
        await accepted.listener.close()

    world(body)


def test_a_handler_that_returns_closes_its_connection_after_what_it_wrote(world: World) -> None:
    async def body(two: Two) -> None:
        async def greet(connection: Connection) -> None:
            connection.write(b"hello")

        listener = await two.b.listen(two.at_b(), greet)
        at_a = await two.a.connect(listener.local, timeout_s=5)
        assert await at_a.read_exactly(5) == b"hello"
        await ended(at_a.read_exactly(1))
        at_a.close()
        await listener.close()

    world(body)


def test_closing_ends_the_callers_own_waiting_reader(world: World) -> None:
    async def body(two: Two) -> None:
        at_a, _, accepted = await joined(two)
        reading = asyncio.create_task(at_a.read_exactly(1))
        await two.clock.sleep(0.01)
        at_a.close()
        await ended(reading)
        await ended(at_a.read_exactly(1))
        await ended(at_a.drain())
        await accepted.listener.close()

    world(body)


def test_writing_to_a_peer_that_is_gone_is_silent_and_draining_tells(world: World) -> None:
    async def body(two: Two) -> None:
        at_a, at_b, accepted = await joined(two)
        at_b.close()
        with pytest.raises(ConnectionLostError):  # noqa: PT012 - which of them tells depends on what is under way
            while True:
                at_a.write(b"x" * 1024)
                await at_a.drain()
                await two.clock.sleep(0.01)
        at_a.write(b"x")
        at_a.close()
        await accepted.listener.close()

    world(body)


def test_an_absent_peer_is_a_lost_connection(world: World) -> None:
    async def body(two: Two) -> None:
        listener = await two.b.listen(two.at_b(), Accepted().handle)
        await listener.close()
        await ended(two.a.connect(listener.local, timeout_s=5))

    world(body)


def test_closing_a_listener_ends_what_it_accepted(world: World) -> None:
    async def body(two: Two) -> None:
        at_a, _, accepted = await joined(two)
        await accepted.listener.close()
        assert accepted.cancelled == 1
        await ended(at_a.read_exactly(1))
        await ended(two.a.connect(accepted.listener.local, timeout_s=5))
        at_a.close()

    world(body)


def test_one_connection_that_waits_does_not_hold_up_another(world: World) -> None:
    async def body(two: Two) -> None:
        async def echo(connection: Connection) -> None:
            while True:
                connection.write(await connection.read_exactly(1))
                await connection.drain()

        listener = await two.b.listen(two.at_b(), echo)
        silent = await two.a.connect(listener.local, timeout_s=5)
        busy = await two.a.connect(listener.local, timeout_s=5)
        busy.write(b"x")
        assert await busy.read_exactly(1) == b"x"
        silent.close()
        busy.close()
        await listener.close()

    world(body)

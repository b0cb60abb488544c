"""Errors that only real sockets have."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from sbon_node.base.clock import Clock
from sbon_node.net import sockets
from sbon_node.net.counters import Counters
from sbon_node.net.settings import NetSettings
from sbon_node.net.sockets import SocketTransport
from sbon_node.net.transport import Address, Connection, ConnectionLostError, NameUnresolvedError

HERE = Address("127.0.0.1", 0)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - the condition is the system's
        await asyncio.sleep(0.002)


def transport(**settings: int | float) -> tuple[SocketTransport, Counters]:
    clock = Clock.real()
    counters = Counters(clock.now)
    return SocketTransport(clock, NetSettings(**settings), counters), counters  # type: ignore[arg-type]


async def test_a_refused_datagram_is_counted_and_the_next_send_is_not_the_one_to_suffer() -> None:
    net, counters = transport()
    got: list[bytes] = []
    receiver = await net.open_datagrams(HERE, lambda payload, sender, stamp: got.append(payload))
    sender = await net.open_datagrams(HERE, lambda *_: None)
    sender._stream._transport._sock.connect(("127.0.0.1", 9))  # type: ignore[attr-defined]  # the system reports refusals to connected sockets alone
    sender.send(b"refused", Address("127.0.0.1", 9))
    await until(lambda: "datagram-error" in counters.snapshot())
    sender._stream._transport._sock.connect(receiver.local)  # type: ignore[attr-defined]
    sender.send(b"fine", receiver.local)
    await until(lambda: got)
    assert got == [b"fine"]
    sender.close()
    receiver.close()


async def test_a_handler_that_breaks_loses_its_datagram_and_no_other() -> None:
    net, _ = transport()
    got: list[bytes] = []

    def handle(payload: bytes, sender: Address, stamp: float) -> None:
        if payload == b"breaks":
            raise KeyError("ours")
        got.append(payload)

    receiver, sender = await net.open_datagrams(HERE, handle), await net.open_datagrams(HERE, lambda *_: None)
    for payload in (b"before", b"breaks", b"after"):
        sender.send(payload, receiver.local)
    await until(lambda: len(got) == 2)
    assert got == [b"before", b"after"]
    sender.close()
    receiver.close()


async def test_datagrams_beyond_the_bound_are_dropped_and_counted_and_the_end_has_its_place() -> None:
    _, counters = transport()
    arrivals = sockets._Arrivals(Clock.real(), counters)
    for _ in range(sockets.MOST_WAITING + 2):
        arrivals.put_nowait((b"x", HERE))
    assert counters.snapshot() == {"datagram-dropped": 2}
    arrivals.put_nowait((None, None))
    taken = [arrivals.get_nowait()[0] for _ in range(arrivals.qsize())]
    assert (len(taken), taken[-1]) == (sockets.MOST_WAITING, None)


async def test_a_datagram_over_the_limit_never_reaches_the_handler() -> None:
    net, counters = transport()
    got: list[bytes] = []
    receiver = await net.open_datagrams(HERE, lambda payload, sender, stamp: got.append(payload))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
        raw.sendto(b"x" * 1201, receiver.local)
        raw.sendto(b"x" * 1200, receiver.local)
    await until(lambda: got)
    assert [len(payload) for payload in got] == [1200]
    assert counters.snapshot() == {"datagram-too-large": 1}
    receiver.close()


async def test_host_names_are_resolved_aside_and_what_cannot_be_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    net, counters = transport(max_names=2)
    got: list[bytes] = []
    receiver = await net.open_datagrams(HERE, lambda payload, sender, stamp: got.append(payload))
    sender = await net.open_datagrams(HERE, lambda *_: None)

    async def resolve(host: str, port: object) -> list[tuple[object, ...]]:
        if host != "node-1":
            raise socket.gaierror(-2, "Name or service not known")
        return [(2, 1, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    sender.send(b"lost", Address("node-1", receiver.local.port))
    await until(lambda: not sender._names._asking)  # type: ignore[attr-defined]
    sender.send(b"found", Address("node-1", receiver.local.port))
    for number in range(5):
        sender.send(b"x", Address(f"nobody-{number}", 9))
    await until(lambda: got and counters.snapshot().get("name-unresolved"))
    assert got == [b"found"]
    assert counters.snapshot()["datagram-not-sent"] == 6
    sender.close()
    receiver.close()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 64 + ".invalid"])
async def test_a_name_without_an_address_is_no_absent_peer(host: str) -> None:
    net, _ = transport()
    with pytest.raises(NameUnresolvedError, match=f"{host}:7400: the name {host} cannot be resolved: "):
        await net.connect(Address(host, 7400), timeout_s=30)


async def test_a_flood_of_datagrams_leaves_nothing_queued() -> None:
    net, _ = transport()
    handled: list[float] = []
    receiver = await net.open_datagrams(HERE, lambda payload, sender, stamp: handled.append(stamp))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
        for _ in range(2000):
            raw.sendto(b"x", receiver.local)
    await until(lambda: len(handled) > 100)
    receiver.close()
    count = len(handled)
    await asyncio.sleep(0.02)
    assert len(handled) == count
    assert handled == sorted(handled)


async def test_a_peer_that_vanishes_is_watched_for() -> None:
    net, _ = transport(dead_after_s=8)
    options: list[int] = []

    async def look(connection: Connection) -> None:
        sock = connection._writer.get_extra_info("socket")  # type: ignore[attr-defined]
        options.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        options.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))
        options.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))

    listener = await net.listen(HERE, look)
    connection = await net.connect(listener.local, timeout_s=5)
    with pytest.raises(ConnectionLostError):
        await connection.read_exactly(1)
    assert options == [1, 2, 8000]
    connection.close()
    await listener.close()


async def test_connections_are_made_from_the_source_host_or_not_at_all() -> None:
    clock = Clock.real()
    seen: list[str] = []

    async def look(connection: Connection) -> None:
        seen.append(connection.peer.host)

    listener = await transport()[0].listen(HERE, look)
    for host in ("127.0.77.7", "0.0.0.0"):
        net = SocketTransport(clock, NetSettings(), Counters(clock.now), source_host=host)
        connection = await net.connect(listener.local, timeout_s=5)
        with pytest.raises(ConnectionLostError):
            await connection.read_exactly(1)
        connection.close()
    assert seen == ["127.0.77.7", "127.0.0.1"]
    foreign = SocketTransport(clock, NetSettings(), Counters(clock.now), source_host="192.0.2.1")
    with pytest.raises(ConnectionLostError):
        await foreign.connect(listener.local, timeout_s=5)
    await listener.close()


async def test_a_handler_that_breaks_ends_its_connection_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    net, _ = transport()

    async def breaks(connection: Connection) -> None:
        connection.write(await connection.read_exactly(1))
        raise KeyError("ours")

    listener = await net.listen(HERE, breaks)
    for _ in range(2):
        connection = await net.connect(listener.local, timeout_s=5)
        connection.write(b"x")
        assert await connection.read_exactly(1) == b"x"
        with pytest.raises(ConnectionLostError):
            await connection.read_exactly(1)
        connection.close()
    await listener.close()


async def test_a_closed_connection_whose_peer_reads_nothing_is_given_up() -> None:
    net, _ = transport(linger_s=0.05)
    accepted: asyncio.Queue[Connection] = asyncio.Queue()

    async def hold(connection: Connection) -> None:
        accepted.put_nowait(connection)
        await asyncio.get_running_loop().create_future()

    listener = await net.listen(HERE, hold)
    connection = await net.connect(listener.local, timeout_s=5)
    connection.write(bytes(32 * 2**20))
    connection.close()
    inner = connection._writer.transport  # type: ignore[attr-defined]
    await until(lambda: inner.get_write_buffer_size() == 0)
    assert inner.is_closing()
    await accepted.get()
    await listener.close()

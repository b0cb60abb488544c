"""The network in memory, beyond the transports' contract: faults, bounds, figures and determinism."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_lab.simulation.network.network import SimulatedNetwork, SimulatedTransport
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.process import Process
from sbon_node.net.transport import Address, Connection, ConnectionLostError

A, B = Address("10.0.0.1", 7400), Address("10.0.0.2", 7400)


class Two:
    """Two nodes, 50 ms apart, no jitter unless asked for."""

    def __init__(self, quality: NetworkQuality, seed: int = 1) -> None:
        self.network = SimulatedNetwork(random.Random(seed), lambda a, b: 0.05, quality)
        self.a, self.b = Process("a#1"), Process("b#1")
        self.at_a: SimulatedTransport = self.network.transport(self.a, "a", A.host)
        self.at_b: SimulatedTransport = self.network.transport(self.b, "b", B.host)


STEADY = NetworkQuality(jitter=0.0, spike=0.0)


def in_virtual_time(body: Callable[[Two], Coroutine[Any, Any, Any]], quality: NetworkQuality = STEADY, seed: int = 1) -> Any:
    async def main(loop: VirtualLoop, rng: random.Random) -> Any:
        result = await body(Two(quality, seed))
        assert loop.unhandled == []
        return result

    return run(main, seed=seed, max_time_s=3600)


def _arrivals(quality: NetworkQuality, seed: int) -> list[tuple[int, float]]:
    async def body(two: Two) -> list[tuple[int, float]]:
        got: list[tuple[int, float]] = []
        sender = await two.at_a.open_datagrams(A, lambda *_: None)
        await two.at_b.open_datagrams(B, lambda payload, source, at: got.append((payload[0], at)))
        for number in range(200):
            sender.send(bytes([number]), B)
            await asyncio.sleep(0.01)
        await asyncio.sleep(5)
        return got

    result: list[tuple[int, float]] = in_virtual_time(body, quality, seed)
    return result


def test_datagrams_are_lost_doubled_and_overtake_each_other_alike_in_every_run() -> None:
    bad = NetworkQuality(jitter=0.5, loss=0.1, duplicate=0.1, spike=0.02)
    first, again, other = _arrivals(bad, 1), _arrivals(bad, 1), _arrivals(bad, 2)
    numbers = [number for number, _ in first]
    assert first == again != other
    assert 150 < len(set(numbers)) < 200
    assert len(numbers) > len(set(numbers))
    assert numbers != sorted(numbers)
    assert [number for number, _ in _arrivals(STEADY, 1)] == list(range(200))


async def _pair(two: Two) -> tuple[Connection, Connection]:
    accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

    async def keep(connection: Connection) -> None:
        if not accepted.done():
            accepted.set_result(connection)
        await asyncio.get_running_loop().create_future()

    await two.at_b.listen(B, keep)
    client = await two.at_a.connect(B, timeout_s=5)
    return client, await accepted


def test_a_connection_is_bounded_and_a_read_larger_than_its_window_ends() -> None:
    async def body(two: Two) -> None:
        client, server = await _pair(two)
        written = 0

        async def write_on() -> None:
            nonlocal written
            while True:
                client.write(b"x" * 10_000)
                written += 10_000
                await client.drain()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(write_on(), 60)
        assert written <= STEADY.window_bytes + STEADY.queue_bytes + 20_000
        assert await server.read_exactly(written - 5_000) == b"x" * (written - 5_000)
        async with asyncio.timeout(60):
            await client.drain()
        big = asyncio.create_task(server.read_exactly(5_000 + 4_000_000))
        client.write(b"y" * 4_000_000)
        assert (await big).count(b"y") == 4_000_000
        assert two.network.traffic("a").stream_bytes_sent == written + 4_000_000

    in_virtual_time(body)


def test_a_cut_holds_bytes_up_until_it_heals() -> None:
    async def body(two: Two) -> float:
        client, server = await _pair(two)
        two.network.cut("a", "b")
        client.write(b"held")
        await asyncio.sleep(5)
        reading = asyncio.create_task(server.read_exactly(4))
        await asyncio.sleep(1)
        assert not reading.done()
        two.network.heal("a", "b")
        assert await reading == b"held"
        return asyncio.get_running_loop().time()

    assert in_virtual_time(body) < 7


@pytest.mark.parametrize("both", [True, False])
def test_a_cut_that_lasts_breaks_the_connection_at_both_ends(both: bool) -> None:
    async def body(two: Two) -> None:
        client, server = await _pair(two)
        two.network.cut("b", "a", both=both)  # one way: the bytes pass, the receipts do not
        client.write(b"x" * 100)
        if not both:
            assert await server.read_exactly(100) == b"x" * 100
        with pytest.raises(ConnectionLostError):
            await client.read_exactly(1)
        with pytest.raises(ConnectionLostError):
            await server.read_exactly(1)
        with pytest.raises(ConnectionLostError):
            await two.at_a.connect(B, timeout_s=3)

    in_virtual_time(body)


def test_a_killed_process_loses_its_ports_and_its_peer_hears_of_it() -> None:
    async def body(two: Two) -> None:
        client, server = await _pair(two)
        heard: list[bytes] = []
        await two.at_b.open_datagrams(B, lambda payload, *_: heard.append(payload))
        sender = await two.at_a.open_datagrams(A, lambda *_: None)
        server.write(b"last words")
        two.b.kill()
        server.write(b"from the grave")
        sender.send(b"anyone?", B)
        assert await client.read_exactly(10) == b"last words"
        with pytest.raises(ConnectionLostError):
            await client.read_exactly(1)
        with pytest.raises(ConnectionLostError, match="refuses"):
            await two.at_a.connect(B, timeout_s=5)
        assert heard == []
        reborn = two.network.transport(Process("b#2"), "b", B.host)
        await reborn.open_datagrams(B, lambda payload, *_: heard.append(payload))
        sender.send(b"anyone?", B)
        await asyncio.sleep(1)
        assert heard == [b"anyone?"]

    in_virtual_time(body)

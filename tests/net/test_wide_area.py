"""The emulated wide area: its table, and delays that hold each way, keep order, and leave bandwidth alone."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_lab.simulation.network.network import SimulatedNetwork
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.process import Process
from sbon_node.base.clock import Clock
from sbon_node.context import ControlSettings
from sbon_node.hosting.machine.machine_resources import Machine
from sbon_node.net.counters import Counters
from sbon_node.net.emulation import REREAD_S, Delays, DelayTable, EmulatedTransport, keep_reread, read_delays
from sbon_node.net.settings import NetSettings
from sbon_node.net.transport import Address, Connection, ConnectionLostError
from sbon_protocol.errors import SbonError

LONDON, TOKYO, NOWHERE = Address("10.0.0.1", 1), Address("10.0.0.2", 1), Address("10.0.0.3", 1)


def table(rtt_ms: float = 200.0, jitter: float = 0.0) -> DelayTable:
    return DelayTable(
        sites={LONDON.host: "london", TOKYO.host: "tokyo"},
        names=("london", "tokyo"),
        rtt_ms=((0, rtt_ms), (rtt_ms, 0)),
        jitter=jitter,
    )


class Area:
    """London and Tokyo, 200 ms apart, and a node without a site, over a network without delays of its own."""

    def __init__(self, loop: VirtualLoop, table: DelayTable, settings: NetSettings) -> None:
        self.clock: Clock = loop.clock()
        self.delays = Delays(table)
        self.counters = Counters(self.clock.now)
        network = SimulatedNetwork(
            random.Random(1), lambda a, b: 0.0, NetworkQuality(jitter=0.0, spike=0.0, window_bytes=64 * 2**20)
        )

        def at(host: str) -> EmulatedTransport:
            inner = network.transport(Process(host), host, host)
            return EmulatedTransport(inner, self.delays, host, self.clock, random.Random(1), settings, self.counters)

        self.london, self.tokyo, self.nowhere = at(LONDON.host), at(TOKYO.host), at(NOWHERE.host)


def in_virtual_time(body: Callable[[Area], Coroutine[Any, Any, None]], area: DelayTable | None = None, **settings: Any) -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        await body(Area(loop, area or table(), NetSettings(**settings)))
        assert loop.unhandled == []

    run(main, seed=1, max_time_s=3600)


async def echo(connection: Connection) -> None:
    while True:
        connection.write(await connection.read_exactly(1))
        await connection.drain()


# -- the table --------------------------------------------------------------------------------------------------------


def test_a_table_is_read_from_its_file_and_halves_the_round_trip(tmp_path: Path) -> None:
    file = tmp_path / "delays.json"
    file.write_text(
        json.dumps({"sites": {"127.0.10.1": "a", "127.0.10.2": "b"}, "names": ["b", "a"], "rtt_ms": [[1, 30], [50, 2]]})
    )
    delays = Delays.load(file)
    assert delays.one_way_s("127.0.10.1", "127.0.10.2") == 0.025
    assert delays.one_way_s("127.0.10.2", "127.0.10.1") == 0.015
    assert delays.one_way_s("127.0.10.1", "127.0.10.1") == 0.001
    assert delays.one_way_s("127.0.10.1", "127.0.0.1") == 0.0


@pytest.mark.parametrize(
    "text, told",
    [
        ("{", "truncated"),
        ("[]", "must be a map, and is a list"),
        ('{"sites": {}, "names": []}', "rtt_ms"),
        ('{"sites": {"h": "x"}, "names": ["y"], "rtt_ms": [[0]]}', "'x'"),
        ('{"sites": {}, "names": ["y"], "rtt_ms": [[0, 1]]}', "1 rows of 1"),
        ('{"sites": {}, "names": ["y", "y"], "rtt_ms": [[0, 1], [1, 0]]}', "repeat"),
        ('{"sites": {}, "names": ["y"], "rtt_ms": [[0]], "cuts": [["y", "z"]]}', "a cut has 'z'"),
        ('{"sites": {}, "names": ["y"], "rtt_ms": [[0]], "load_per_core": {"z": 1}}', "load_per_core has 'z'"),
        ('{"sites": {}, "names": ["y"], "rtt_ms": [[0]], "load_per_core": {"y": -1}}', "load_per_core"),
        ('{"sites": {}, "names": ["y"], "rtt_ms": [[-1]]}', "rtt_ms[0][0]: must be at least 0"),
        ('{"sites": {}, "names": ["y"], "rtt_ms": [[1e9]]}', "rtt_ms[0][0]: must be at most 60000"),
        (None, "No such file"),
    ],
)
def test_a_bad_table_is_refused_with_its_place(tmp_path: Path, text: str | None, told: str) -> None:
    file = tmp_path / "delays.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SbonError) as caught:
        read_delays(file)
    assert (caught.value.code, caught.value.where) == ("bad-delays", str(file))
    assert told in caught.value.message


def test_only_the_sites_that_are_named_have_a_load_of_their_own() -> None:
    delays = Delays(msgspec.structs.replace(table(), load_per_core={"tokyo": 3.5}))
    machine = Machine(ControlSettings(), partial(delays.load_per_core, TOKYO.host))
    assert machine.load() == 3.5
    delays.replace(msgspec.structs.replace(table(), load_per_core={"tokyo": 0.0}))
    assert machine.load() == 0.0
    delays.replace(table())
    assert delays.load_per_core(LONDON.host) is None
    assert machine.load() == pytest.approx(Machine(ControlSettings()).load(), abs=0.5)


def test_a_changed_file_is_read_again_and_a_bad_or_missing_one_leaves_the_delays(tmp_path: Path) -> None:
    file = tmp_path / "delays.json"

    def write(text: str) -> None:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(file)

    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        write(msgspec.json.encode(table(200)).decode())
        delays = Delays.load(file)
        task = asyncio.ensure_future(keep_reread(delays, file, loop.clock()))
        for text, one_way_s in (
            (msgspec.json.encode(table(300)).decode(), 0.15),
            ("{", 0.15),
            (msgspec.json.encode(table(20)).decode(), 0.01),
        ):
            write(text)
            await asyncio.sleep(2 * REREAD_S)
            assert delays.one_way_s(LONDON.host, TOKYO.host) == one_way_s
        file.unlink()
        await asyncio.sleep(2 * REREAD_S)
        assert delays.one_way_s(LONDON.host, TOKYO.host) == 0.01
        task.cancel()

    run(main, seed=1, max_time_s=60)


# -- delays -----------------------------------------------------------------------------------------------------------


def test_datagrams_take_half_the_round_trip_and_unknown_places_none() -> None:
    async def body(area: Area) -> None:
        stamps: list[float] = []
        london = await area.london.open_datagrams(LONDON, lambda payload, sender, stamp: stamps.append(stamp))
        tokyo = await area.tokyo.open_datagrams(TOKYO, lambda payload, sender, stamp: void(tokyo.send(payload, sender)))
        nowhere = await area.nowhere.open_datagrams(NOWHERE, lambda payload, sender, stamp: void(nowhere.send(payload, sender)))
        assert london.send(b"x", TOKYO) == area.clock.now()
        await area.clock.sleep(1)
        assert stamps == [pytest.approx(0.2)]
        london.send(b"x", NOWHERE)
        await area.clock.sleep(1)
        assert stamps[1] == pytest.approx(1.0)
        area.delays.replace(table(1000))
        london.send(b"x", TOKYO)
        await area.clock.sleep(2)
        assert stamps[2] == pytest.approx(3.0)

    in_virtual_time(body)


def void(_: object) -> None:
    """Handlers of datagrams give nothing back."""


def test_jitter_spreads_around_the_table_and_its_median_is_the_tables() -> None:
    async def body(area: Area) -> None:
        taken: list[float] = []
        london = await area.london.open_datagrams(LONDON, lambda *_: None)
        await area.tokyo.open_datagrams(TOKYO, lambda payload, sender, stamp: taken.append(stamp - float(payload)))
        for _ in range(2000):
            london.send(str(area.clock.now()).encode(), TOKYO)
            await area.clock.sleep(0.001)
        await area.clock.sleep(5)
        assert len(taken) == 2000
        assert statistics.median(taken) == pytest.approx(0.1, rel=0.03)
        assert statistics.quantiles(taken, n=20)[18] == pytest.approx(0.1 * 2.718 ** (0.2 * 1.645), rel=0.05)

    in_virtual_time(body, table(jitter=0.2))


def test_connecting_and_each_exchange_take_a_round_trip() -> None:
    async def body(area: Area) -> None:
        listener = await area.tokyo.listen(TOKYO, echo)
        connection = await area.london.connect(TOKYO, timeout_s=5)
        assert area.clock.now() == pytest.approx(0.2)
        for number in range(2, 5):
            connection.write(b"x")
            await connection.read_exactly(1)
            assert area.clock.now() == pytest.approx(0.2 * number)
        with pytest.raises(ConnectionLostError):
            await area.london.connect(TOKYO, timeout_s=0.15)
        connection.close()
        await listener.close()

    in_virtual_time(body)


def test_delay_does_not_serialise_and_keeps_order() -> None:
    async def body(area: Area) -> None:
        chunks = [random.Random(n).randbytes(10_000) for n in range(500)]
        done: asyncio.Future[tuple[bytes, float]] = asyncio.get_running_loop().create_future()

        async def take(connection: Connection) -> None:
            done.set_result((await connection.read_exactly(5_000_000), area.clock.now()))

        listener = await area.tokyo.listen(TOKYO, take)
        connection = await area.london.connect(TOKYO, timeout_s=5)
        started = area.clock.now()
        for chunk in chunks:
            connection.write(chunk)
            await connection.drain()
        assert area.clock.now() == started
        received, at = await done
        assert received == b"".join(chunks)
        assert at - started < 0.1 * 2.5  # one trip, with the longest of 500 draws of jitter; not 500 trips
        connection.close()
        await listener.close()

    in_virtual_time(body, table(jitter=0.2))


def test_bytes_in_flight_are_bounded() -> None:
    async def body(area: Area) -> None:
        got: list[bytes] = []
        london = await area.london.open_datagrams(LONDON, lambda *_: None)
        await area.tokyo.open_datagrams(TOKYO, lambda payload, sender, stamp: got.append(payload))
        for _ in range(100):
            london.send(bytes(1000), TOKYO)
        await area.clock.sleep(1)
        assert len(got) == 65
        assert area.counters.snapshot() == {"emulated-datagram-dropped": 35}
        london.send(b"again", TOKYO)
        await area.clock.sleep(1)
        assert got[-1] == b"again"

        listener = await area.tokyo.listen(TOKYO, _swallow)
        connection = await area.london.connect(TOKYO, timeout_s=5)
        started, written = area.clock.now(), 0
        while area.clock.now() == started:
            connection.write(bytes(1000))
            written += 1
            await connection.drain()
        assert written == 66
        assert area.clock.now() - started == pytest.approx(0.1)
        connection.close()
        await listener.close()

    in_virtual_time(body, emulated_flight_bytes=65_536)


async def _swallow(connection: Connection) -> None:
    while True:
        await connection.read_exactly(1)


def test_a_peer_that_takes_nothing_is_given_up_after_the_linger() -> None:
    async def body(area: Area) -> None:
        async def never(connection: Connection) -> None:
            await area.clock.sleep(1000)

        listener = await area.tokyo.listen(TOKYO, never)
        connection = await area.london.connect(TOKYO, timeout_s=5)
        connection.write(bytes(80 * 2**20))
        connection.close()
        await area.clock.sleep(5.5)
        with pytest.raises(ConnectionLostError):
            await connection.drain()
        assert [task.get_name() for task in asyncio.all_tasks() if "wide area" in task.get_name()] == [
            f"wide area to {LONDON.host}:40001"
        ]
        await listener.close()

    in_virtual_time(body, linger_s=5)


# -- cuts -------------------------------------------------------------------------------------------------------------


def cut(*pairs: tuple[str, str]) -> DelayTable:
    return msgspec.structs.replace(table(), cuts=pairs)


def test_a_cut_loses_datagrams_in_its_direction_only() -> None:
    async def body(area: Area) -> None:
        at_london, at_tokyo = list[bytes](), list[bytes]()
        london = await area.london.open_datagrams(LONDON, lambda payload, sender, stamp: at_london.append(payload))
        tokyo = await area.tokyo.open_datagrams(TOKYO, lambda payload, sender, stamp: at_tokyo.append(payload))
        area.delays.replace(cut(("london", "tokyo")))
        london.send(b"lost", TOKYO)
        tokyo.send(b"passes", LONDON)
        await area.clock.sleep(1)
        area.delays.replace(table())
        london.send(b"healed", TOKYO)
        await area.clock.sleep(1)
        assert (at_london, at_tokyo) == ([b"passes"], [b"healed"])
        assert area.counters.snapshot() == {"emulated-datagram-cut": 1}

    in_virtual_time(body)


def test_bytes_wait_for_the_end_of_a_cut() -> None:
    async def body(area: Area) -> None:
        listener = await area.tokyo.listen(TOKYO, echo)
        connection = await area.london.connect(TOKYO, timeout_s=5)
        area.delays.replace(cut(("london", "tokyo")))
        connection.write(b"x")
        reading = asyncio.ensure_future(connection.read_exactly(1))
        await area.clock.sleep(10)
        assert not reading.done()
        area.delays.replace(table())
        assert await reading == b"x"
        connection.close()
        await listener.close()

    in_virtual_time(body)


@pytest.mark.parametrize("pair", [("london", "tokyo"), ("tokyo", "london")])
def test_no_connection_is_opened_over_a_cut_in_either_direction(pair: tuple[str, str]) -> None:
    async def body(area: Area) -> None:
        listener = await area.tokyo.listen(TOKYO, echo)
        area.delays.replace(cut(pair))
        with pytest.raises(ConnectionLostError, match="no answer within 5 s"):
            await area.london.connect(TOKYO, timeout_s=5)
        opening = asyncio.ensure_future(area.london.connect(TOKYO, timeout_s=30))
        await area.clock.sleep(3)
        area.delays.replace(table())
        (await opening).close()
        await listener.close()

    in_virtual_time(body)

"""Each fault does what it is named for, and is repaired."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.checks import Checker, CheckFailedError
from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.faults.plan import AtTime, Fault, Stage, random_plan
from sbon_lab.simulation.loop import EPOCH_S, VirtualLoop, run
from sbon_lab.simulation.network.network import KERNEL_DATAGRAMS
from sbon_lab.simulation.process import Process
from sbon_node.config.config import Config
from sbon_node.model.frames import FrameDraft
from sbon_node.model.records import QueryRecord
from sbon_node.net.transport import Connection
from sbon_node.ownership.consensus.states import Accepted, Acceptor, Ballot, Configuration, State
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.plan import Plan
from sbon_protocol.api.queries import SinkSpec
from sbon_protocol.api.states.query_states import QueryState
from tests.simulation.test_simulated_network import A, B, Two, in_virtual_time

PLAN = Plan(text="", sources=(), operators=(), outputs=(), schema=())
STAGE = Stage(("a",), ("b", "c"), ("d",), ("a",))


def test_a_paused_process_runs_nothing_and_goes_on_where_it_stood() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> list[float]:
        ticks: list[float] = []

        async def ticking() -> None:
            for _ in range(5):
                await asyncio.sleep(1.0)
                ticks.append(loop.time())

        process = Process("a#1")
        task = process.start(ticking())
        await asyncio.sleep(2.5)
        loop.pause(process)
        await asyncio.sleep(10.0)
        loop.resume(process)
        await asyncio.wait([task])
        return ticks

    assert run(main, seed=1, permute=True) == [1.0, 2.0, 12.5, 13.5, 14.5]


def test_a_paused_process_can_be_killed() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> bool:
        process = Process("a#1")
        task = process.start(asyncio.sleep(5))
        await asyncio.sleep(1)
        loop.pause(process)
        await asyncio.sleep(1)
        process.kill()
        await asyncio.wait([task])
        loop.resume(process)
        return task.cancelled()

    assert run(main, seed=1)


def test_the_kernel_of_a_paused_process_accepts_connections_and_fills_its_buffer() -> None:
    async def body(two: Two) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        got = bytearray()

        async def serve(connection: Connection) -> None:
            while True:
                got.extend(await connection.read_exactly(1000))

        await two.at_b.listen(B, serve)
        loop.pause(two.b)
        connection = await two.at_a.connect(B, timeout_s=1.0)
        for _ in range(1000):
            connection.write(bytes(1000))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await connection.drain()
        assert not got
        loop.resume(two.b)
        await connection.drain()
        await asyncio.sleep(5)
        assert len(got) == 1_000_000

    in_virtual_time(body)


def test_datagrams_for_a_paused_process_wait_in_a_bounded_buffer_with_their_time_of_arrival() -> None:
    async def body(two: Two) -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        stamps: list[float] = []
        sender = await two.at_a.open_datagrams(A, lambda *_: None)
        await two.at_b.open_datagrams(B, lambda payload, source, stamp: stamps.append(stamp))
        loop.pause(two.b)
        for _ in range(KERNEL_DATAGRAMS + 50):
            sender.send(b"ping", B)
        await asyncio.sleep(3)
        assert not stamps
        loop.resume(two.b)
        await asyncio.sleep(1)
        return stamps

    stamps: list[float] = in_virtual_time(body)
    assert len(stamps) == KERNEL_DATAGRAMS
    assert all(0 < stamp < 0.1 for stamp in stamps)


def _in_cluster(body: Callable[[SimulatedCluster], Coroutine[Any, Any, Any]], root: Path, names: str = "abcd") -> Any:
    async def main(loop: VirtualLoop, rng: random.Random) -> Any:
        cluster = SimulatedCluster(loop, 1, names, root, config=Config())
        cluster.start()
        await cluster.together()
        return await body(cluster)

    return run(main, seed=1, max_time_s=3600, permute=True)


def _fault(action: Any, node: str, **more: Any) -> Fault:
    return Fault(AtTime(0.0), action, node, **more)


def test_a_lost_disk_leaves_an_empty_data_directory(tmp_path: Path) -> None:
    async def body(cluster: SimulatedCluster) -> None:
        node = cluster.at("b")
        checkpoint = node.checkpoint("op")
        checkpoint.mkdir()
        before = node.daemon.membership.table.own
        cluster.fault_injector.inject(_fault("wipe", "b", down_s=2.0))
        assert list(node.disk.folder.rglob("*")) == [node.disk.folder / "operators"]
        assert not checkpoint.exists()
        await cluster.until(lambda: node.ready)
        await cluster.together()
        assert node.daemon.membership.table.own.instance != before.instance
        cluster.fault_injector.inject(_fault("power", "b", down_s=1.0))
        await cluster.until(lambda: node.ready)

    _in_cluster(body, tmp_path)


def test_a_partition_separates_a_group_from_the_rest_until_it_heals(tmp_path: Path) -> None:
    async def body(cluster: SimulatedCluster) -> None:
        cut = cluster.network.is_cut
        cluster.fault_injector.inject(_fault("partition", "a", group=("b",), down_s=60.0))
        assert cut("a", "c") and cut("c", "a") and cut("d", "b")  # noqa: PT018 - one statement
        assert not cut("a", "b") and not cut("c", "d")  # noqa: PT018 - one statement
        await cluster.sleep(50)
        assert {node.daemon.membership.others_alive for node in cluster.nodes.values()} == {1}
        await cluster.sleep(11)
        assert not cluster.fault_injector.broken
        await cluster.together()

    _in_cluster(body, tmp_path)


def test_two_nodes_come_back_at_the_addresses_of_each_other(tmp_path: Path) -> None:
    async def body(cluster: SimulatedCluster) -> None:
        b, c = cluster.at("b"), cluster.at("c")
        addresses = b.address, c.address
        cluster.fault_injector.inject(_fault("take-address", "b", other="c", down_s=5.0))
        assert (c.address, b.address) == addresses
        await cluster.until(lambda: c.ready)
        assert not b.alive
        await cluster.until(lambda: b.ready)
        await cluster.together()
        known = cluster.at("a").daemon.membership.table
        members = [known.member(name) for name in "bc"]
        assert [member.address.host for member in members if member] == [address.host for address in reversed(addresses)]

    _in_cluster(body, tmp_path)


def test_a_skewed_clock_is_off_for_the_wall_and_not_for_durations(tmp_path: Path) -> None:
    async def body(cluster: SimulatedCluster) -> None:
        clock = cluster.at("b").daemon.context.clock
        cluster.fault_injector.inject(_fault("skew", "b", offset_s=-60.0, down_s=5.0))
        now = cluster.loop.time()
        assert (clock.wall_ms(), clock.now()) == (round((EPOCH_S + now - 60.0) * 1000), now)
        await cluster.sleep(6)
        assert abs(clock.wall_ms() / 1000 - EPOCH_S - cluster.loop.time()) < 0.01

    _in_cluster(body, tmp_path)


def test_random_plans_draw_every_fault_and_hold_back_the_others_unless_asked() -> None:
    usual = {fault.action for seed in range(300) for fault in random_plan(seed, STAGE)}
    assert not usual & {"wipe", "take-address"}
    assert usual >= {"pause", "partition", "skew", "slow-disk"}
    more = Stage(("a",), ("b", "c"), ("d",), ("a",), also=("wipe",))
    wipes = [[fault.action for fault in random_plan(seed, more)].count("wipe") for seed in range(100)]
    assert set(wipes) == {0, 1}


def test_two_processes_that_publish_an_operators_stream_in_one_epoch_are_noticed(tmp_path: Path) -> None:
    checker = Checker(StreamSettings(), {})
    outboxes = [Outbox(tmp_path / f"{name}.db", StreamSettings()) for name in "ab"]
    for process, outbox, epoch in zip(("a#1", "b#1"), outboxes, (1, 2), strict=True):
        outbox.open_stream("op", "operator", epoch=epoch)
        for batch in range(epoch):
            outbox.write_batch("op", batch, (), [FrameDraft(payload=b"x", rows=1)])
            outbox.publish("op", batch)
        checker.published(outbox, "op", None, process)
    outboxes[0].write_batch("op", 1, (), [FrameDraft(payload=b"x", rows=1)])
    outboxes[0].publish("op", 1)
    checker.published(outboxes[0], "op", None, "a#2", new=False)
    outboxes[0].write_batch("op", 2, (), [FrameDraft(payload=b"x", rows=1)])
    outboxes[0].publish("op", 2)
    with pytest.raises(CheckFailedError, match="a#2 publishes op in epoch 1, as a#1 did"):
        checker.published(outboxes[0], "op", None, "a#2")


ONE, TWO, THREE = (Acceptor(name, f"{name}0") for name in "abc")


def _accepted(state: QueryState, version: int, counter: int, uid: str = "q-aaaaaa") -> list[tuple[str, Accepted]]:
    record = QueryRecord(id=uid, name="q", sql="", state=state, consumer="c", sink=SinkSpec(), plan=PLAN)
    value = State(version, msgspec.msgpack.encode(record), (), Configuration(0, (ONE, TWO, THREE)))
    return [(f"query/{uid}", Accepted(Ballot(counter, "a", "a0"), value))]


@pytest.mark.parametrize(
    "first, then, reason",
    [
        (("running", 3, 1), ("running", 2, 2), "of version 3 became version 2"),
        (("stopped", 3, 1), ("running", 4, 2), "stopped, running"),
        (("running", 3, 1), ("failed", 3, 2), "two values of version 3"),
        (("running", 2, 1), ("running", 2, 1, "q-bbbbbb"), "two queries q run, q-aaaaaa and q-bbbbbb"),
    ],
)
def test_records_that_go_back_and_names_of_two_queries_are_noticed(first: Any, then: Any, reason: str) -> None:
    checks = Checker(StreamSettings(), {}).registers
    checks.stored(ONE, _accepted("stopped", 9, 9))  # by one acceptor alone
    for acceptor in (TWO, THREE):
        checks.stored(acceptor, _accepted(*first))
    checks.stored(TWO, _accepted(*then))
    with pytest.raises(CheckFailedError, match=reason):
        checks.stored(THREE, _accepted(*then))

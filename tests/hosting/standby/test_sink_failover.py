"""Sinks of lost nodes go on at other nodes: a table has each row once, a webhook under each key the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.faults.plan import AtTime, Fault
from sbon_node.connectors.sinks.buffer import BufferedSink
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition, DeliveryPositionFile
from sbon_node.connectors.sinks.registry import SINKS, SinkConnector, SinkFailover, withdraw_position
from sbon_node.queries.driving.deploy import sink_order
from sbon_protocol.api.durability import LOCAL, Durability
from sbon_protocol.api.queries import SinkSpec
from sbon_protocol.calls import TakeOverSink
from sbon_protocol.errors import SbonError
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_replicated_sources import lose
from tests.nodes.clusters import ask, declare, owner_of, source_at, state_of, submit
from tests.nodes.test_moved_operators import FILTER, finished

ROWS = 500
TAKES_S = 0.05
"""Virtual seconds of a transaction, or a post: faults may strike within."""
PATIENCE_S = 120.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """None."""


class Other:
    """The other end of the sinks: a table with positions by claim, and what was posted by key; ``unreachable`` from nodes."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.positions: dict[str, tuple[int, DeliveryPosition]] = {}
        self.posts: dict[str, list[int]] = {}
        self.posters: Counter[str] = Counter()
        """Posts by node."""
        self.unreachable: set[str] = set()

    def check(self, context: SinkContext) -> None:
        if {context.data_dir.name, context.data_dir.parent.name} & self.unreachable:
            raise SbonError("endpoint-unreachable", "no way there", where="table")


class TableSink(BufferedSink):
    """Stores rows and position together, or neither, as a transaction does; changes only a position of its own epoch."""

    flush_after_s, max_buffered_bytes = 0.1, 1 << 20

    def __init__(self, context: SinkContext, other: Other, stored: DeliveryPosition) -> None:
        super().__init__(context, stored)
        self._other = other

    async def _deliver(self, *, finished: bool) -> None:
        self._other.check(self._context)
        await self._context.clock.sleep(TAKES_S)
        buffer, context = self._buffer, self._context
        after = self._advanced(buffer.taken, buffer.ended, buffer.rows, refused=0, finished=finished)
        if self._other.positions.get(context.claim) != (context.epoch, self._at):
            raise SbonError("sink-lost", "another process has changed it", where="table")
        self._other.rows += [row for frame in buffer.frames for row in frame.rows["id"].to_pylist()]
        self._other.positions[context.claim] = (context.epoch, after)
        self._at = after
        buffer.drop(len(buffer.frames))


class HookSink(BufferedSink):
    """Posts frames under their keys, and stores its position at its node."""

    flush_after_s, max_buffered_bytes = 0.1, 1 << 20

    def __init__(self, context: SinkContext, other: Other, stored: DeliveryPosition) -> None:
        super().__init__(context, stored)
        self._other, self._file = other, DeliveryPositionFile(context.data_dir, context.claim)

    async def _deliver(self, *, finished: bool) -> None:
        self._other.check(self._context)
        buffer = self._buffer
        for frame in buffer.frames:
            await self._context.clock.sleep(TAKES_S)
            rows = frame.rows["id"].to_pylist()
            known = self._other.posts.setdefault(f"{self._context.claim}-{frame.stream}-{frame.number}", rows)
            assert known == rows, "other rows under the same key"
            self._other.posters[self._context.data_dir.parent.name] += 1
        after = self._advanced(buffer.taken, buffer.ended, buffer.rows, refused=0, finished=finished)
        await self._state(self._file, after)
        buffer.drop(len(buffer.frames))


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Other:
    """The other end, with two kinds of sinks that lead there: ``table`` and ``hook``."""
    other = Other()

    async def open_table(context: SinkContext, options: Options) -> TableSink:
        other.check(context)
        if context.fresh:
            other.positions[context.claim] = (context.epoch, DeliveryPosition())
        epoch, position = other.positions[context.claim]
        if epoch > context.epoch:
            raise SbonError("fenced", f"epoch {epoch} delivers", where="table")
        other.positions[context.claim] = (context.epoch, position)
        return TableSink(context, other, position)

    async def open_hook(context: SinkContext, options: Options) -> HookSink:
        file = DeliveryPositionFile(context.data_dir, context.claim)
        if context.fresh or (context.acknowledged is not None and not file.path.exists()):
            return HookSink(context, other, file.make(context.acknowledged))
        return HookSink(context, other, file.take_up())

    async def withdraw(context: SinkContext, options: Options, delivered: bool) -> None:
        other.positions.pop(context.claim, None)

    async def reach(context: SinkContext, options: Options) -> None:
        other.check(context)

    async def release(context: SinkContext, options: Options) -> None: ...

    async def release_position(context: SinkContext, options: Options) -> None:
        await withdraw_position(context, options, delivered=False)

    monkeypatch.setitem(
        SINKS, "table", SinkConnector(Options, lambda _, __: None, open_table, withdraw, SinkFailover(reach, release))
    )
    monkeypatch.setitem(
        SINKS,
        "hook",
        SinkConnector(Options, lambda _, __: None, open_hook, withdraw_position, SinkFailover(reach, release_position)),
    )
    return other


async def begun(cluster: SimulatedCluster, kind: str, consumer: str = "e", durability: Durability = LOCAL) -> str:
    """Start a query whose operator runs at its source ``b`` and whose sink is at ``consumer``, and wait for rows there."""
    await declare(cluster, "a", source_at("b", rows=ROWS, rate=20.0))
    sink = SinkSpec(kind=kind, failover=True)
    options = {"sql": FILTER, "strategy": "producer", "consumer": consumer, "sink": sink, "durability": durability}
    await ask(cluster, "a", submit(cluster, "a", None, **options))
    while not (info := await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.2)
    return f"{info.uid}.sink"


async def moved(cluster: SimulatedCluster, sink: str, was: str) -> str:
    """Wait until another node has the sink and the record says so; return that node."""
    deadline = cluster.clock.now() + PATIENCE_S
    while (node := (await owner_of(cluster, "a", sink))[0]) == was or (await state_of(cluster, "a")).consumer != node:
        assert cluster.clock.now() < deadline, (await state_of(cluster, "a")).reason
        await cluster.clock.sleep(0.5)
    return node


def check_rows(other: Other, kind: str) -> None:
    rows = other.rows if kind == "table" else [row for rows in other.posts.values() for row in rows]
    counted = Counter(rows)
    assert max(counted.values()) == 1
    assert len(counted) == ROWS // 2


async def check_released(cluster: SimulatedCluster, *names: str) -> None:
    deadline = cluster.clock.now() + 40.0
    while any(cluster.at(name).daemon.hosting.sinks.components() for name in names):
        assert cluster.clock.now() < deadline
        await cluster.clock.sleep(1.0)


def crashed(cluster: SimulatedCluster, node: str) -> None:
    cluster.crash(cluster.at(node))


def paused(cluster: SimulatedCluster, node: str) -> None:
    cluster.fault_injector.arm([Fault(AtTime(0.0), "pause", node, down_s=45.0)])


def cut_off(cluster: SimulatedCluster, node: str) -> None:
    cluster.network.partition((node,), [name for name in cluster.nodes if name != node])


@pytest.mark.one_part_per_commit("losses of a sink's node", parts=3)
@pytest.mark.parametrize(
    ("fault", "kind"), [(crashed, "table"), (paused, "table"), (cut_off, "table"), (lose, "hook"), (paused, "hook")]
)
def test_another_node_goes_on_with_the_sink_of_a_lost_node(
    tmp_path: Path, other: Other, fault: Callable[[SimulatedCluster, str], Any], kind: str
) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        sink = await begun(cluster, kind)
        fault(cluster, "e")
        node = await moved(cluster, sink, "e")
        rows = (await state_of(cluster, "a")).rows or 0
        while ((await state_of(cluster, "a")).rows or 0) <= rows:
            assert (await state_of(cluster, "a")).state == "running"
            await cluster.clock.sleep(0.5)
        assert (await owner_of(cluster, "a", sink)) == (node, 2)
        if fault is crashed:
            cluster.boot(cluster.at("e"))
        if fault is cut_off:
            cluster.network.rejoin(("e",), [name for name in cluster.nodes if name != "e"])
        await finished(cluster)
        check_rows(other, kind)
        await check_released(cluster, node, *([] if fault is lose else ["e"]))
        assert other.positions == {}

    in_calm_cluster(tmp_path, "abcde", test)


@pytest.mark.one_part_per_commit("kinds of sinks", parts=2)
@pytest.mark.parametrize("kind", ["table", "hook"])
def test_a_sink_is_taken_over_twice(tmp_path: Path, other: Other, kind: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        other.unreachable = {"a", "b"}  # This test asks a, and the operator is at b.
        sink = await begun(cluster, kind)
        lose(cluster, "e")
        first = await moved(cluster, sink, "e")
        await cluster.clock.sleep(3.0)
        assert first not in ("a", "b")
        lose(cluster, first)
        assert await moved(cluster, sink, first) not in ("e", first)
        await finished(cluster)
        check_rows(other, kind)

    in_calm_cluster(tmp_path, "abcdefg", test)


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_nodes_that_do_not_reach_the_other_end_are_passed_over(tmp_path: Path, other: Other) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        other.unreachable = set("abc")
        sink = await begun(cluster, "table")
        lose(cluster, "e")
        assert await moved(cluster, sink, "e") == "d"
        await finished(cluster)
        check_rows(other, "table")

    in_calm_cluster(tmp_path, "abcde", test)


def test_without_leave_a_sink_waits_for_its_node(tmp_path: Path, other: Other) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=ROWS, rate=20.0))
        query = submit(cluster, "a", None, sql=FILTER, strategy="producer", consumer="e", sink=SinkSpec(kind="table"))
        info = await ask(cluster, "a", query)
        await cluster.clock.sleep(5.0)
        cluster.crash(cluster.at("e"))
        await cluster.clock.sleep(60.0)
        assert (await owner_of(cluster, "a", f"{info.uid}.sink")) == ("e", 1)
        reason = (await state_of(cluster, "a")).reason
        assert reason.endswith("no other node takes the sink over: the query was submitted without failover of its sink"), reason
        cluster.boot(cluster.at("e"))
        await finished(cluster)
        check_rows(other, "table")

    in_calm_cluster(tmp_path, "abcde", test)


@pytest.mark.parametrize("kind", ["file", "follow", "blackhole"])
def test_a_sink_that_is_bound_to_its_node_is_refused_with_failover(tmp_path: Path, kind: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=ROWS, rate=20.0))
        options = {"path": str(tmp_path / "out.csv")} if kind == "file" else {}
        for consumer in "ae":
            sink = SinkSpec(kind=kind, options=options, failover=True)
            with pytest.raises(SbonError) as refused:
                await ask(cluster, "a", submit(cluster, "a", None, sql=FILTER, consumer=consumer, sink=sink))
            assert (refused.value.code, refused.value.where) == ("no-failover", "sink.failover")
        assert "http, postgres" in refused.value.hint

    in_calm_cluster(tmp_path, "abcde", test)


def test_a_node_that_sees_the_host_alive_takes_nothing_over(tmp_path: Path, other: Other) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        sink = await begun(cluster, "table")
        daemon = cluster.at("a").daemon
        record = daemon.queries.leader.find(sink.rpartition(".")[0])
        call = TakeOverSink(sink=sink_order(record, record.hosts), acceptors=daemon.queries.leader.acceptors(record.id))
        for caller, code in (("a", "not-owner"), ("e", "not-owner")):
            with pytest.raises(SbonError) as refused:
                await ask(cluster, caller, cluster.at(caller).daemon.context.call("d", call))
            assert refused.value.code == code
        assert (await owner_of(cluster, "a", sink)) == ("e", 1)
        assert cluster.at("d").daemon.hosting.sinks.hosted(record.sink_component) is None
        await finished(cluster)
        check_rows(other, "table")

    in_calm_cluster(tmp_path, "abcde", test)


@pytest.mark.one_part_per_commit("kinds of sinks", parts=8)
@pytest.mark.parametrize("kind", ["table", "hook"])
def test_a_takeover_waits_for_the_hosts_of_the_sinks_streams(tmp_path: Path, other: Other, kind: str) -> None:
    """Both nodes are gone at once, as those of one rack: the sink goes on when the operator does."""

    async def test(cluster: SimulatedCluster) -> None:
        sink = await begun(cluster, kind)
        lose(cluster, "e")
        cluster.crash(cluster.at("b"))
        while (await owner_of(cluster, "a", sink))[0] == "e":
            await cluster.clock.sleep(0.5)
        await cluster.clock.sleep(30.0)
        assert (await state_of(cluster, "a")).state == "running"
        cluster.boot(cluster.at("b"))
        await finished(cluster)
        check_rows(other, kind)

    in_calm_cluster(tmp_path, "abcde", test)


def test_a_query_waits_while_no_node_reaches_the_other_end(tmp_path: Path, other: Other) -> None:
    """The sink's node is back without its disk, and cannot go on with the sink either."""

    async def test(cluster: SimulatedCluster) -> None:
        sink = await begun(cluster, "table")
        other.unreachable = set("abcde")
        lose(cluster, "e")
        await cluster.clock.sleep(10.0)
        cluster.boot(cluster.at("e"))
        await cluster.clock.sleep(60.0)
        info = await state_of(cluster, "a")
        assert (info.state, (await owner_of(cluster, "a", sink))) == ("running", ("e", 1))
        refusals = "no other node takes the sink over: a, b, c, d, e: no way there (endpoint-unreachable)"
        assert info.reason.endswith(refusals), info.reason
        other.unreachable = set()
        await finished(cluster)
        assert (await owner_of(cluster, "a", sink))[1] == 2
        check_rows(other, "table")

    in_calm_cluster(tmp_path, "abcde", test)

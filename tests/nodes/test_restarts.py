"""Restarts of a node: parts that it resumes, waits for, gives up, and deletes."""

from __future__ import annotations

import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.engine.engine import SimulatedEngine
from sbon_lab.simulation.engine.engine_process import EngineTimes
from sbon_node.base.store import RecordStore
from sbon_node.context import until_passed
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.catalogue import CatalogEntry
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, Needs, OperatorSpec
from sbon_protocol.calls import DestroyComponents, InstantiateOperator, ReserveOperator
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import NUMBERS, ask, declare, in_cluster, plain, source_at, state_of, submitted, uid_of

NEEDS = Needs(cores=0.1, memory_mb=100.0)


async def running(cluster: SimulatedCluster, tmp_path: Path) -> None:
    """``a`` keeps the record and the results, ``b`` the operator and its source."""
    await declare(cluster, "a", source_at("b", rows=300, rate=20.0))
    await submitted(cluster, "a", tmp_path / "out.csv", strategy="producer")
    while not (await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.5)


def streams_at_b(cluster: SimulatedCluster) -> list[str]:
    return cluster.nodes["b"].daemon.outbox.streams() if cluster.nodes["b"].ready else []


def test_an_operator_waits_out_what_passes_and_the_query_says_for_what(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        node = cluster.nodes["b"]
        cluster.crash(node)
        await cluster.clock.sleep(1)  # until its engine's host has ended as well
        # The disk of the checkpoints is not there.
        checkpoint = node.checkpoint(f"{uid_of(cluster)}.b0")
        mounted = checkpoint.parent.resolve()
        mounted.rename(tmp_path / "aside")
        cluster.boot(node)
        await cluster.together()
        await cluster.clock.sleep(600)
        info = await state_of(cluster, "a")
        assert info.state == "running"
        assert (
            plain(info.reason)
            == f"q.b0 at b: {plain(str(checkpoint))}: cannot be used: File exists (check the disk and its rights)"
        )
        assert info.operators[0].state == "starting"
        assert info.reason.endswith(info.operators[0].reason)
        (tmp_path / "aside").rename(mounted)
        while (info := await state_of(cluster, "a")).state == "running":
            await cluster.clock.sleep(1.0)
        assert (info.state, info.reason, info.rows) == ("finished", "", 300)

    in_cluster(tmp_path, "ab", test)


def test_an_operator_that_can_never_run_again_fails_its_query_at_the_first_try(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        node = cluster.nodes["b"]
        cluster.crash(node)
        with closing(sqlite3.connect(node.disk.folder / "outbox.db")) as outbox, outbox:
            outbox.execute("UPDATE streams SET epoch = 99 WHERE name LIKE 'q-%.b0'")
        cluster.boot(node)
        while (info := await state_of(cluster, "a")).state == "running":
            await cluster.clock.sleep(1.0)
        assert (info.state, plain(info.reason)) == ("failed", "q.b0 at b: q.b0: epoch 2 is over: the stream is in epoch 99")
        assert cluster.loop.time() < 3600, "it was tried again"

    in_cluster(tmp_path, "ab", test, retry_s=600.0, retry_max_s=3600.0, resume_tries=1000)


@pytest.mark.parametrize("code, tries, given_up", [("disk-full", 8, False), ("fenced", 1, True), ("operator-failed", 5, True)])
def test_pauses_grow_and_are_bounded(tmp_path: Path, code: str, tries: int, given_up: bool) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        began, told, at_s = cluster.loop.time(), [], []

        async def attempt() -> None:
            at_s.append(cluster.loop.time() - began)
            if len(at_s) < 8:
                raise SbonError(code, "no")

        with pytest.raises(SbonError, match="no") if given_up else nullcontext():
            await until_passed(cluster.nodes["a"].daemon.context, attempt, told.append)
        assert at_s == pytest.approx([0, 1, 3, 7, 15, 23, 31, 39][:tries])
        assert len(told) == tries - 1

    in_cluster(tmp_path, "a", test, retry_s=1.0, retry_max_s=8.0, resume_tries=5)


def test_remains_of_components_hosted_no_more_are_deleted(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        node = cluster.nodes["b"]
        cluster.crash(node)
        outbox = Outbox(node.disk.folder / "outbox.db", StreamSettings())
        outbox.open_stream("gone.b0", "operator")
        outbox.open_stream("source/gone@1/x", "source")
        outbox.close()
        for name in ("gone.b0", "long-gone.b0"):
            (node.checkpoint(name) / "commits").mkdir(parents=True)
        cluster.boot(node)
        await cluster.until(lambda: [plain(one) for one in streams_at_b(cluster)] == ["q.b0", "source/numbers@1/at-b"])
        await cluster.until(lambda: [plain(one) for one in node.operators()] == ["q.b0"])
        while (info := await state_of(cluster, "a")).state == "running":
            await cluster.clock.sleep(1.0)
        assert (info.state, info.rows) == ("finished", 300)

    in_cluster(tmp_path, "ab", test)


def test_a_death_between_a_drop_and_its_carrying_out_leaves_no_stream(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        await cluster.until(lambda: streams_at_b(cluster) == ["source/numbers@1/at-b"])
        node = cluster.nodes["b"]
        cluster.crash(node)
        store = RecordStore(node.disk.folder / "node.db")
        entry = store.get("catalogue", "numbers", CatalogEntry)
        assert entry is not None
        now_ms = cluster.clock.wall_ms()
        store.put("catalogue", "numbers", msgspec.structs.replace(entry, sources=(), dropped=True, dropped_ms=now_ms))
        store.close()
        cluster.boot(node)
        await cluster.until(lambda: node.ready and not streams_at_b(cluster))

    in_cluster(tmp_path, "ab", test)


def test_a_source_attached_again_begins_a_new_stream(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.nodes["a"].daemon
        source = source_at("b", rows=100, rate=1000.0)
        for version in (1, 2):
            await ask(cluster, "a", daemon.queries.declarations.create_stream(NUMBERS))
            await ask(cluster, "a", daemon.hosting.sources.attach(source))
            await cluster.until(lambda version=version: streams_at_b(cluster) == [f"source/numbers@{version}/at-b"])
            info = await submitted(cluster, "a", None, name=f"q{version}", strategy="consumer")
            assert info.plan is not None
            assert [planned.source.id for planned in info.plan.sources] == [f"source/numbers@{version}/at-b"]
            await ask(cluster, "a", daemon.queries.lookup.stop(f"q{version}"))
            await ask(cluster, "a", daemon.queries.declarations.drop("numbers"))
        await cluster.until(lambda: not streams_at_b(cluster))

    in_cluster(tmp_path, "ab", test)


def test_a_stream_that_was_declared_otherwise_meanwhile_keeps_no_frames_of_the_old_schema(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=100_000, rate=50.0))
        source_id = "source/numbers@1/at-b"
        await submitted(cluster, "a", None, strategy="consumer")
        outbox = cluster.at("b").daemon.outbox
        await cluster.until(lambda: source_id in outbox.streams() and outbox.latest(source_id) > 2)
        node = cluster.nodes["b"]
        cluster.crash(node)
        store = RecordStore(node.disk.folder / "node.db")
        entry = store.get("catalogue", "numbers", CatalogEntry)
        assert entry is not None
        # The declaration with the smaller origin wins within a version: this node learns of it when it is back.
        other = msgspec.structs.replace(NUMBERS, schema=(*NUMBERS.schema, Column("extra", "double")))
        store.put("catalogue", "numbers", msgspec.structs.replace(entry, declaration=other, origin=""))
        store.close()
        cluster.boot(node)
        await cluster.until(lambda: node.ready and source_id in streams_at_b(cluster))
        await cluster.clock.sleep(5)
        outbox = cluster.at("b").daemon.outbox
        # The source waits for a reader: rows from before would have the old schema.
        assert outbox.latest(source_id) == 0

    in_cluster(tmp_path, "ab", test)


@pytest.mark.parametrize("deaths", [pytest.param(2, marks=pytest.mark.only_in_test_all("deaths of hosts in virtual time")), 4])
def test_a_host_that_dies_again_and_again_takes_its_operator_up_each_time(tmp_path: Path, deaths: int) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        node = cluster.nodes["b"]
        operator = f"{uid_of(cluster)}.b0"
        for death in range(deaths):
            cluster.crash(node)
            await cluster.clock.sleep(1)
            cluster.boot(node)
            await cluster.together()
            await cluster.until(lambda: operator in streams_at_b(cluster))
            await cluster.until(lambda death=death: node.daemon is not None and node.daemon.outbox.epoch(operator) == death + 2)
        while (await state_of(cluster, "a")).state == "running":
            await cluster.clock.sleep(1)
        info = await state_of(cluster, "a")
        assert (info.state, info.rows) == ("finished", 300)

    in_cluster(tmp_path, "ab", test)


def test_every_reader_that_a_stream_was_made_for_finds_its_first_frame(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=1000, rate=50.0))
        context = cluster.at("a").daemon.context
        one = InputSpec(stream="source/numbers@1/at-a", node="a", schema=NUMBERS.schema)
        readers = ("first#0", "second#0", "third#1")
        spec = OperatorSpec(
            id="p.b0",
            query="p",
            fragment="SELECT id, v FROM in0 WHERE v >= 0",
            inputs=(one,),
            schema=(Column("id", "bigint"), Column("v", "double")),
            needs=NEEDS,
            readers=readers,
        )
        room = ReserveOperator(query="p", operator=spec.id, hold_s=60.0, **msgspec.structs.asdict(NEEDS))
        await ask(cluster, "a", context.call("b", room))
        acceptors = (msgspec.to_builtins(cluster.at("a").daemon.ownership.acceptors.me),)
        await ask(cluster, "a", context.call("b", InstantiateOperator(spec=msgspec.to_builtins(spec), acceptors=acceptors)))
        outbox: Any = cluster.at("b").daemon.outbox
        await cluster.until(lambda: outbox.latest(spec.id) > 2)

        async def read_in_turn() -> list[int]:
            """Each comes when the one before it has read and acknowledged all there is."""
            firsts = []
            for reader in readers:
                firsts.append(outbox.subscribe(spec.id, reader, 1))
                outbox.acknowledge(spec.id, reader, outbox.latest(spec.id))
                outbox._retention.make_room(outbox._streams.values())  # as if the disk were full
            return firsts

        assert await ask(cluster, "b", read_in_turn()) == [1, 1, 1]
        await ask(cluster, "a", context.call("b", DestroyComponents(query="p", components=(spec.id,))))

    in_cluster(tmp_path, "ab", test)


@pytest.mark.one_part_per_commit("states of a restarted engine", parts=2)
@pytest.mark.parametrize("engine", ["starting", "running"])
def test_a_query_says_that_an_operator_is_starting(tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine runs, and is slow to start the operator; or it is starting itself."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=1_000_000, rate=3.0))
        await submitted(cluster, "a", tmp_path / "out.csv", strategy="producer")
        cluster.crash(cluster.nodes["b"])
        await cluster.clock.sleep(1)
        cluster.times = EngineTimes(start=(60.0, 60.0))
        monkeypatch.setattr(SimulatedEngine, "status", engine)
        cluster.boot(cluster.nodes["b"])
        await cluster.together()
        await cluster.clock.sleep(20.0)
        info = await state_of(cluster, "a")
        assert (info.state, info.operators[0].state) == ("running", "starting")
        assert plain(info.reason) == (
            "q.b0 at b: its node's engine is starting" if engine == "starting" else "q.b0 at b is starting"
        )
        await cluster.clock.sleep(60.0)
        info = await state_of(cluster, "a")
        assert (info.reason, info.operators[0].state) == ("", "running")

    in_cluster(tmp_path, "ab", test)

"""Further sinks of a query that runs: each has its own position, and neither its end nor its failure ends the query."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.one_query import Follower
from sbon_node.net.peers import Caller
from sbon_protocol.api.queries import QueryInfo, SinkInfo, SinkRequest, SinkSpec
from sbon_protocol.calls import AddSink, DestroyComponents
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import LocateComponent
from tests.nodes import clusters
from tests.nodes.clusters import UNHURRIED, ask, declare, owner_of, refuse_ends, source_at, state_of, submitted, uid_of

ROWS = 300
FORGETS = msgspec.structs.replace(UNHURRIED, streams=msgspec.structs.replace(CONFIG.streams, operator_history_bytes=0))
"""No frame is kept for later readers of a stream."""
in_cluster = partial(clusters.in_cluster, config=FORGETS)


async def running(cluster: SimulatedCluster, path: Path | None, rows: int = ROWS, rate: float = 30.0, **fields: Any) -> str:
    """The query ``q``: source and operator at ``b``, record at ``a``, first sink at ``c``. Return its operator."""
    await declare(cluster, "a", source_at("b", rows=rows, rate=rate))
    info = await submitted(cluster, "a", path, consumer="c", strategy="producer", **fields)
    return info.operators[-1].id


async def added(cluster: SimulatedCluster, path: Path, at: str = "d", asked: str = "a", **fields: Any) -> SinkInfo:
    sink = SinkSpec(kind="file", options={"path": str(path)})
    request = SinkRequest(sink=sink, consumer=at, **fields)
    info: SinkInfo = await ask(cluster, asked, cluster.at(asked).daemon.queries.sinks.add("q", request))
    return info


async def removed(cluster: SimulatedCluster, sink: str, asked: str = "a") -> SinkInfo:
    info: SinkInfo = await ask(cluster, asked, cluster.at(asked).daemon.queries.sinks.remove("q", sink))
    return info


async def refused(cluster: SimulatedCluster, at: str, work: Any) -> SbonError:
    with pytest.raises(SbonError) as refusal:
        await ask(cluster, at, work)
    return refusal.value


async def ended(cluster: SimulatedCluster, state: str = "finished") -> QueryInfo:
    while (info := await state_of(cluster, "a")).state == "running":
        await cluster.clock.sleep(0.5)
    assert info.state == state, info.reason
    return info


def ids(path: Path) -> list[int]:
    return sorted(json.loads(line)["id"] for line in path.read_text().splitlines())


def followed(follower: Follower) -> list[Any]:
    return sorted(row[0] for row in follower.rows)


def subscribers(cluster: SimulatedCluster, node: str, stream: str) -> set[str]:
    return set(cluster.at(node).daemon.outbox.link_counts(stream).links)


@pytest.mark.one_part_per_commit("nodes that add a sink", parts=3)
@pytest.mark.parametrize("asked", ["a", "d", "e"])
def test_a_sink_added_before_any_row_is_gone_gets_all(tmp_path: Path, asked: str) -> None:
    """Whichever node is asked; and the query's end waits for the follower, who comes late."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, None, rate=60.0)
        await cluster.clock.sleep(2.0)
        info = await added(cluster, tmp_path / "more.ndjson", asked=asked)
        assert (info.id, info.node, info.state, info.begins_after) == ("sink2", "d", "running", 0)
        await cluster.clock.sleep(10.0)
        shown = await state_of(cluster, "e")
        assert [(one.id, one.state, one.rows) for one in shown.sinks] == [("sink2", "finished", ROWS)]
        assert shown.state == "running"
        follower = Follower(cluster, "d", "q")
        await follower.run()
        await ended(cluster)
        assert ids(tmp_path / "more.ndjson") == followed(follower) == list(range(ROWS))

    in_cluster(tmp_path, "abcde", test)


def test_a_sink_of_a_query_that_has_dropped_rows_begins_now(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "first.ndjson")
        await cluster.clock.sleep(4.0)
        error = await refused(cluster, "a", added(cluster, tmp_path / "all.ndjson", begin="earliest"))
        assert error.code == "not-retained"
        assert "--from now" in error.hint
        assert not (await state_of(cluster, "a")).sinks
        info = await added(cluster, tmp_path / "more.ndjson")
        assert (info.id, info.state) == ("sink2", "running")
        assert 0 < info.begins_after < ROWS
        also = await added(cluster, tmp_path / "also.ndjson", at="c", begin="now")
        assert also.id == "sink3"
        last = await ended(cluster)
        assert ids(tmp_path / "first.ndjson") == list(range(ROWS))
        assert ids(tmp_path / "more.ndjson") == list(range(info.begins_after, ROWS))
        assert ids(tmp_path / "also.ndjson") == list(range(also.begins_after, ROWS))
        assert [(one.state, one.rows) for one in last.sinks] == [
            ("finished", ROWS - info.begins_after),
            ("finished", ROWS - also.begins_after),
        ]
        assert not (tmp_path / "all.ndjson").exists()

    in_cluster(tmp_path, "abcd", test)


def test_a_query_waits_for_its_further_sinks(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "first.ndjson")
        await cluster.clock.sleep(1.0)
        info = await added(cluster, tmp_path / "more.ndjson")
        cluster.network.partition(("d",), ("a", "b", "c"))
        await cluster.clock.sleep(30.0)
        assert ids(tmp_path / "first.ndjson") == list(range(ROWS))
        assert (await state_of(cluster, "a")).state == "running"
        cluster.network.heal()
        await ended(cluster)
        assert ids(tmp_path / "more.ndjson") == list(range(info.begins_after, ROWS))

    in_cluster(tmp_path, "abcd", test)


def test_a_removed_sink_leaves_its_rows_and_holds_back_nothing(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        stream = await running(cluster, tmp_path / "first.ndjson")
        await cluster.clock.sleep(2.0)
        first = await added(cluster, tmp_path / "more.ndjson")
        await cluster.clock.sleep(3.0)
        assert subscribers(cluster, "b", stream) == {f"{uid_of(cluster)}.sink", f"{uid_of(cluster)}.sink2"}
        assert (await removed(cluster, "sink2", asked="d")).id == "sink2"
        assert not (await state_of(cluster, "a")).sinks
        assert subscribers(cluster, "b", stream) == {f"{uid_of(cluster)}.sink"}
        assert (await owner_of(cluster, "a", f"{uid_of(cluster)}.sink2")) == ("", 2)
        kept = ids(tmp_path / "more.ndjson")
        assert kept == list(range(first.begins_after, first.begins_after + len(kept)))
        assert len(kept) > 20
        again = await added(cluster, tmp_path / "again.ndjson")
        assert again.id == "sink2"
        await ended(cluster)
        assert ids(tmp_path / "again.ndjson") == list(range(again.begins_after, ROWS))
        assert ids(tmp_path / "more.ndjson") == kept

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("nodes of further sinks that are away", parts=2)
@pytest.mark.parametrize("pause_s", [0.5, 2.0])
def test_a_further_sink_goes_on_once_its_node_is_back(tmp_path: Path, pause_s: float) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "first.ndjson")
        await cluster.clock.sleep(1.0)
        info = await added(cluster, tmp_path / "more.ndjson")
        for _ in range(3):
            await cluster.clock.sleep(pause_s)
            cluster.crash(cluster.at("d"))
            await cluster.clock.sleep(1.0)
            cluster.boot(cluster.at("d"))
        await ended(cluster)
        assert ids(tmp_path / "first.ndjson") == list(range(ROWS))
        assert ids(tmp_path / "more.ndjson") == list(range(info.begins_after, ROWS))

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_sink_that_lags_fails_alone(tmp_path: Path) -> None:
    """Its node is away for longer than its quota lasts; the others get all rows meanwhile."""
    streams = msgspec.structs.replace(FORGETS.streams, sink_quota_bytes=4_000)
    config = msgspec.structs.replace(CONFIG, streams=streams)

    async def test(cluster: SimulatedCluster) -> None:
        stream = await running(cluster, tmp_path / "first.ndjson", rows=600, rate=60.0)
        await added(cluster, tmp_path / "more.ndjson")
        await added(cluster, tmp_path / "also.ndjson", at="e")
        await cluster.clock.sleep(1.0)
        cluster.crash(cluster.at("d"))
        await cluster.clock.sleep(5.0)
        assert f"{uid_of(cluster)}.sink2" in subscribers(cluster, "b", stream)
        cluster.boot(cluster.at("d"))
        await cluster.clock.sleep(3.0)
        info = await state_of(cluster, "a")
        failed = info.sinks[0]
        assert failed.state == "failed"
        assert "fell behind" in failed.reason
        assert info.reason == f"sink2 at d has failed: {failed.reason}"
        assert f"{uid_of(cluster)}.sink2" not in subscribers(cluster, "b", stream)
        last = await ended(cluster)
        assert [one.state for one in last.sinks] == ["failed", "finished"]
        assert ids(tmp_path / "first.ndjson") == list(range(600))
        assert len(ids(tmp_path / "also.ndjson")) > 500

    in_cluster(tmp_path, "abcde", test, config=config)


@pytest.mark.one_part_per_commit("nodes of further sinks that are away", parts=8)
@pytest.mark.parametrize("away", "bd")
def test_nodes_that_are_away_learn_of_a_removal(tmp_path: Path, away: str) -> None:
    """The stream's host keeps no rows for it, and the sink's node forgets it."""

    async def test(cluster: SimulatedCluster) -> None:
        stream = await running(cluster, tmp_path / "first.ndjson", rows=100, rate=2.0)
        await cluster.clock.sleep(1.0)
        await added(cluster, tmp_path / "more.ndjson")
        cluster.crash(cluster.at(away))
        await removed(cluster, "sink2")
        cluster.boot(cluster.at(away))
        await cluster.clock.sleep(30.0)
        assert subscribers(cluster, "b", stream) == {f"{uid_of(cluster)}.sink"}
        assert not cluster.at("d").daemon.hosting.sinks.components()
        again = await added(cluster, tmp_path / "again.ndjson")
        await ended(cluster)
        assert ids(tmp_path / "again.ndjson") == list(range(again.begins_after, 100))

    in_cluster(tmp_path, "abcd", test, orphan_check_s=10.0)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_node_that_lost_its_disk_fails_its_further_sink_alone(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "first.ndjson", rows=100, rate=2.0)
        await added(cluster, tmp_path / "more.ndjson")
        cluster.crash(cluster.at("d"))
        cluster.at("d").wipe()
        cluster.boot(cluster.at("d"))
        await cluster.clock.sleep(30.0)
        (failed,) = (await state_of(cluster, "a")).sinks
        assert failed.state == "failed"
        assert "lost its data" in failed.reason
        await ended(cluster)
        assert ids(tmp_path / "first.ndjson") == list(range(100))

    in_cluster(tmp_path, "abcd", test)


def test_refused_sinks_leave_nothing_and_name_the_field(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        stream = await running(cluster, tmp_path / "first.ndjson", rows=60, rate=3.0)

        async def refusal(kind: str, consumer: str = "d", query: str = "q", **options: Any) -> tuple[str, str]:
            request = SinkRequest(sink=SinkSpec(kind=kind, options=options), consumer=consumer)
            error = await refused(cluster, "a", cluster.at("a").daemon.queries.sinks.add(query, request))
            return error.code, error.where

        taken = str(tmp_path / "first.ndjson")
        assert (await refusal("file", path=taken))[0] == "sink-exists"
        assert await refusal("nothing") == ("unknown-sink", "sink.kind")
        assert await refusal("stream", stream="late") == ("bad-sink", "sink.kind")
        assert (await refusal("file", paths="x"))[0] == "unknown-option"
        assert (await refusal("file", consumer="z", path=str(tmp_path / "x.csv")))[0] == "unknown-node"
        assert (await refusal("blackhole", query="none")) == ("unknown-query", "query")
        assert await refusal("follow", path="x") == ("unknown-option", "options.path")
        request = SinkRequest(sink=SinkSpec(kind="blackhole", failover=True))
        error = await refused(cluster, "a", cluster.at("a").daemon.queries.sinks.add("q", request))
        assert (error.code, error.where) == ("no-failover", "sink.failover")
        error = await refused(cluster, "a", removed(cluster, "sink7"))
        assert (error.code, error.where) == ("unknown-sink", "sink")
        error = await refused(cluster, "a", removed(cluster, "sink"))
        assert (error.code, error.where) == ("bad-sink", "sink")
        assert not (await state_of(cluster, "a")).sinks
        assert subscribers(cluster, "b", stream) == {f"{uid_of(cluster)}.sink"}
        assert not cluster.at("d").daemon.hosting.sinks.components()
        assert (await added(cluster, tmp_path / "more.ndjson")).state == "running"
        await ended(cluster)
        error = await refused(cluster, "a", added(cluster, tmp_path / "late.ndjson"))
        assert error.code == "query-over"

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.parametrize("pause_s", [0.0, 60.0], ids=["alive", "missed"])
def test_a_sink_that_waits_for_a_frozen_host_is_refused_with_that_node(tmp_path: Path, pause_s: float) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "first.ndjson", rows=3000)
        cluster.loop.pause(cluster.nodes["b"].process)
        await cluster.sleep(pause_s)
        error = await refused(cluster, "c", added(cluster, tmp_path / "second.ndjson", asked="c"))
        assert (error.code, error.where) == ("host-unreachable", "query")
        assert re.match(r"q\S*\.\S+ is at b, which does not answer: ", error.message)
        assert "start b again" in error.hint
        cluster.loop.resume(cluster.nodes["b"].process)
        await added_again(cluster, tmp_path)

    in_cluster(tmp_path, "abcd", test)


async def added_again(cluster: SimulatedCluster, folder: Path) -> None:
    """Add a sink once the refused one has left nothing behind."""
    while (await state_of(cluster, "a")).sinks:
        await cluster.clock.sleep(0.5)
    assert (await added(cluster, folder / "third.ndjson")).id == "sink2"


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "slow"])
def test_a_sink_that_its_node_does_not_open_in_time_is_refused_by_what_is_known_of_the_node(tmp_path: Path, frozen: bool) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "first.ndjson", rows=3000)

        async def slowly(call: AddSink, caller: Caller) -> Any:
            await cluster.clock.sleep(100.0)

        if frozen:
            cluster.loop.pause(cluster.nodes["d"].process)
        else:
            cluster.at("d").daemon.context.server.handle(AddSink, slowly)
        error = await refused(cluster, "c", added(cluster, tmp_path / "second.ndjson", asked="c"))
        assert (error.code, error.where) == ("consumer-unreachable", "consumer")
        known, advice = ("; d is dead since ", "start it again") if frozen else ("", "see its log, and add the sink again")
        assert re.fullmatch(r"sink sink2 at d was not opened: no answer to add-sink within \d+ s" + known + ".*", error.message)
        assert advice in error.hint
        if frozen:
            cluster.loop.resume(cluster.nodes["d"].process)
            await added_again(cluster, tmp_path)

    in_cluster(tmp_path, "abcd", test)


def test_a_sink_whose_node_reaches_no_acceptor_of_the_record_is_refused_with_these(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "first.ndjson", rows=3000)

        async def lost(call: LocateComponent, caller: Caller) -> Any:
            raise SbonError("peer-unreachable", "connection lost")

        servers = [cluster.at(name).daemon.context.server for name in "abcd"]
        for server in servers:
            server.handle(LocateComponent, lost)
        error = await refused(cluster, "c", added(cluster, tmp_path / "second.ndjson", asked="c"))
        assert error.code == "holder-unreachable"
        assert re.match(r"the query's record is at \w( and \w)*, which does not answer: connection lost", error.message)

    in_cluster(tmp_path, "abcd", test)


def test_a_stop_ends_all_sinks(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "first.ndjson", rows=3000)
        for node in "ade":
            await added(cluster, tmp_path / f"{node}.ndjson", at=node)
        await cluster.clock.sleep(2.0)
        await ask(cluster, "e", cluster.at("e").daemon.queries.lookup.stop("q"))
        await cluster.clock.sleep(2.0)
        for node in "abcde":
            assert not cluster.at(node).daemon.hosting.destroyer.components()
        last = await ended(cluster, "stopped")
        assert len(last.sinks) == 3
        assert all((tmp_path / f"{node}.ndjson").exists() for node in "ade")

    in_cluster(tmp_path, "abcde", test)


def test_a_removed_sink_that_was_cut_off_reads_no_more(tmp_path: Path) -> None:
    """Its node runs on, and connects again in the epoch in which it has read."""

    async def test(cluster: SimulatedCluster) -> None:
        stream = await running(cluster, tmp_path / "first.ndjson", rows=200, rate=2.0)
        await cluster.clock.sleep(1.0)
        await added(cluster, tmp_path / "more.ndjson")
        await cluster.clock.sleep(1.0)
        end = refuse_ends(cluster, "d")  # It does not learn of the removal, however soon it is back.
        cluster.network.partition(("d",), ("a", "b", "c"))
        await removed(cluster, "sink2")
        await cluster.clock.sleep(30.0)
        cluster.network.heal()
        seen: list[set[str]] = []
        for _ in range(200):
            await cluster.clock.sleep(0.1)
            seen.append(subscribers(cluster, "b", stream))
        assert all(one == {f"{uid_of(cluster)}.sink"} for one in seen)
        cluster.at("d").daemon.context.server.handle(DestroyComponents, end)
        await cluster.until(lambda: not cluster.at("d").daemon.hosting.sinks.components())

    in_cluster(tmp_path, "abcd", test)

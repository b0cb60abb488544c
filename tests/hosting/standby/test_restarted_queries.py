"""A query of which a part is lost begins anew from its sources, where its submission allows it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.queries.driving.record_steps import sink_of_restart
from sbon_protocol.api.queries import QueryInfo, SinkSpec
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_lost_twice import lose
from tests.nodes.clusters import ask, declare, source_at, state_of, submitted
from tests.nodes.test_moved_operators import FILTER, WINDOWS, check_filtered, check_windows, finished, move, operators
from tests.nodes.test_pushes import http_at, push
from tests.nodes.test_result_streams import derive

ROWS = 400
CHECKS = {FILTER: check_filtered, WINDOWS: check_windows}
FORGETFUL = msgspec.structs.replace(
    CONFIG, streams=msgspec.structs.replace(CONFIG.streams, live_retention_bytes=0, live_retention_s=1.0)
)


async def lost(cluster: SimulatedCluster, path: Path, sql: str, *, allowed: bool = True) -> QueryInfo:
    """Start a query, and lose the host of its last operator, which has neither source nor sink, with its disk."""
    await declare(cluster, "a", source_at("b", rows=ROWS, rate=10.0))
    info = await submitted(cluster, "a", path, sql=sql, strategy="producer", allow_restart_from_sources=allowed)
    while not (await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.2)
    operator = operators(cluster)[-1]
    assert (await move(cluster, operator, "b", "c")).step == "moved"
    await cluster.clock.sleep(2.0)
    cluster.crash(cluster.at("c"))
    await cluster.clock.sleep(20.0)
    await lose(cluster, "c")
    return info


async def until_over(cluster: SimulatedCluster, uid: str) -> QueryInfo:
    while (info := await state_of(cluster, "a", uid)).state == "running" or "as soon as" in info.restart:
        await cluster.clock.sleep(1)
    return info


@pytest.mark.one_part_per_commit("kinds of operators in a query that begins anew", parts=2)
@pytest.mark.parametrize("sql", [FILTER, WINDOWS])
def test_a_lost_query_begins_anew_and_says_what_that_means_for_its_rows(tmp_path: Path, sql: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        before = await lost(cluster, tmp_path / "out.csv", sql)
        old = await until_over(cluster, before.uid)
        assert old.state == "failed"
        assert "does not know it, as after the loss of its data directory" in old.reason
        new = await state_of(cluster, "a")
        assert (new.id, new.restarted_from) == (before.id, before.uid)
        assert new.uid != before.uid
        assert old.restart == f"has begun anew from its sources as {new.uid}"
        assert new.restart.startswith(f"has begun anew from its sources in place of {before.uid}: all rows are in ")
        assert "out.restart1.csv, a new file; those of before are in the old one, too" in new.restart
        await finished(cluster)
        CHECKS[sql](tmp_path / "out.restart1.csv", ROWS)
        parts = {one.query for node in cluster.nodes.values() for one in node.daemon.hosting.destroyer.components()}
        assert before.uid not in parts

    in_calm_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_a_result_that_begins_anew_is_a_new_stream(tmp_path: Path) -> None:
    """The old stream is left as it is, for its readers cannot get other rows."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=ROWS, rate=10.0))
        await derive(cluster, "a", "late", FILTER.replace("id", "ts, id", 1), consumer="c", allow_restart_from_sources=True)
        before = await state_of(cluster, "a", "late")
        await cluster.clock.sleep(10.0)
        cluster.crash(cluster.at("c"))
        await cluster.clock.sleep(20.0)
        await lose(cluster, "c")
        assert (await until_over(cluster, before.uid)).state == "failed"
        new = await state_of(cluster, "a", "late")
        assert new.restart.endswith(
            "all rows are in the stream late_restart1, a new one; those of before are in the old one, too"
        )
        await submitted(cluster, "a", tmp_path / "out.csv", name="reader", sql="SELECT * FROM late_restart1")
        while (await state_of(cluster, "a", "reader")).state == "running":
            await cluster.clock.sleep(1)
        check_filtered(tmp_path / "out.csv", ROWS)

    in_calm_cluster(tmp_path, "abcd", test)


@pytest.mark.parametrize(
    "sink, restarts, becomes",
    [
        (SinkSpec(kind="file", options={"path": "/x/r.csv", "format": "csv"}), 1, {"path": "/x/r.restart1.csv", "format": "csv"}),
        (SinkSpec(kind="file", options={"path": "/x/r.restart1.csv"}), 2, {"path": "/x/r.restart2.csv"}),
        (SinkSpec(kind="stream", options={"stream": "late"}), 1, {"stream": "late_restart1"}),
        (SinkSpec(kind="stream", options={"stream": "late_restart9"}), 10, {"stream": "late_restart10"}),
        (SinkSpec(kind="stream", options={"stream": "a" * 63}), 1, {"stream": "a" * 54 + "_restart1"}),
        (SinkSpec(kind="http", options={"url": "http://x"}), 1, {"url": "http://x"}),
    ],
)
def test_files_and_streams_of_a_query_that_begins_anew_are_new_ones(
    sink: SinkSpec, restarts: int, becomes: dict[str, str]
) -> None:
    assert sink_of_restart(sink, restarts).options == becomes


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_a_lost_query_stays_failed_where_nobody_allowed_more(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        before = await lost(cluster, tmp_path / "out.csv", FILTER, allowed=False)
        old = await until_over(cluster, before.uid)
        await cluster.clock.sleep(60.0)
        assert (old.state, old.restart) == ("failed", "")
        assert (await state_of(cluster, "a")).uid == before.uid

    in_calm_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_a_query_does_not_begin_anew_where_frame_1_is_gone(tmp_path: Path) -> None:
    """A live source has let go of what all had acknowledged."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", http_at("b"))
        before = await submitted(
            cluster, "a", tmp_path / "out.csv", sql=FILTER, strategy="producer", allow_restart_from_sources=True
        )
        (operator,) = operators(cluster)
        for _ in range(6):
            await push(cluster, "b", count=100)
            await cluster.clock.sleep(5.0)
        assert (await move(cluster, operator, "b", "c")).step == "moved"
        cluster.crash(cluster.at("c"))
        await cluster.clock.sleep(20.0)
        await lose(cluster, "c")
        await until_over(cluster, before.uid)
        new = await until_over(cluster, (await state_of(cluster, "a")).uid)
        assert new.restarted_from == before.uid
        assert new.state == "failed"
        assert "are gone, 1 was asked for" in new.reason

    in_calm_cluster(tmp_path, "abcd", test, config=FORGETFUL)


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_a_user_stops_a_restart_that_waits_for_a_node(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        before = await lost(cluster, tmp_path / "out.csv", FILTER)
        await cluster.clock.sleep(20.0)
        cluster.crash(cluster.at("b"))
        while (await state_of(cluster, "a", before.uid)).state == "running":
            await cluster.clock.sleep(1)
        await cluster.clock.sleep(10.0)
        assert (await state_of(cluster, "a", before.uid)).restart == "begins anew from its sources as soon as it can"
        stopped = await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop(before.uid))
        assert (stopped.state, stopped.restart) == ("failed", "")
        assert stopped.reason.endswith("not restarted: stopped by a user")
        cluster.boot(cluster.at("b"))
        await cluster.clock.sleep(60.0)
        assert (await state_of(cluster, "a")).uid == before.uid

    in_calm_cluster(tmp_path, "abcd", test)

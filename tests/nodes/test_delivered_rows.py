"""The count of a query's delivered rows: each row once, although nodes die."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.one_query import Follower
from sbon_protocol.api.queries import QueryInfo
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted


async def over(cluster: SimulatedCluster, at: str) -> None:
    while (await state_of(cluster, at)).state == "running":
        await cluster.sleep(0.5)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_rows_taken_by_a_follower_are_counted_over_restarts_of_its_node(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=100, rate=5.0))
        await submitted(cluster, "a", None, consumer="c", strategy="producer")
        follower = Follower(cluster, "c", "q")
        following = asyncio.get_running_loop().create_task(follower.run())
        for least in (20, 50):
            await cluster.until(lambda least=least: len(follower.rows) >= least)  # type: ignore[misc]
            cluster.crash(cluster.at("c"))
            await cluster.sleep(2.0)
            cluster.boot(cluster.at("c"))
            await cluster.until(lambda: cluster.at("c").ready)
            await cluster.together()
            counted = (await state_of(cluster, "a")).rows
            assert counted is not None
            assert least <= counted <= len(follower.rows)
        await following
        await over(cluster, "a")
        info = await state_of(cluster, "a")
        assert (info.state, info.rows, len(follower.rows)) == ("finished", 100, 100)

    in_cluster(tmp_path, "abc", test)


def test_rows_that_no_follower_took_are_not_delivered(tmp_path: Path) -> None:
    """A follower that is shown rows, and goes before it has them, is shown them again."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        await submitted(cluster, "a", None, consumer="c", strategy="producer")
        daemon = cluster.at("c").daemon

        async def first() -> int:
            async for event in daemon.queries.follows.follow("q", {}):
                if getattr(event, "rows", ()):
                    return len(event.rows)  # type: ignore[union-attr]
            return 0

        assert await ask(cluster, "c", first()) > 0
        assert (await state_of(cluster, "a")).rows == 0

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("silent nodes during a stop", parts=8)
@pytest.mark.parametrize("silent", ["", "b"])
def test_rows_delivered_during_the_stop_count(tmp_path: Path, silent: str) -> None:
    """The sink takes rows until its node is told, however long those take that do not answer."""

    async def test(cluster: SimulatedCluster) -> None:
        out = tmp_path / "out.ndjson"
        await declare(cluster, "a", source_at("b", rows=10_000), source_at("d", rows=10_000))
        await submitted(cluster, "a", out, consumer="c", strategy="producer")
        await cluster.sleep(10.0)
        for node in silent:
            cluster.network.cut("a", node, both=True)
        info = await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        assert info.state == "stopped"
        assert info.rows == len(out.read_text().splitlines())
        assert info.rows > 100
        assert info.delivery is not None
        assert (info.delivery.state, info.delivery.rows) == ("over", info.rows)

    in_cluster(tmp_path, "abcd", test)


def test_an_unknown_count_is_not_reported_as_zero(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="producer")
        await cluster.sleep(1.0)
        await cluster.stop("c")
        assert (await state_of(cluster, "a")).rows is None
        info = await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        assert (info.state, info.rows) == ("stopped", None)

    in_cluster(tmp_path, "abc", test)


async def listed(cluster: SimulatedCluster, at: str) -> QueryInfo:
    (info,) = await ask(cluster, at, cluster.at(at).daemon.queries.lookup.all())
    assert isinstance(info, QueryInfo)
    return info


@pytest.mark.one_part_per_commit("consumers of listed queries", parts=8)
@pytest.mark.parametrize("consumer", "ac")
def test_a_list_counts_the_rows_of_a_query_that_runs_or_says_that_it_has_not(tmp_path: Path, consumer: str) -> None:
    """By the sink where it is at the query's leader, ``a``; else as they were counted last."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=1_000, rate=10.0))
        await submitted(cluster, "a", tmp_path / "out.ndjson", consumer=consumer, strategy="producer")
        counted = []
        for _ in range(12):
            counted.append((await listed(cluster, "d")).rows)
            await cluster.sleep(2.0)
        known = [rows for rows in counted if rows is not None]
        assert counted[: len(counted) - len(known)] == ([] if consumer == "a" else [None] * (12 - len(known)))
        assert known == sorted(known)
        assert known[-1] > 100
        rows = (await state_of(cluster, "d")).rows
        assert rows is not None
        assert abs(rows - (await listed(cluster, "d")).rows) <= 10  # type: ignore[operator]

    in_cluster(tmp_path, "abcd", test, measure_interval_s=5.0)


def test_a_list_says_which_nodes_a_query_misses(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=1_000, rate=10.0))
        await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="producer")
        assert (await listed(cluster, "d")).reason == ""
        await cluster.stop("b")
        cluster.crash(cluster.at("c"))
        await cluster.sleep(30.0)
        info = await listed(cluster, "d")
        assert info.state == "running"
        assert re.fullmatch(r"b is away since [-\d]+ [:\d]+ UTC; c is dead since [-\d]+ [:\d]+ UTC", info.reason), info.reason
        for name in "bc":
            cluster.boot(cluster.at(name))
        await cluster.together()
        while (reason := (await listed(cluster, "d")).reason) != "":
            assert "does not know it" not in reason, "a node that starts has lost nothing"
            await cluster.sleep(0.1)

    in_cluster(tmp_path, "abcd", test, seed=4)

"""Detaching a source on any node, unless a query reads its stream; a new attachment is another source."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, record_of, source_at, state_of, submitted


def streams_of(cluster: SimulatedCluster, node: str) -> list[str]:
    return list(cluster.at(node).daemon.outbox.streams())


async def rows_of(cluster: SimulatedCluster, path: Path, name: str) -> int:
    await submitted(cluster, "a", path, name=name)
    while (info := await state_of(cluster, "a", name)).state == "running":
        await cluster.sleep(0.5)
    assert info.state == "finished"
    return info.rows


def test_a_detached_source_is_gone_everywhere_and_another_may_have_its_name(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=10), source_at("b", rows=20))
        assert await rows_of(cluster, tmp_path / "both.ndjson", "both") == 30
        await ask(cluster, "c", cluster.at("c").daemon.queries.declarations.detach("numbers", "at-b"))
        await cluster.until(lambda: not streams_of(cluster, "b"))
        for node in "abc":
            info = await ask(cluster, node, cluster.at(node).daemon.hosting.sources.describe("numbers"))
            assert [source.name for source in info.entry.sources] == ["at-a"]
        assert await rows_of(cluster, tmp_path / "one.ndjson", "one") == 10
        await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.attach(source_at("b", rows=5)))
        (again,) = (
            s
            for s in (await ask(cluster, "b", cluster.at("b").daemon.hosting.sources.describe("numbers"))).entry.sources
            if s.node == "b"
        )
        assert again.id == "source/numbers@1/at-b~2"
        assert await rows_of(cluster, tmp_path / "again.ndjson", "again") == 15

    in_cluster(tmp_path, "abc", test)


def test_a_source_with_readers_is_not_detached(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=1_000_000, rate=10.0))
        await submitted(cluster, "b", tmp_path / "out.ndjson")
        for source, code in (("at-a", "stream-in-use"),):
            with pytest.raises(SbonError) as refused:
                await ask(cluster, "b", cluster.at("b").daemon.queries.declarations.detach("numbers", source))
            assert refused.value.code == code
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        with pytest.raises(SbonError) as refused:
            await ask(cluster, "b", cluster.at("b").daemon.queries.declarations.detach("numbers", "at-z"))
        assert (refused.value.code, refused.value.hint) == ("unknown-source", "there are at-a")
        await ask(cluster, "b", cluster.at("b").daemon.queries.declarations.detach("numbers", "at-a"))

    in_cluster(tmp_path, "ab", test)


def test_a_node_that_was_away_learns_of_it_and_brings_nothing_back(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=10))
        await cluster.stop("b")
        await cluster.until(lambda: cluster.at("a").daemon.membership.others_alive == 1)
        with pytest.raises(SbonError, match="no answer from b"):
            await ask(cluster, "a", cluster.at("a").daemon.queries.declarations.detach("numbers", "at-b"))
        cluster.start("b")
        await cluster.together()
        await ask(cluster, "a", cluster.at("a").daemon.queries.declarations.detach("numbers", "at-b"))
        await cluster.stop("b")
        cluster.start("b")
        await cluster.together()
        await cluster.until(lambda: not streams_of(cluster, "b"))
        assert (await ask(cluster, "b", cluster.at("b").daemon.hosting.sources.describe("numbers"))).entry.sources == ()

    in_cluster(tmp_path, "abc", test)


def test_a_query_whose_source_is_detached_while_it_is_submitted_fails_with_that_reason(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=10))
        submitting = asyncio.ensure_future(submitted(cluster, "a", tmp_path / "out.ndjson"))
        await cluster.until(lambda: record_of(cluster, "q") is not None)
        await ask(cluster, "b", cluster.at("b").daemon.ownership.catalogue.detach("numbers", "at-b"))
        await ask(cluster, "b", cluster.at("b").daemon.hosting.sources.attach(source_at("b", rows=5)))
        await submitting
        await cluster.sleep(30.0)
        info = await state_of(cluster, "a")
        assert info.state == "failed"
        assert "numbers/at-b at b was detached after the query was planned" in info.reason

    in_cluster(tmp_path, "abc", test)

"""A source whose node is away is waited for; a source whose node has lost its disk ends the queries that have read it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.api.catalogue import SourceDeclaration
from tests.nodes.clusters import declare, in_cluster, state_of, submitted
from tests.nodes.test_moved_operators import check_filtered, finished

SQL = "SELECT id FROM numbers WHERE id % 2 = 0"
ROWS = 200


def file_at(node: str, path: Path) -> SourceDeclaration:
    lines = [f"{number},{number}.5,2026-01-01T00:{number // 60:02d}:{number % 60:02d}Z" for number in range(ROWS)]
    path.write_text("\n".join(["id,v,ts", *lines]) + "\n")
    options = {"path": str(path), "replay": 5.0}
    return SourceDeclaration(stream="numbers", name=f"at-{node}", node=node, connector="file", options=options)


async def reading(cluster: SimulatedCluster, folder: Path) -> None:
    """A file at ``b`` is read for a query whose operator and sink are elsewhere."""
    await declare(cluster, "a", file_at("b", folder / "in.csv"))
    await submitted(cluster, "a", folder / "out.csv", sql=SQL, strategy="consumer", consumer="c")
    while not (await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.2)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_query_waits_for_a_source_that_is_away_and_says_since_when(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await reading(cluster, tmp_path)
        cluster.crash(cluster.at("b"))
        await cluster.sleep(30.0)
        waits = await state_of(cluster, "a")
        assert waits.state == "running"
        assert re.match(r"no answer from b: it is dead since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", waits.reason), waits.reason
        later = await state_of(cluster, "a")
        assert later.reason == waits.reason
        cluster.boot(cluster.at("b"))
        await finished(cluster)
        check_filtered(tmp_path / "out.csv", ROWS)

    in_cluster(tmp_path, "abcd", test)


def test_a_source_that_lost_its_disk_ends_the_query(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await reading(cluster, tmp_path)
        node = cluster.at("b")
        cluster.crash(node)
        for process in node.locks.engine_processes:
            process.kill()
        node.wipe()
        await cluster.sleep(30.0)
        cluster.boot(node)
        await cluster.sleep(60.0)
        ended = await state_of(cluster, "a")
        assert ended.state == "failed", ended.reason
        assert "source-lost" in ended.reason
        assert sum(cluster.at(name).daemon.operations.metrics_snapshot().queries_failed for name in "abcd") == 1

    in_cluster(tmp_path, "abcd", test)

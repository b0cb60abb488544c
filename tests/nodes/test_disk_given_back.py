"""Nodes give their disk back: after a query has ended, and after its stream was dropped."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.api.catalogue import SourceDeclaration
from tests.nodes.clusters import ask, declare, in_cluster, state_of, submitted

ROWS = 400_000
MIB = 2**20


def write_numbers(path: Path) -> None:
    """Write rows that compress badly."""
    rng = random.Random(1)
    with path.open("w") as file:
        file.write("id,v,ts\n")
        for number in range(ROWS):
            file.write(f"{rng.getrandbits(62)},{rng.random()},2026-01-01T{number // 60_000:02}:{number // 1_000 % 60:02}:00Z\n")


def disk_of(cluster: SimulatedCluster, node: str) -> int:
    """Return the allocated bytes of a node's folder, apart from its records."""
    files = (path for path in cluster.disks[node].folder.rglob("*") if path.is_file() and not path.name.startswith("node.db"))
    return sum(path.stat().st_blocks * 512 for path in files)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_disk_is_given_back_after_a_query_and_after_its_stream(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        path = tmp_path / "numbers.csv"
        write_numbers(path)
        source = SourceDeclaration(stream="numbers", name="at-a", node="a", connector="file", options={"path": str(path)})
        before = {node: disk_of(cluster, node) for node in "ab"}
        await declare(cluster, "a", source)
        await submitted(cluster, "b", tmp_path / "out.ndjson")
        while (info := await state_of(cluster, "b")).state == "running":
            await cluster.sleep(0.5)
        assert (info.state, info.rows) == ("finished", ROWS)
        await cluster.sleep(30.0)
        retained = cluster.at("a").daemon.outbox.stored().streams
        assert set(retained) == {source.id}
        frames = retained[source.id]
        assert frames > 6 * MIB
        after = {node: disk_of(cluster, node) - before[node] for node in "ab"}
        assert after["a"] + after["b"] < 1.1 * frames + 6 * MIB, "more is left of a query than what later queries may read"
        await ask(cluster, "a", cluster.at("a").daemon.queries.declarations.drop("numbers"))
        await cluster.sleep(30.0)
        for node in "ab":
            assert disk_of(cluster, node) - before[node] < 3 * MIB, f"{node} keeps disk of a stream that was dropped"

    in_cluster(tmp_path, "ab", test)

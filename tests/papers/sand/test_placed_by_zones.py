"""SAND's strategies on whole nodes: routes and owners by directory, measured latencies, and capacity."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.ownership.queries import LIVE
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted


@pytest.mark.one_part_per_commit("strategies by zones", parts=2)
@pytest.mark.parametrize("strategy", ["edge+", "in-network+"])
def test_a_query_is_placed_and_runs(tmp_path: Path, strategy: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"), source_at("b"))
        info = await submitted(cluster, "c", tmp_path / "out.ndjson", consumer="d", strategy=strategy)
        assert info.placement is not None
        placed = info.placement
        assert placed.strategy == strategy
        assert {one.node for one in placed.assignments} <= set("abcdef" if strategy.startswith("in-") else "abd")
        for one in placed.assignments:
            (owner,) = await ask(cluster, "e", _owner(cluster, one.operator))
            assert one.reason.startswith("chosen of ")
            assert one.reason.endswith(f"links measured, by its coordinator {owner}"), "all nodes name the same coordinator"
        while (info := await state_of(cluster, "c")).state in LIVE:
            await cluster.sleep(0.5)
        assert (info.state, info.rows) == ("finished", 200)

    in_cluster(tmp_path, "abcdef", test)


async def _owner(cluster: SimulatedCluster, key: str) -> list[str]:
    return cluster.at("e").daemon.context.directory.owner(key)

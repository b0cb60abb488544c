"""Ants and the centralized strategy on whole nodes in virtual time, with the nodes' own answers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.config.config import Config
from sbon_node.context import ControlSettings
from tests.nodes.clusters import declare, in_cluster, source_at, state_of, submitted


def room(cores: float) -> Config:
    return msgspec.structs.replace(CONFIG, control=ControlSettings(cores=cores, memory_mb=8_000.0))


@pytest.mark.one_part_per_commit("strategies of ants", parts=2)
@pytest.mark.parametrize("strategy", ["ants", "centralized"])
def test_a_query_goes_where_there_is_room_and_runs_there(tmp_path: Path, strategy: str) -> None:
    configs = {"a": room(0.01), "b": room(4.0), "c": room(0.01), "d": room(0.01)}

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        out = tmp_path / "out.ndjson"
        info = await submitted(cluster, "d", out, consumer="c", strategy=strategy, objective="latency")
        assert info.placement is not None
        assert info.placement.strategy == strategy
        assert {one.node for one in info.placement.assignments} == {"b"}
        while (await state_of(cluster, "d")).state != "finished":
            await cluster.sleep(0.5)
        assert len(out.read_text().splitlines()) == 100

    in_cluster(tmp_path, "abcd", test, configs=configs)

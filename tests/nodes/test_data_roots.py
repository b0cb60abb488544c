"""Requests from other nodes read and write only in a node's permitted folders."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_node.connectors.settings import ConnectorSettings
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, source_at, state_of, submitted


def file_at(node: str, path: Path) -> SourceDeclaration:
    return SourceDeclaration(stream="numbers", name="file", node=node, connector="file", options={"path": str(path)})


def test_sources_and_sinks_outside_the_roots_are_refused_for_every_caller(tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
        (folder / "in.csv").write_text("id,v,ts\n1,2.5,2026-01-01T00:00:00Z\n")
    connectors = ConnectorSettings(data_roots=(str(allowed),))

    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        cluster = SimulatedCluster(
            loop, 1, ("a", "b"), tmp_path / "nodes", config=msgspec.structs.replace(CONFIG, connectors=connectors)
        )
        cluster.start()
        await cluster.together()
        await declare(cluster, "a", source_at("a"))
        for node in ("a", "b"):
            with pytest.raises(SbonError) as refused:
                await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.attach(file_at(node, other / "in.csv")))
            assert refused.value.code == "outside-roots"
            with pytest.raises(SbonError) as refused:
                await submitted(cluster, "a", other / "out.csv", consumer=node)
            assert refused.value.code == "outside-roots"
        assert sorted(path.name for path in other.iterdir()) == ["in.csv"]
        await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.attach(file_at("b", allowed / "in.csv")))
        await submitted(cluster, "a", allowed / "out.csv", name="good", consumer="b")
        while (info := await state_of(cluster, "a", "good")).state == "running":
            await loop.clock().sleep(1)
        assert (info.state, info.rows) == ("finished", 101)
        cluster.verify()

    run(main, seed=1, max_time_s=3600.0)

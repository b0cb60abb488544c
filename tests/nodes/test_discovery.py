"""Resource discovery by whole nodes: the nodes asked, their free capacity, and the placed queries."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.context import ControlSettings
from sbon_node.placement.model.network_view import Window
from sbon_node.placing import LiveNetworkView
from sbon_protocol.api.operators import Needs
from tests.nodes.clusters import UNHURRIED, ask, declare, in_cluster, source_at, submitted

CORES = {"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}
CONFIGS = {
    node: msgspec.structs.replace(UNHURRIED, control=ControlSettings(cores=cores, memory_mb=8000.0))
    for node, cores in CORES.items()
}


def test_only_those_that_could_have_so_much_are_asked_and_each_once(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "d", source_at("a"))
        await submitted(cluster, "d", None, strategy="consumer", consumer="d")
        view = LiveNetworkView(cluster.at("a").daemon.context)
        needs = Needs(cores=0.1, memory_mb=1.0)
        found = await ask(cluster, "a", view.discover(Window(needs=needs, least_cores=3.0)))
        assert sorted(found) == ["c", "d"]
        assert found["c"].capacity.cores == 4.0
        assert found["d"].capacity.cores < 8.0, "an operator is there"
        assert (view.probes, view.discoveries) == (2, 1)
        below = await ask(cluster, "a", view.discover(Window(needs=needs, least_cores=1.5, below_cores=5.0)))
        assert sorted(below) == ["b", "c"]
        assert (view.probes, view.discoveries) == (3, 2)

    in_cluster(tmp_path, "abcd", test, configs=CONFIGS)


@pytest.mark.one_part_per_commit("strategies by discovery", parts=2)
@pytest.mark.parametrize("strategy", ["opb", "min-delay"])
def test_a_query_is_placed_by_discovery_and_runs(strategy: str, tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("b"))
        await cluster.clock.sleep(60)  # until the nodes have measured how far they are from each other
        info = await submitted(cluster, "a", tmp_path / "out.ndjson", strategy=strategy, consumer="c")
        assert info.state == "running"
        assert info.placement is not None
        assert info.placement.strategy == strategy
        assert 1 <= info.placement.discoveries <= 5
        assert set(info.placement.hosts().values()) <= {"b", "c"}, "on the way, where all are equally far"
        out = tmp_path / "out.ndjson"
        await cluster.until(lambda: out.exists() and len(out.read_text().splitlines()) == 100)

    in_cluster(tmp_path, "abcd", test, configs=CONFIGS)

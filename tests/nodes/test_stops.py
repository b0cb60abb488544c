"""A stop is carried out by an acceptor of the record, whoever asked for it and whatever becomes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.leak_check import leaks
from sbon_lab.simulation.query_run import record_of
from sbon_protocol.calls import DestroyComponents
from tests.nodes.clusters import declare, in_cluster, refuse_ends, source_at, submitted


@pytest.mark.parametrize("dies_after_s", [0.03, 0.3, 2.0])
def test_a_stop_goes_on_though_the_node_that_passed_it_on_dies(tmp_path: Path, dies_after_s: float) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("c", rows=100_000, rate=2.0))
        await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="consumer")
        serve = refuse_ends(cluster, "c")
        cluster.call("b", cluster.at("b").daemon.queries.lookup.stop("q"))
        await cluster.sleep(dies_after_s)
        cluster.crash(cluster.at("b"))
        await cluster.sleep(20)
        cluster.at("c").daemon.context.server.handle(DestroyComponents, serve)
        cluster.boot(cluster.at("b"))
        await cluster.together()
        await cluster.sleep(90)
        kept = record_of(cluster, "q")
        assert kept is not None
        assert (kept.state, kept.cleaned) == ("stopped", True)
        assert await leaks(cluster) == []

    in_cluster(tmp_path, "abc", test)

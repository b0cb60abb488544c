"""The placement of a running query is explained with what its operators have measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from tests.nodes.clusters import declare, in_cluster, source_at, submitted
from tests.nodes.explaining.test_explained_away import explained, sized
from tests.nodes.test_moved_operators import FILTER


def test_the_measured_work_of_rows_counts_for_their_delay(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=4000, rate=40.0))
        await submitted(cluster, "b", None, sql=FILTER, strategy="producer")
        await cluster.sleep(15.0)
        assert (await explained(cluster)).current.delay_ms == pytest.approx(20.0, abs=1.0)
        cluster.at("a").load_per_core = 0.4
        found = await explained(cluster)
        assert found.current.hosts == {found.operators[0].id: "a"}
        assert found.current.delay_ms == pytest.approx(20.0 + 10.0 / (0.6 - 0.4), rel=0.2)  # ten milliseconds of a core a row

    in_cluster(tmp_path, "ab", test, configs=dict.fromkeys("ab", sized(0.6)), latency=lambda one, other: 0.02)

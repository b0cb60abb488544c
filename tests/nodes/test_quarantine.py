"""A quarantined operator: its query waits, and each description of it says so and names the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.engine.spark.running import QUARANTINE_REMEDY
from tests.nodes.clusters import ask, in_cluster, state_of
from tests.nodes.test_descriptions import running

REASON = f"it has killed the engine 2 times, at last: the engine's JVM died; {QUARANTINE_REMEDY}"


@pytest.mark.one_part_per_commit("nodes that are asked for a lost part", parts=8)
@pytest.mark.parametrize("asked", ["a", "e"])
def test_a_quarantined_operator_is_reported_with_its_remedy(tmp_path: Path, asked: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        before = await state_of(cluster, asked)
        struck = next(one for one in before.operators if one.node == "b")
        cluster.at("b").daemon.hosting.reports.report(struck.id, "quarantined", REASON)
        info = await state_of(cluster, asked)
        (found,) = (one for one in info.operators if one.id == struck.id)
        assert (info.state, found.state, found.reason) == ("running", "quarantined", REASON)
        assert f"{struck.id} at b: it has killed the engine 2 times" in info.reason
        readiness = cluster.at("b").daemon.operations.readiness()
        (reason,) = (one for one in readiness.reasons if one.code == "operators-quarantined")
        assert struck.id in reason.message
        assert "engine.heap_mb" in reason.hint
        assert "operators-wait" not in {one.code for one in readiness.reasons}
        await cluster.sleep(31)
        (listed,) = await ask(cluster, asked, cluster.at(asked).daemon.queries.lookup.all())
        assert f"{struck.id} at b: it has killed the engine 2 times" in listed.reason

    in_cluster(tmp_path, "abcde", test)

"""The reason why a query does not end is in the metrics of its nodes."""

from __future__ import annotations

from pathlib import Path

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.operations.metrics_snapshot import NodeMetrics
from sbon_node.queries.describing.waits import KINDS, ReasonKind
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_sink_failover import Other, begun, check_rows, other
from tests.nodes.clusters import state_of
from tests.nodes.test_moved_operators import finished

__all__ = ["other"]
EVERY_S = 5.0
"""Between two rounds in which the leader asks for the states of its queries."""


def metrics(cluster: SimulatedCluster, node: str) -> NodeMetrics:
    snapshot: NodeMetrics = cluster.at(node).daemon.operations.metrics_snapshot()
    return snapshot


def reasons(cluster: SimulatedCluster) -> dict[ReasonKind, int]:
    """Return the kinds of reasons that the nodes which live count together."""
    counts = [metrics(cluster, name).query_reasons for name, node in cluster.nodes.items() if node.alive]
    return {kind: total for kind in KINDS if (total := sum(count[kind] for count in counts))}


def test_a_dead_sink_is_counted_at_its_node_and_by_the_leader(tmp_path: Path, other: Other) -> None:
    """The other end goes away while rows come; then the sink's node starts anew, and cannot even open the sink."""

    async def test(cluster: SimulatedCluster) -> None:
        await begun(cluster, "table", consumer="c")
        await cluster.sleep(2 * EVERY_S)
        assert reasons(cluster) == {}
        assert metrics(cluster, "b").behind_s.get("q", 0.0) < EVERY_S
        other.unreachable = {"c"}
        await cluster.sleep(6 * EVERY_S)
        assert (await state_of(cluster, "a")).reason == "sink at c is paused: table: no way there"
        assert metrics(cluster, "c").sinks == {"paused": 1}
        assert reasons(cluster) == {"sink-paused": 1}
        assert metrics(cluster, "b").behind_s["q"] > 4 * EVERY_S
        cluster.crash(cluster.at("c"))
        cluster.boot(cluster.at("c"))
        await cluster.sleep(4 * EVERY_S)
        assert metrics(cluster, "c").sinks == {"paused": 1}
        info = await state_of(cluster, "a")
        assert info.reason == "sink at c is paused: table: no way there"
        assert info.delivery is not None
        assert info.delivery.rows is None
        other.unreachable = set()
        await finished(cluster)
        check_rows(other, "table")
        await cluster.sleep(2 * EVERY_S)
        assert reasons(cluster) == {}
        assert metrics(cluster, "b").behind_s == {}
        assert sum(metrics(cluster, name).queries_failed for name in "abc") == 0

    in_calm_cluster(tmp_path, "abc", test, measure_interval_s=EVERY_S)

"""A node that is told to stop moves everything off and leaves first, where ``node.drain_on_stop`` says so."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from tests.adaptation.test_draining import check_all_rows, left, running, two_queries_at
from tests.calm_clusters import CALM, in_calm_cluster
from tests.nodes.clusters import owner_of, state_of
from tests.nodes.test_moved_operators import delivered

LIMIT_S = 20.0
DRAINED = msgspec.structs.replace(
    CALM,
    node=msgspec.structs.replace(CONFIG.node, drain_on_stop=True),
    migration=msgspec.structs.replace(CONFIG.migration, drain_on_stop_s=LIMIT_S),
)


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_a_node_leaves_when_it_is_stopped_and_its_operators_go_on_elsewhere(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operators = await two_queries_at(cluster, tmp_path, "c")
        await cluster.stop("c")
        await left(cluster, "c")
        assert {(await owner_of(cluster, "a", operator))[0] for operator in operators} <= {"a", "b", "d"}
        await check_all_rows(cluster, tmp_path)

    in_calm_cluster(tmp_path, "abcd", test, config=DRAINED)


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_a_node_with_a_source_is_away_and_not_drained_after_its_next_start(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path, "producer", rows=300)
        (operator,) = cluster.at("b").daemon.hosting.operators.hosted()
        await cluster.stop("b")
        assert (await owner_of(cluster, "a", operator))[0] in "ac"
        member = cluster.at("a").daemon.membership.get("b")
        assert member is not None
        assert member.state == "away"
        cluster.boot(cluster.at("b"))
        while (await state_of(cluster, "a")).state == "running":
            await cluster.clock.sleep(1)
        assert not cluster.at("b").daemon.operations.status().drained
        assert sorted(int(row["id"]) for row in delivered(tmp_path / "out.csv")) == list(range(300))

    in_calm_cluster(tmp_path, "abc", test, config=DRAINED)


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_a_node_stops_in_time_where_nobody_takes_its_operators(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operators = await two_queries_at(cluster, tmp_path, "c")
        for node in "ab":
            cluster.crash(cluster.at(node))
        begun_s = cluster.clock.now()
        await cluster.call("c", cluster.at("c").daemon.operations.before_stop())
        assert cluster.clock.now() - begun_s <= LIMIT_S + 1
        assert set(cluster.at("c").daemon.hosting.operators.hosted()) == set(operators)
        await cluster.stop("c")
        for node in "abc":
            cluster.boot(cluster.at(node))
        await cluster.together()
        await check_all_rows(cluster, tmp_path)

    in_calm_cluster(tmp_path, "abc", test, config=DRAINED)

"""Measures of operators survive restarts of their node, and go along when an operator moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.hosting.operators.host import OperatorHost
from sbon_protocol.api.measures import MeasureSums, OperatorMeasures
from sbon_protocol.api.operators import OperatorStats
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import MoveHow
from tests.nodes.clusters import declare, in_cluster, source_at, state_of, submitted
from tests.nodes.test_moved_operators import WINDOWS, move, operators, running

EVERY_S = 2.0


async def measured(cluster: SimulatedCluster) -> OperatorMeasures:
    """The measures of the query's operator with state, once its host reports some."""
    while True:
        info = await state_of(cluster, "a")
        (operator,) = (one for one in info.operators if one.id == operators(cluster)[-1])
        if operator.measures is not None and operator.measures.row_ms is not None:
            return operator.measures
        await cluster.clock.sleep(0.2)


async def counted(cluster: SimulatedCluster) -> OperatorStats:
    """The counts of the query's operator with state."""
    info = await state_of(cluster, "a")
    (operator,) = (one for one in info.operators if one.id == operators(cluster)[-1])
    assert operator.stats is not None
    return operator.stats


def host_of(cluster: SimulatedCluster, node: str) -> OperatorHost:
    host: OperatorHost = cluster.nodes[node].daemon.hosting.operators
    return host


def test_measures_survive_a_crash_and_the_downtime_is_left_out(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=100_000, rate=40.0))
        await submitted(cluster, "a", tmp_path / "out.csv", sql="SELECT id FROM numbers WHERE id % 2 = 0", strategy="producer")
        await cluster.sleep(20.0)
        before = await measured(cluster)
        assert before.rows_in_s == pytest.approx(40.0, rel=0.1)
        rows_in = (await counted(cluster)).rows_in
        assert rows_in == pytest.approx(20.0 * 40.0, rel=0.1)
        cluster.crash(cluster.nodes["b"])
        await cluster.sleep(300.0)
        cluster.boot(cluster.nodes["b"])
        await cluster.together()
        await cluster.sleep(5.0)
        after = await measured(cluster)
        assert after.seconds > before.seconds - 2 * EVERY_S, "begins anew"
        assert after.selectivity == pytest.approx(0.5, rel=0.01)
        assert after.rows_in_s is not None
        assert after.rows_in_s > 35.0, "the downtime counts"
        assert (await counted(cluster)).rows_in > rows_in - 2 * EVERY_S * 40.0, "counts from 0"

    in_cluster(tmp_path, "ab", test, measure_interval_s=EVERY_S)


def test_an_operator_that_ends_meanwhile_leaves_the_measures_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS, rows=4_000)
        ports = host_of(cluster, "b").ports.open

        def gone() -> int:
            monkeypatch.undo()
            raise SbonError("stream-unknown", "there is none", where="first")

        monkeypatch.setattr(ports[operators(cluster)[-1]], "visible_batch", gone)
        await cluster.sleep(10.0)
        state_bytes = (await measured(cluster)).state_bytes
        assert state_bytes is not None
        assert state_bytes > 0

    in_cluster(tmp_path, "abc", test, measure_interval_s=EVERY_S)


@pytest.mark.parametrize("how", ["follow", "stop"])
def test_measures_move_with_the_operator(tmp_path: Path, how: MoveHow) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS, rows=1_000)
        await cluster.sleep(12.0)
        operator = operators(cluster)[-1]
        before = await measured(cluster)
        assert before.state_bytes is not None
        assert before.state_bytes > 0
        counts = await counted(cluster)
        assert counts.rows_in > 400
        assert (await move(cluster, operator, "b", "c", how=how)).step == "moved"
        after = await measured(cluster)
        # What a follower reads to catch up is not what arrives: the sums of the old host go on.
        assert after.seconds > before.seconds - 5.0
        assert (await counted(cluster)).rows_in >= counts.rows_in
        while (await state_of(cluster, "a")).state == "running":
            await cluster.sleep(1.0)
        info = await state_of(cluster, "a")
        (stats,) = (one.stats for one in info.operators if one.id == operator)
        assert stats is not None
        assert (stats.rows_in, stats.rows_out) == (1000, info.rows), "counts rows twice, or misses some"
        store = cluster.nodes["b"].daemon.context.store
        assert operator not in store.all("measures", MeasureSums), "the old host forgets them"

    in_cluster(tmp_path, "abc", test, measure_interval_s=EVERY_S)


@pytest.mark.one_part_per_commit("impossible measures of an old host", parts=2)
@pytest.mark.parametrize("bad", ["nonsense", {"seconds": -1.0}, {"rows_out": 1e300}, {"seconds": 1.0, "inputs": []}])
def test_impossible_measures_of_the_old_host_stop_no_move(tmp_path: Path, bad: Any) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS, rows=4_000)
        operator = operators(cluster)[-1]
        kept: Any = host_of(cluster, "b").ports.measures
        kept.sums = lambda operator: bad
        assert (await move(cluster, operator, "b", "c")).step == "moved"
        await cluster.sleep(10.0)
        assert (await measured(cluster)).rows_in_s == pytest.approx(40.0, rel=0.3)

    in_cluster(tmp_path, "abc", test, measure_interval_s=EVERY_S)


def test_measures_end_with_the_operator(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=600, rate=40.0))
        await submitted(cluster, "a", tmp_path / "out.csv", strategy="producer")
        await cluster.sleep(10.0)
        store = cluster.nodes["b"].daemon.context.store
        assert len(store.all("measures", MeasureSums)) == 1
        while (await state_of(cluster, "a")).state == "running":
            await cluster.sleep(1.0)
        await cluster.sleep(5.0)
        assert store.all("measures", MeasureSums) == {}

    in_cluster(tmp_path, "ab", test, measure_interval_s=EVERY_S)

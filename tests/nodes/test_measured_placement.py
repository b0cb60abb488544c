"""Placement of a running query counts with measured rates, and its operators know their neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.hosting.operators.host import neighbours
from sbon_node.placement.model.from_plan import LEAST_SECONDS, measured_plan
from sbon_protocol.api.explanations import PlacementExplanation
from sbon_protocol.api.measures import InputMeasures, OperatorMeasures
from sbon_protocol.api.plan import Rate
from sbon_protocol.api.queries import OperatorInfo, QueryInfo
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted
from tests.nodes.test_moved_operators import FILTER, move, operators

RATE = 40.0


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_the_placement_of_a_running_query_counts_with_measured_rates(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=8000, rate=RATE))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=FILTER, strategy="producer")
        await cluster.sleep(LEAST_SECONDS / 2)
        early: PlacementExplanation = await ask(cluster, "a", cluster.at("a").daemon.queries.placement_explainer.query("q"))
        assert not any(link.rate_measured for link in early.links)
        await cluster.sleep(2 * LEAST_SECONDS)
        found: PlacementExplanation = await ask(cluster, "a", cluster.at("a").daemon.queries.placement_explainer.query("q"))
        info = await state_of(cluster, "a")
        (operator,) = info.operators
        measures = operator.measures
        assert measures is not None
        rates = {link.source: link.rate_bytes_s for link in found.links}
        assert all(link.rate_measured for link in found.links)
        assert rates[operator.id] == pytest.approx(measures.bytes_out_s, rel=0.1)
        assert rates[info.sources[0].source.id] == pytest.approx(measures.inputs[0].bytes_s, rel=0.1)

    in_cluster(tmp_path, "abc", test)


def test_an_operator_knows_its_neighbours_where_they_are_now(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=8000, rate=RATE))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=FILTER, strategy="producer")
        await cluster.sleep(10.0)
        (operator,) = operators(cluster)
        for node in "bc":
            if node == "c":
                assert (await move(cluster, operator, "b", "c")).step == "moved"
            daemon = cluster.at(node).daemon
            host = daemon.hosting.operators
            read, written = await ask(cluster, node, neighbours(daemon.context, host, operator))
            (link,) = (one for one in (await state_of(cluster, "a")).links if one.target == operator)
            assert (read.stream, read.node, read.reads) == (link.stream, "b", True)
            assert read.rate_bytes_s == pytest.approx(RATE * link.bytes / link.rows, rel=0.3)
            assert (written.stream, written.node, written.reads) == (operator, "a", False)
            assert written.component.endswith("sink")
            assert written.rate_bytes_s is not None
            assert 0 < written.rate_bytes_s < read.rate_bytes_s  # type: ignore[operator]
        gone = cluster.at("b").daemon
        with pytest.raises(SbonError, match="does not run here"):
            await ask(cluster, "b", neighbours(gone.context, gone.hosting.operators, operator))

    in_cluster(tmp_path, "abc", test)


def test_estimates_stay_until_enough_is_measured(tmp_path: Path) -> None:
    found: list[QueryInfo] = []

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=400, rate=RATE))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=FILTER, strategy="producer")
        found.append(await state_of(cluster, "a"))

    in_cluster(tmp_path, "ab", test)
    (info,) = found
    plan, (operator,) = info.plan, info.operators
    assert plan is not None

    def reported(seconds: float, rows_out_s: float | None) -> OperatorInfo:
        source = plan.sources[0].source.id
        measures = OperatorMeasures(
            seconds=seconds,
            inputs=(InputMeasures(stream=source, rows_s=7.0, bytes_s=70.0),),
            rows_out_s=rows_out_s,
            bytes_out_s=None if rows_out_s is None else 9 * rows_out_s,
        )
        return OperatorInfo(id=operator.id, node="b", fragment="", state="running", measures=measures)

    assert measured_plan(plan, [reported(LEAST_SECONDS / 2, 3.0)]) == plan
    measured = measured_plan(plan, [reported(LEAST_SECONDS, 3.0)])
    assert measured.operators[0].rate == Rate(rows_s=3.0, bytes_s=27.0, measured=True)
    assert (measured.sources[0].rate.rows_s, measured.sources[0].rate.measured) == (7.0, True)
    assert measured.operators[0].estimate == plan.operators[0].estimate
    half = measured_plan(plan, [reported(LEAST_SECONDS, None)])
    assert half.operators[0].rate == plan.operators[0].rate

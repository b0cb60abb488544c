"""Nodes report the flows that they serve to strategies that count with queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon_node.hosting.served_flows import BUSIEST, server_report
from sbon_node.model.measures import InputMeasures, OperatorMeasures
from sbon_node.model.operators import Needs
from sbon_node.model.servers import MAX_FLOWS
from sbon_node.placement.model.network_view import Answer
from sbon_node.simulation.cluster import SimulatedCluster
from sbon_node.workflow.network_view import LiveNetworkView
from tests.workflow.clusters import ask, declare, in_cluster, source_at, submitted
from tests.workflow.test_moved_operators import FILTER


def measured(rows_s: float | None, row_ms: float | None, row_scv: float | None = 1.0) -> OperatorMeasures:
    return OperatorMeasures(inputs=(InputMeasures(stream="s", rows_s=rows_s),), row_ms=row_ms, row_scv=row_scv)


@pytest.mark.parametrize("load, expected", [(0.3, 0.3), (5.0, BUSIEST)])
def test_all_flows_make_the_load_of_the_machine(load: float, expected: float) -> None:
    report = server_report(load, [measured(100.0, 6.0, 0.5), measured(10.0, 30.0), measured(None, None), measured(0.0, 1.0)])
    assert report is not None
    assert [flow.rows_s for flow in report.flows] == [100.0, 10.0]
    assert sum(flow.rows_s * flow.row_ms / 1e3 for flow in report.flows) == pytest.approx(expected)
    assert report.flows[0].row_ms / report.flows[1].row_ms == pytest.approx(6.0 / 30.0)
    assert report.flows[0].row_scv == 0.5


def test_nothing_is_reported_without_measures_or_load() -> None:
    assert server_report(0.5, []) is None
    assert server_report(0.5, [measured(None, None)]) is None
    assert server_report(0.0, [measured(1.0, 1.0)]) is None


def test_the_busiest_flows_are_reported_if_there_are_too_many() -> None:
    report = server_report(0.5, [measured(float(rows), 1.0) for rows in range(1, MAX_FLOWS + 11)])
    assert report is not None
    assert (len(report.flows), report.flows[-1].rows_s) == (MAX_FLOWS, 11.0)


def test_a_node_answers_with_its_flows_and_an_impossible_answer_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=4000, rate=40.0))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=FILTER, strategy="producer")
        await cluster.sleep(15.0)
        host: Any = cluster.at("b").daemon._operators._answers
        host._load = lambda: 0.4
        view = LiveNetworkView(cluster.at("a").daemon.context)
        answer: Answer = await ask(cluster, "a", view.ask("b", Needs()))
        assert answer.server is not None
        (flow,) = answer.server.flows
        assert flow.rate_s == pytest.approx(40.0, rel=0.3)
        assert float(answer.server.traffic().load) == pytest.approx(0.4)
        impossible = {"flows": [{"rows_s": -1.0, "row_ms": 1.0, "row_scv": 1.0}]}
        monkeypatch.setattr(host, "_server", lambda *_: impossible)
        answer = await ask(cluster, "a", view.ask("b", Needs()))
        assert answer.server is None
        assert answer.free is not None

    in_cluster(tmp_path, "ab", test)

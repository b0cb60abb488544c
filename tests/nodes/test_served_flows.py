"""Nodes report the flows that they serve to strategies that count with queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sbon_lab.simulation.cluster import CONFIG, RESTING_ANTS, SimulatedCluster
from sbon_node.config.config import Config
from sbon_node.context import ControlSettings
from sbon_node.hosting.machine.machine_resources import REFERENCE_S, Machine, speed_of
from sbon_node.hosting.operators.room import BUSIEST, server_report, with_core_times
from sbon_node.model.servers import LEAST_SPEED, MAX_FLOWS, MOST_SPEED, ServedFlow, ServerReport
from sbon_node.papers.ants.plug_in import Ants
from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.from_plan import measured_work
from sbon_node.placement.model.network_view import Answer
from sbon_node.placement.model.objective import objective_named
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.selection.discovery import server_of
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placing import LiveNetworkView
from sbon_protocol.api.measures import InputMeasures, OperatorMeasures
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.placement import Placement
from sbon_protocol.api.queries import OperatorInfo
from tests.nodes.clusters import UNHURRIED, ask, declare, in_cluster, source_at, submitted
from tests.nodes.test_moved_operators import FILTER

SPEED = 2.0
"""Speed of a node that takes half of the time of the reference."""

PROBLEM = PlacementProblem(
    pinned={"source": "a", "consumer": "d"},
    operators=(Operator(id="f", needs=Needs(cores=0.5), rows_s=10.0, row_core_ms=20.0),),
    edges=(Edge("source", "f", 4e3, 10.0), Edge("f", "consumer", 2e3, 10.0)),
    objective=objective_named("latency"),
)
"""One operator between two nodes, of which a row takes 20 ms at speed 1."""


def measured(rows_s: float | None, row_ms: float | None, row_scv: float | None = 1.0) -> OperatorMeasures:
    return OperatorMeasures(inputs=(InputMeasures(stream="s", rows_s=rows_s),), row_ms=row_ms, row_scv=row_scv)


@pytest.mark.parametrize("load, expected", [(0.3, 0.3), (5.0, BUSIEST)])
def test_all_flows_make_the_load_of_the_machine(load: float, expected: float) -> None:
    report = server_report(
        load, SPEED, [measured(100.0, 6.0, 0.5), measured(10.0, 30.0), measured(None, None), measured(0.0, 1.0)]
    )
    assert [flow.rows_s for flow in report.flows] == [100.0, 10.0]
    assert sum(flow.rows_s * flow.row_ms / 1e3 / SPEED for flow in report.flows) == pytest.approx(expected)
    assert report.flows[0].row_ms / report.flows[1].row_ms == pytest.approx(6.0 / 30.0)
    assert report.flows[0].row_scv == 0.5


def test_an_operators_rows_keep_a_core_busy_as_the_load_says() -> None:
    one, other = measured(100.0, 6.0), measured(10.0, 30.0)
    described = [OperatorInfo(id="q.b0", node="a", fragment="", state="running", measures=one)]
    (info,) = with_core_times(0.45, 2.0, [one, other], described)
    assert info.measures is not None
    assert info.measures.core_ms == pytest.approx(6.0), "0.3 of the load at 100 rows/s and speed 2"
    assert with_core_times(0.0, 2.0, [one, other], described) == described
    unmeasured = [replace(described[0], measures=None)]
    assert with_core_times(0.45, 2.0, [one, other], unmeasured) == unmeasured


def test_measured_work_replaces_estimates_once_it_is_known_for_long_enough() -> None:
    problem = PlacementProblem(pinned={}, operators=(Operator(id="q.b0", row_core_ms=0.1, rows_s=10.0),), edges=())

    def work(seconds: float, core_ms: float | None) -> tuple[float, float]:
        measures = OperatorMeasures(seconds=seconds, core_ms=core_ms, row_scv=2.0)
        info = OperatorInfo(id="q.b0", node="a", fragment="", state="running", measures=measures)
        (operator,) = measured_work(problem, [info]).operators
        return operator.service.mean_ms, operator.service.scv

    assert work(20.0, 8.0) == (8.0, 1.0)
    assert work(1.0, 8.0) == work(20.0, None) == (0.1, 1.0)


@pytest.mark.parametrize("all_measured", [True, False])
def test_processor_time_counts_where_all_operators_have_measured_it(all_measured: bool) -> None:
    waiting = replace(measured(10.0, 50.0, 9.0), cpu_row_ms=1.0, cpu_row_scv=0.5)
    working = replace(measured(20.0, 5.0, 9.0), cpu_row_ms=3.0 if all_measured else None, cpu_row_scv=2.0)
    flows = {flow.rows_s: flow for flow in server_report(0.4, SPEED, [waiting, working]).flows}
    one, other = flows[10.0], flows[20.0]
    ratio = other.row_ms / one.row_ms
    assert (ratio, other.row_scv) == (pytest.approx(3.0), 2.0) if all_measured else (pytest.approx(0.1), 9.0)
    assert sum(flow.rows_s * flow.row_ms / 1e3 / SPEED for flow in (one, other)) == pytest.approx(0.4)
    described = [OperatorInfo(id="q.b0", node="a", fragment="", state="running", measures=working)]
    (info,) = with_core_times(0.4, SPEED, [waiting, working], described)
    assert info.measures is not None
    assert info.measures.core_ms == pytest.approx(other.row_ms)


def test_nothing_is_reported_without_measures_or_load() -> None:
    assert server_report(0.5, SPEED, []) == ServerReport(speed=SPEED, other_load=0.5)
    assert server_report(3.0, SPEED, [measured(None, None)]) == ServerReport(speed=SPEED, other_load=BUSIEST)
    only = measured(1.0, 1.0)
    assert server_report(0.5, SPEED, [only], [only]) == ServerReport(speed=SPEED), "a query's own load is no other's"
    assert server_report(0.0, SPEED, [measured(1.0, 1.0)]) == ServerReport(speed=SPEED)


def test_the_busiest_flows_are_reported_if_there_are_too_many() -> None:
    report = server_report(0.5, SPEED, [measured(float(rows), 1.0) for rows in range(1, MAX_FLOWS + 11)])
    assert (len(report.flows), report.flows[-1].rows_s) == (MAX_FLOWS, 11.0)


def test_a_node_answers_with_its_flows_and_an_impossible_answer_counts_as_none(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=4000, rate=40.0))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=FILTER, strategy="producer")
        await cluster.sleep(15.0)
        host: Any = cluster.at("b").daemon
        host.hosting.room.load = lambda: 0.4
        view = LiveNetworkView(cluster.at("a").daemon.context)
        answer: Answer = await ask(cluster, "a", view.ask("b", Needs()))
        assert answer.server is not None
        (flow,) = answer.server.flows
        assert flow.rate_s == pytest.approx(40.0, rel=0.3)
        assert float(answer.server.traffic().load) == pytest.approx(0.4)
        impossible = ServerReport(flows=(ServedFlow(rows_s=-1.0, row_ms=1.0, row_scv=1.0),))
        host.hosting.room.measured = lambda load, query: impossible
        answer = await ask(cluster, "a", view.ask("b", Needs()))
        assert answer.server is None
        assert answer.free is not None

    in_cluster(tmp_path, "ab", test)


def with_speed(speed: float) -> Config:
    return replace(UNHURRIED, control=replace(CONFIG.control, speed=speed), ants=replace(RESTING_ANTS, tell_s=2.0))


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_node_states_its_speed_and_the_times_that_rows_take_at_speed_1(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=4000, rate=40.0))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=FILTER, strategy="producer")
        await cluster.sleep(15.0)
        cluster.at("b").load_per_core = 0.4
        view = LiveNetworkView(cluster.at("a").daemon.context)
        fast, slow = [await ask(cluster, "a", view.ask(node, Needs())) for node in "bc"]
        assert fast.server is not None
        assert fast.server.speed == 4.0
        (flow,) = fast.server.flows
        assert flow.rate_s * flow.service.mean_ms / 1e3 == pytest.approx(4.0 * 0.4, rel=1e-6)
        assert float(fast.server.traffic().load) == pytest.approx(0.4, rel=1e-6)
        assert slow.server is not None
        assert (slow.server.speed, slow.server.flows) == (0.25, ())
        cluster.at("c").load_per_core = 0.6
        (uid,) = {one.spec.query for one in cluster.at("b").daemon.hosting.operators.stored()}
        own, other = [await ask(cluster, "a", LiveNetworkView(view._context, uid).ask(node, Needs())) for node in "bc"]
        assert (own.server.flows, own.load, server_of(PROBLEM, own).flows) == ((), 0.4, ()), "its own load counts as others'"
        assert float(server_of(PROBLEM, other).traffic().load) == pytest.approx(0.6)
        await cluster.sleep(15.0)  # The cell of ants looks at its node from time to time.
        cell = cluster.at("b").daemon.paper(Ants).service.cell
        assert (cell.speed, float(cell.traffic.load)) == (4.0, pytest.approx(0.4, rel=0.05))
        assert float(cluster.at("c").daemon.paper(Ants).service.cell.traffic.load) == pytest.approx(0.6)

    in_cluster(tmp_path, "abc", test, configs={"b": with_speed(4.0), "c": with_speed(0.25)})


@pytest.mark.one_part_per_commit("strategies that count with queues", parts=6)
@pytest.mark.parametrize("strategy", ["ants", "centralized"])
@pytest.mark.parametrize("fast", ["b", "c"])
def test_strategies_that_count_with_queues_prefer_the_faster_of_two_equal_nodes(tmp_path: Path, strategy: str, fast: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        view = LiveNetworkView(cluster.at("a").daemon.context)
        placed: Placement = await ask(cluster, "a", STRATEGIES[strategy](PROBLEM, view, PlacementSettings()))
        assert placed.hosts() == {"f": fast}

    speeds = {node: with_speed(4.0 if node == fast else 0.5) for node in "bc"}
    full = replace(UNHURRIED, control=replace(CONFIG.control, cores=0.1))
    in_cluster(tmp_path, "abcd", test, configs={**speeds, "a": full, "d": full})


def test_the_processor_is_measured_where_no_speed_is_configured() -> None:
    measured_speed = Machine(ControlSettings()).speed()
    assert 0.05 < measured_speed < 20.0
    assert Machine(ControlSettings(speed=3.0)).capacity(1).speed == 3.0
    assert speed_of(REFERENCE_S / 2) == pytest.approx(2.0)
    assert [speed_of(took_s) for took_s in (0.0, 1e6)] == [MOST_SPEED, LEAST_SPEED]

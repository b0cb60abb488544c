"""Operators and sources measured on whole nodes in virtual time, remembered by signature, and used by the next plan."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.ownership.queries import LIVE
from sbon_protocol.api.explanations import ExplainedComponent, Explanation
from sbon_protocol.api.operators import OperatorStats
from sbon_protocol.api.queries import Accepted, LinkInfo, QueryInfo, QuerySpec, SinkSpec, Submission
from sbon_protocol.api.streams import SourceInfo
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.measuring import KeepMeasurements, Measurements, OperatorMeasurement, RecallMeasurements
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of

QUARTER = "SELECT id, v FROM numbers WHERE v < 0.25"
RATE = 50.0


async def started(cluster: SimulatedCluster, at: str, path: Path, name: str = "q") -> QueryInfo:
    async def submit() -> QueryInfo:
        sink = SinkSpec(kind="file", options={"path": str(path)})
        async for event in cluster.at(at).daemon.submitting.submitter.submit(
            Submission(sql=QUARTER, name=name, sink=sink, strategy="producer", reuse="never")
        ):
            if isinstance(event, Accepted):
                return event.query
        raise AssertionError("the submission ended without an answer")

    info: QueryInfo = await ask(cluster, at, submit())
    return info


async def explained(cluster: SimulatedCluster, at: str, query: str = "") -> Explanation:
    daemon = cluster.at(at).daemon
    question = QuerySpec(sql=QUARTER, consumer="c")
    found: Explanation = await ask(
        cluster, at, daemon.queries.explainer.query(query) if query else daemon.queries.explainer.plan(question)
    )
    return found


def part(found: Explanation, kind: str) -> ExplainedComponent:
    (one,) = (one for one in found.components if one.kind == kind)
    return one


async def over(cluster: SimulatedCluster, at: str) -> None:
    while (await state_of(cluster, at)).state in LIVE:
        await cluster.sleep(1.0)


def test_a_plan_is_explained_without_a_trace(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("a", rows=2000, rate=RATE))
        found = await explained(cluster, "b")
        assert [one.kind for one in found.components] == ["sink", "operator", "source"]
        assert (found.query, found.consumer, found.state) == ("", "c", "planned")
        operator, source = part(found, "operator"), part(found, "source")
        assert operator.node in "abc"
        assert (operator.remembered, operator.measured.selectivity) == (False, None)
        assert operator.estimated.selectivity == pytest.approx(0.25, rel=0.2), "a sample of a's rows tells it"
        assert source.estimated.rows_s == pytest.approx(RATE, rel=0.05)
        assert source.estimated.row_bytes != 100.0
        for node in "abc":
            assert await ask(cluster, node, cluster.at(node).daemon.queries.lookup.all()) == []
            assert cluster.at(node).daemon.operations.status().operators == ()

    in_cluster(tmp_path, "abc", test)


def test_running_operators_are_measured_for_the_next_plan(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("a", rows=2000, rate=RATE))
        before = await explained(cluster, "b")
        await started(cluster, "c", tmp_path / "out.ndjson")
        await cluster.sleep(20.0)
        running = await explained(cluster, "b", "q")
        assert (running.query, running.state) == ("q", "running")
        operator, source = part(running, "operator"), part(running, "source")
        assert source.measured.rows_s == pytest.approx(RATE, rel=0.1)
        assert operator.measured.rows_s == pytest.approx(RATE / 4, rel=0.3)
        assert operator.measured.selectivity == pytest.approx(0.25, rel=0.2)
        assert operator.estimated.selectivity == pytest.approx(0.25, rel=0.2), "a sample of a's rows tells it"
        sizes = [link.measured_bytes_s for link in running.links]
        assert sizes == [source.measured.bytes_s, operator.measured.bytes_s]
        bill = await ask(cluster, "b", cluster.at("b").daemon.queries.lookup.usage("q"))
        assert running.measured_usage is not None
        assert running.measured_baseline_usage is not None
        share = running.measured_usage / running.measured_baseline_usage
        assert share == pytest.approx(bill.byte_ms / bill.baseline_byte_ms, rel=0.02), "as sbon query usage has it"
        assert operator.ratio == pytest.approx(operator.estimated.selectivity / operator.measured.selectivity, rel=0.05)
        assert source.ratio == pytest.approx(1.0, rel=0.2)
        assert running.worst_ratio == max(operator.ratio, 1 / operator.ratio)
        planned = await explained(cluster, "b")
        assert not part(planned, "operator").remembered, "no measurement has been sent yet"
        assert (part(planned, "operator").ratio, planned.median_ratio) == (None, None)
        await cluster.sleep(15.0)
        for node in "abc":
            found = await explained(cluster, node)
            operator = part(found, "operator")
            assert operator.remembered
            assert operator.measured.selectivity == pytest.approx(0.25, rel=0.1)
            estimated = part(before, "operator").estimated.selectivity
            assert operator.estimated.selectivity == pytest.approx(estimated, rel=0.2)
            assert operator.ratio == pytest.approx(estimated / operator.measured.selectivity, rel=0.05), "of the earlier run"
            assert found.median_ratio == found.worst_ratio == max(operator.ratio, 1 / operator.ratio)
            (out,) = (link for link in found.links if link.target == "sink")
            assert out.bytes_s == pytest.approx(operator.measured.bytes_s)
        again = await started(cluster, "b", tmp_path / "again.ndjson", "again")
        assert again.plan is not None
        assert again.plan.operators[0].rate.measured
        await over(cluster, "c")

    in_cluster(tmp_path, "abc", test, measure_interval_s=28.0)


def test_a_query_that_was_short_is_remembered_when_it_ends(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("a", rows=300, rate=100.0))
        await started(cluster, "c", tmp_path / "out.ndjson")
        await over(cluster, "c")
        await cluster.sleep(1.0)
        info = await state_of(cluster, "c")
        operator = part(await explained(cluster, "b"), "operator")
        assert operator.remembered
        assert operator.measured.selectivity == pytest.approx(info.rows / 300)
        ended = part(await explained(cluster, "a", "q"), "operator")
        assert ended.measured.selectivity == pytest.approx(info.rows / 300)

    in_cluster(tmp_path, "abc", test, measure_interval_s=3600.0)


def test_an_explanation_is_refused_as_a_submission_is(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        daemon = cluster.at("b").daemon
        for question, code, where in (
            (QuerySpec(sql="SELECT nothing FROM numbers"), "unknown-column", "line 1, column 8"),
            (QuerySpec(sql=QUARTER, strategy="best"), "unknown-strategy", "strategy"),
            (QuerySpec(sql=QUARTER, consumer="z"), "unknown-node", "consumer"),
        ):
            with pytest.raises(SbonError) as refused:
                await ask(cluster, "b", daemon.queries.explainer.plan(question))
            assert (refused.value.code, refused.value.where) == (code, where)
        with pytest.raises(SbonError, match="there is no query"):
            await ask(cluster, "b", daemon.queries.explainer.query("none"))

    in_cluster(tmp_path, "ab", test)


def measurement(
    signature: str, rows_in: int = 1000, rows_out: int = 10, bytes_out: int = 500, age_s: float = 0.0
) -> OperatorMeasurement:
    return OperatorMeasurement(signature=signature, rows_in=rows_in, rows_out=rows_out, bytes_out=bytes_out, age_s=age_s)


async def recalled(cluster: SimulatedCluster, *signatures: str) -> list[OperatorMeasurement]:
    call = RecallMeasurements(sources=(), signatures=signatures)
    answer = await ask(cluster, "a", cluster.at("a").daemon.context.ask("b", call, Measurements))
    return list(answer.operators)


async def told(cluster: SimulatedCluster, *measurements: OperatorMeasurement) -> None:
    await ask(cluster, "a", cluster.at("a").daemon.context.call("b", KeepMeasurements(operators=measurements)))


def test_measurements_of_peers_are_bounded_and_expire_and_impossible_ones_are_counted(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        impossible = [measurement("x", 0, 1), measurement("x", 1, 10**7), measurement("x", 100, 1, 2**21), measurement("")]
        await told(cluster, *impossible)
        assert await recalled(cluster, "x", "") == []
        assert cluster.at("b").daemon.operations.status().counters["measurement-refused"] == len(impossible)
        await told(cluster, *(measurement(name) for name in "pqr"))
        assert [one.signature for one in await recalled(cluster, "q", "p", "r")] == ["q", "p", "r"]
        await told(cluster, measurement("s"))
        assert [one.signature for one in await recalled(cluster, *"pqrs")] == ["p", "r", "s"], "q was asked for longest ago"
        await told(
            cluster, measurement("p", rows_out=20, age_s=50.0), measurement("r", rows_out=20), measurement("t", age_s=101.0)
        )
        assert {one.signature: one.rows_out for one in await recalled(cluster, *"prst")} == {"p": 10, "r": 20, "s": 10}
        await cluster.sleep(101.0)
        assert await recalled(cluster, *"pqrst") == []

    in_cluster(tmp_path, "ab", test, max_measurements=3, measurement_age_s=100.0)


def test_the_newest_of_two_answers_counts(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=10_000), source_at("b", rows=10_000))
        info = await started(cluster, "c", tmp_path / "out.ndjson")
        assert info.plan is not None
        signature = info.plan.operators[0].signature
        for node, rows_out, age_s in (("a", 10, 50.0), ("b", 20, 5.0)):
            call = KeepMeasurements(operators=(measurement(signature, rows_out=rows_out, age_s=age_s),))
            await ask(cluster, "c", cluster.at("c").daemon.context.call(node, call))
        found = await explained(cluster, "c")
        (one,) = (part for part in found.components if part.kind == "operator" and part.remembered)
        assert one.measured.selectivity == pytest.approx(20 / 1000)

    in_cluster(tmp_path, "abc", test, measure_interval_s=3600.0)


@pytest.mark.parametrize(
    "kind, told",
    [
        (OperatorStats, {"rows_in": -1}),
        (OperatorStats, {"bytes_out": 2**63}),
        (OperatorStats, {"rows_out_s": -0.5}),
        (OperatorStats, {"rows_out_s": float("nan")}),
        (OperatorStats, {"bytes_out_s": float("inf")}),
        (SourceInfo, {"rows_s": 1e16}),
        (SourceInfo, {"late": -1}),
        (LinkInfo, {"bytes": -1}),
        (LinkInfo, {"dropped": 2**63}),
        (QueryInfo, {"rows": -1}),
        (QueryInfo, {"submitted_ms": 10**15}),
    ],
)
def test_figures_of_peers_are_finite_and_within_bounds(kind: type[msgspec.Struct], told: dict[str, object]) -> None:
    good = {
        OperatorStats: {},
        SourceInfo: {"source": msgspec.to_builtins(source_at("a")), "state": "running"},
        LinkInfo: {
            "stream": "q.b0",
            "source_node": "a",
            "target": "q.sink",
            "target_node": "b",
            "rows": 1,
            "bytes": 1,
            "latency_ms": None,
        },
        QueryInfo: {"id": "q", "sql": "", "state": "running"},
    }[kind]
    fields = good | told
    assert decode_record(good, kind) is not None
    with pytest.raises(ProtocolError):
        decode_record(fields, kind)


def test_running_operators_report_their_rates_and_links(tmp_path: Path) -> None:
    """A source of 50 rows a second, of which a quarter pass: the rates, by input, are reported while the query runs."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("a", rows=6000, rate=RATE))
        await started(cluster, "c", tmp_path / "out.ndjson")
        await cluster.sleep(20.0)
        info: QueryInfo = await ask(cluster, "c", cluster.at("c").daemon.queries.lookup.query("q"))
        (operator,) = info.operators
        measures = operator.measures
        assert measures is not None
        (read,) = measures.inputs
        assert read.stream == info.sources[0].source.id
        assert measures.rows_in_s == pytest.approx(RATE, rel=0.1)
        assert measures.selectivity == pytest.approx(0.25, rel=0.2)
        assert measures.rows_out_s == pytest.approx(RATE * measures.selectivity, rel=0.01)  # type: ignore[operator]
        (link,) = (one for one in info.links if one.target == operator.id)
        assert read.bytes_s == pytest.approx(RATE * link.bytes / link.rows, rel=0.1)
        assert measures.row_ms is not None
        assert measures.batches_s is not None
        assert measures.busy == pytest.approx(measures.batch_ms * measures.batches_s / 1000, rel=0.01)  # type: ignore[operator]
        assert 0 < measures.busy < 1
        assert link.frames_behind <= 5

    in_cluster(tmp_path, "abc", test)

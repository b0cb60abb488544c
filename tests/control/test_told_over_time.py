"""What is told of a query as time goes on, on whole nodes in virtual time: how far its parts are, and what it has cost so far."""

from __future__ import annotations

from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from sbon_node.control.bill import MAX_POINTS, BillHistory
from sbon_node.control.explaining.plan_explanation import ExplainedPart
from sbon_node.control.records import LIVE
from sbon_node.control.report import Bill
from sbon_node.simulation.cluster import SimulatedCluster
from tests.control.clusters import ask, declare, in_cluster, source_at, state_of, submitted

RATE = 10.0
ROWS = 2000
START_MS = 1_577_836_800_000
"""The generator's first row: 2020 begins."""


async def parts(cluster: SimulatedCluster, at: str) -> dict[str, ExplainedPart]:
    found = await ask(cluster, at, cluster.at(at).daemon.explain_query("q"))
    return {part.kind: part for part in found.parts}


async def started(cluster: SimulatedCluster, path: Path) -> None:
    """Rows are born at ``b`` and filtered and wanted at ``c``; ``a`` keeps the record."""
    await declare(cluster, "a", source_at("b", rows=ROWS, rate=RATE))
    await submitted(cluster, "a", path, consumer="c", strategy="consumer")


async def over(cluster: SimulatedCluster) -> None:
    while (await state_of(cluster, "a")).state in LIVE:
        await cluster.sleep(1.0)


def test_how_far_each_part_is_in_event_time(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await started(cluster, tmp_path / "out.csv")
        while not (await parts(cluster, "a"))["sink"].rows:
            await cluster.sleep(0.5)
        before = (await parts(cluster, "a"))["operator"].watermark_ms
        await cluster.sleep(60.0)
        found = await parts(cluster, "c")
        source, operator, sink = found["source"], found["operator"], found["sink"]
        assert None not in (source.rows, operator.rows, sink.rows, operator.watermark_ms, before)
        assert source.watermark_ms == START_MS + round((source.rows - 1) * 1000 / RATE)
        assert before < operator.watermark_ms <= source.watermark_ms
        assert ROWS > source.rows >= operator.rows >= sink.rows > 0
        assert (source.state, operator.state, sink.state) == ("running", "running", "running")
        assert not source.ended
        assert not operator.ended
        await over(cluster)
        found = await parts(cluster, "c")
        assert [found[kind].rows for kind in ("source", "operator", "sink")] == [ROWS] * 3
        assert found["source"].watermark_ms == START_MS + round((ROWS - 1) * 1000 / RATE)
        assert (found["source"].state, found["operator"].state, found["sink"].state) == ("ended", "over", "finished")
        assert found["source"].ended
        assert found["operator"].ended
        assert found["operator"].watermark_ms is None

    in_cluster(tmp_path, "abc", test)


def test_a_bill_tells_its_history(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await started(cluster, tmp_path / "out.csv")
        await cluster.sleep(100.0)
        bill: Bill = await ask(cluster, "b", cluster.at("b").daemon.bill("q"))
        points = bill.history
        assert points[0].byte_ms == 0.0
        assert len(points) in (10, 11)
        gaps = [(later.at_ms - earlier.at_ms) / 1000 for earlier, later in pairwise(points[1:])]
        assert all(10.0 <= gap < 11.0 for gap in gaps)
        sums = [*(point.byte_ms for point in points), bill.byte_ms]
        assert sums == sorted(sums)
        assert sums[-1] > sums[1] > 0
        assert points[-1].at_ms <= bill.at_ms
        await over(cluster)
        last: Bill = await ask(cluster, "b", cluster.at("b").daemon.bill("q"))
        assert last.history[: len(points)] == points
        assert last.byte_ms >= last.history[-1].byte_ms > bill.byte_ms

    in_cluster(tmp_path, "abc", test, measure_interval_s=10.0)


def test_a_long_history_stays_whole_and_short() -> None:
    history = BillHistory()
    for minute in range(10_000):
        history.add(Bill(query="q", strategy="", links=(), whole=(), byte_ms=minute, whole_byte_ms=2 * minute, at_ms=minute))
    times = [point.at_ms for point in history.points]
    assert MAX_POINTS / 2 <= len(times) <= MAX_POINTS
    assert times[0] == 0
    assert {later - earlier for earlier, later in pairwise(times)} == {128}
    assert 10_000 - times[-1] <= 128


def test_members_tell_which_version_they_run(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        assert {member.version for member in cluster.at("a").daemon.members()} == {version("sbon")}

    in_cluster(tmp_path, "ab", test)

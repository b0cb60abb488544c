"""Progress and network usage of a query over time, on whole nodes in virtual time."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.context import ControlSettings
from sbon_node.ownership.queries import LIVE
from sbon_node.queries.describing.time_series import OLDER_APART_MS, OLDER_POINTS, OLDEST_POINTS, TimeSeries, thinned
from sbon_node.queries.driving.leader import UsageHistories
from sbon_protocol.api.explanations import ExplainedComponent
from sbon_protocol.api.usage import QueryUsage, QueryUsagePoint
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted

RATE = 2.0
START_MS = 1_577_836_800_000
"""The generator's first row: 2020 begins."""


async def components(cluster: SimulatedCluster, at: str) -> dict[str, ExplainedComponent]:
    found = await ask(cluster, at, cluster.at(at).daemon.queries.explainer.query("q"))
    return {part.kind: part for part in found.components}


async def started(cluster: SimulatedCluster, path: Path, rows: int) -> None:
    """Rows are born at ``b`` and filtered and wanted at ``c``; ``a`` keeps the record."""
    await declare(cluster, "a", source_at("b", rows=rows, rate=RATE))
    await submitted(cluster, "a", path, consumer="c", strategy="consumer")


async def over(cluster: SimulatedCluster) -> None:
    while (await state_of(cluster, "a")).state in LIVE:
        await cluster.sleep(1.0)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_how_far_each_part_is_in_event_time(tmp_path: Path) -> None:
    rows = 80

    async def test(cluster: SimulatedCluster) -> None:
        await started(cluster, tmp_path / "out.csv", rows)
        while not (await components(cluster, "a"))["sink"].rows:
            await cluster.sleep(0.5)
        before = (await components(cluster, "a"))["operator"].watermark_ms
        await cluster.sleep(15.0)
        found = await components(cluster, "c")
        source, operator, sink = found["source"], found["operator"], found["sink"]
        assert None not in (source.rows, operator.rows, sink.rows, operator.watermark_ms, before)
        assert source.watermark_ms == START_MS + round((source.rows - 1) * 1000 / RATE)
        assert before < operator.watermark_ms <= source.watermark_ms
        assert rows > source.rows >= operator.rows >= sink.rows > 0
        assert (source.state, operator.state, sink.state) == ("running", "running", "running")
        assert not source.ended
        assert not operator.ended
        await over(cluster)
        found = await components(cluster, "c")
        assert [found[kind].rows for kind in ("source", "operator", "sink")] == [rows] * 3
        assert found["source"].watermark_ms == START_MS + round((rows - 1) * 1000 / RATE)
        assert (found["source"].state, found["operator"].state, found["sink"].state) == ("ended", "over", "finished")
        assert found["source"].ended
        assert found["operator"].ended
        assert found["operator"].watermark_ms is None

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_bill_tells_its_history(tmp_path: Path) -> None:
    rows = 140

    async def test(cluster: SimulatedCluster) -> None:
        await started(cluster, tmp_path / "out.csv", rows)
        await cluster.sleep(50.0)
        query_usage: QueryUsage = await ask(cluster, "b", cluster.at("b").daemon.queries.lookup.usage("q"))
        points = query_usage.history
        assert points[0].byte_ms == 0.0
        assert len(points) in (10, 11)
        gaps = [(later.at_ms - earlier.at_ms) / 1000 for earlier, later in pairwise(points[1:])]
        assert all(5.0 <= gap < 6.0 for gap in gaps)
        sums = [*(point.byte_ms for point in points), query_usage.byte_ms]
        assert sums == sorted(sums)
        assert sums[-1] > sums[1] > 0
        for count in ("rows_in", "rows_out"):
            counted = [getattr(point, count) for point in points[1:]]
            assert counted == sorted(counted)
            assert rows >= counted[-1] > counted[0] > 0
        assert {point.held_back for point in points[1:]} == {0}
        assert all(point.lag_ms is not None for point in points[2:])
        assert all(0 <= (point.lag_ms or 0) < 60_000 for point in points), "a watermark of 0 is none"
        assert points[-1].at_ms <= query_usage.at_ms
        await over(cluster)
        last: QueryUsage = await ask(cluster, "b", cluster.at("b").daemon.queries.lookup.usage("q"))
        assert last.history[: len(points)] == points
        # Latencies are estimated anew each time.
        assert 1.01 * last.byte_ms >= last.history[-1].byte_ms > query_usage.byte_ms

    in_cluster(tmp_path, "abc", test, history_interval_s=5.0)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_the_history_of_the_last_minutes_is_a_point_every_two_seconds_and_only_news_are_asked_for(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await started(cluster, tmp_path / "out.csv", rows=280)
        await cluster.sleep(60.0)
        first: QueryUsage = await ask(cluster, "b", cluster.at("b").daemon.queries.lookup.usage("q"))
        gaps = [later.at_ms - earlier.at_ms for earlier, later in pairwise(first.history[1:])]
        assert len(gaps) in (27, 28, 29)
        assert all(2000 <= gap < 3000 for gap in gaps)
        await cluster.sleep(10.0)
        newest = first.history[-1].at_ms
        more: QueryUsage = await ask(cluster, "b", cluster.at("b").daemon.queries.lookup.usage("q", newest))
        assert len(more.history) in (4, 5, 6)
        assert all(point.at_ms > newest for point in more.history)
        await over(cluster)
        whole: QueryUsage = await ask(cluster, "b", cluster.at("b").daemon.queries.lookup.usage("q"))
        assert whole.history[0] == first.history[0]
        assert OLDEST_POINTS / 2 < len(whole.history) <= OLDEST_POINTS
        late: QueryUsage = await ask(cluster, "b", cluster.at("b").daemon.queries.lookup.usage("q", newest))
        assert late.history == tuple(point for point in whole.history if point.at_ms > newest)

    in_cluster(tmp_path, "abc", test)


@pytest.mark.parametrize("most, turns", [(8, ["a b c"] * 4), (2, ["a b", "c a", "b c", "a b"]), (1, ["a", "b", "c", "a"])])
async def test_many_queries_take_turns_in_the_history(most: int, turns: list[str]) -> None:
    asked: list[list[str]] = []

    class Rounds:
        async def sleep(self, seconds: float) -> None:
            if len(asked) == len(turns):
                raise asyncio.CancelledError
            asked.append([])

    async def now(query: str) -> QueryUsagePoint:
        asked[-1].append(query)
        return point(len(asked))

    context: Any = SimpleNamespace(settings=ControlSettings(history_queries=most), clock=Rounds())
    histories = UsageHistories(context, lambda: ["c", "a", "b", "unknown"], now)
    for query in "abc":
        histories.begin_history(query)
    with pytest.raises(asyncio.CancelledError):
        await histories.run()
    assert [" ".join(names) for names in asked] == turns
    for query in "abc":
        assert [one.at_ms for one in histories.points(query)] == [i for i, names in enumerate(turns, 1) if query in names]


def point(at_ms: int) -> QueryUsagePoint:
    return QueryUsagePoint(at_ms=at_ms, byte_ms=0.0, baseline_byte_ms=0.0)


def test_a_long_history_is_fine_where_it_is_recent_and_stays_whole_and_short() -> None:
    """A week, a point every two seconds."""
    week_ms = 7 * 86_400_000
    history = TimeSeries(300, complete=True)
    for at_ms in range(0, week_ms, 2000):
        history.add(point(at_ms))
    times = [one.at_ms for one in history.points()]
    assert len(times) == len(history) <= 300 + OLDER_POINTS + OLDEST_POINTS
    assert times == sorted(times)
    assert times[0] == 0
    assert times[-300:] == list(range(week_ms - 600_000, week_ms, 2000))
    hour = times[-300 - OLDER_POINTS : -300]
    assert {later - earlier for earlier, later in pairwise(hour)} == {OLDER_APART_MS}
    before = times[: -300 - OLDER_POINTS]
    assert OLDEST_POINTS / 2 <= len(before) <= OLDEST_POINTS
    assert len({later - earlier for earlier, later in pairwise(before)}) == 1
    assert [one.at_ms for one in history.points(week_ms - 10_000)] == [week_ms - n for n in (8000, 6000, 4000, 2000)]


def test_a_history_that_is_not_whole_forgets_the_oldest_and_outlives_a_clock_that_is_set_back() -> None:
    history = TimeSeries(10)
    for at_ms in [*range(10_000_000, 20_000_000, 2000), *range(0, 10_000_000, 2000)]:
        history.add(point(at_ms))
    times = [one.at_ms for one in history.points()]
    assert len(times) == 10 + OLDER_POINTS
    assert min(times) >= 10_000_000 - OLDER_POINTS * OLDER_APART_MS - 30_000


def test_a_stored_history_keeps_its_ends() -> None:
    kept = thinned([point(n) for n in range(540)], 120)
    assert (len(kept), kept[0].at_ms, kept[-1].at_ms) == (120, 0, 539)
    assert all(4 <= later.at_ms - earlier.at_ms <= 5 for earlier, later in pairwise(kept))


def test_members_tell_which_version_they_run(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        assert {member.version for member in cluster.at("a").daemon.operations.distances.members()} == {version("sbon")}

    in_cluster(tmp_path, "ab", test)

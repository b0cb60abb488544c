"""A query from now on counts the rows whose event times are later than all that its sources had; earlier windows are left out."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import declare, in_cluster, source_at, state_of, submitted

ALL = "SELECT id, ts FROM numbers"
COUNTS = "SELECT window(ts, '{0}').start AS w, count(*) AS n FROM numbers GROUP BY window(ts, '{0}')"
PAIRS = "SELECT a.id AS id FROM numbers a JOIN numbers b ON a.id = b.id AND a.ts = b.ts"
ROWS = 800


async def finished(cluster: SimulatedCluster, name: str) -> None:
    while (info := await state_of(cluster, "a", name)).state == "running":
        await cluster.clock.sleep(0.5)
    assert info.state == "finished", info.reason


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def at_ms(text: object) -> int:
    return round(datetime.fromisoformat(str(text)).timestamp() * 1000)


@pytest.mark.one_part_per_commit("decompositions of queries from now on", parts=2)
@pytest.mark.parametrize("decompose", ["never", "always"])
@pytest.mark.parametrize("window", ["1 second", "2 seconds"])
def test_rows_and_windows_from_now_on(tmp_path: Path, window: str, decompose: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=100.0), source_at("b", rows=ROWS, rate=100.0))
        await submitted(cluster, "b", tmp_path / "all.ndjson", name="all", sql=ALL)
        await cluster.clock.sleep(2.8)
        for name, sql in (("late", ALL), ("counts", COUNTS.format(window)), ("pairs", PAIRS)):
            path = tmp_path / f"{name}.ndjson"
            await submitted(cluster, "c", path, name=name, sql=sql, begin="now", decompose=decompose)
        since = {}
        for name in ("late", "counts", "pairs"):
            plan = (await state_of(cluster, "c", name)).plan
            assert plan is not None
            assert plan.since_ms is not None
            assert set(plan.starts) == {one.source.id for one in plan.sources} | {one.id for one in plan.shared}
            assert min(plan.starts.values()) > 0
            since[name] = plan.since_ms
        for name in ("all", "late", "counts", "pairs"):
            await finished(cluster, name)
        every = [(row["id"], at_ms(row["ts"])) for row in rows(tmp_path / "all.ndjson")]
        assert len(every) == 2 * ROWS
        late = sorted(str(row["id"]) for row in rows(tmp_path / "late.ndjson"))
        assert late == sorted(str(one) for one, at in every if at >= since["late"])
        assert 0 < len(late) < 2 * ROWS
        size_ms = int(window.split()[0]) * 1000
        expected: dict[int, int] = {}
        for _, at in every:
            if (begin := at // size_ms * size_ms) >= since["counts"]:
                expected[begin] = expected.get(begin, 0) + 1
        assert {at_ms(row["w"]): row["n"] for row in rows(tmp_path / "counts.ndjson")} == expected
        times: dict[tuple[object, int], int] = {}
        for one, at in every:
            times[one, at] = times.get((one, at), 0) + (at >= since["pairs"])
        assert len(rows(tmp_path / "pairs.ndjson")) == sum(count**2 for count in times.values())

    in_cluster(tmp_path, "abc", test)


def test_a_query_from_now_on_cannot_begin_anew(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=10))
        with pytest.raises(SbonError) as refused:
            await submitted(cluster, "a", None, sql=ALL, begin="now", allow_restart_from_sources=True)
        assert (refused.value.code, refused.value.where) == ("bad-begin", "allow_restart_from_sources")

    in_cluster(tmp_path, "a", test)


@pytest.mark.one_part_per_commit("sources beside one that has ended", parts=2)
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_source_that_has_ended_gives_no_rows_and_holds_up_no_query(tmp_path: Path, goes_on: bool) -> None:
    """Those of another source of the stream count from their own times on."""

    async def test(cluster: SimulatedCluster) -> None:
        sources = [source_at("a", rows=60, rate=100.0), *([source_at("b", rows=ROWS, rate=100.0)] if goes_on else [])]
        await declare(cluster, "a", *sources)
        await submitted(cluster, "b", tmp_path / "all.ndjson", name="all", sql=ALL)
        await cluster.clock.sleep(2.8)
        for name, sql in (("late", ALL), ("counts", COUNTS.format("1 second"))):
            await submitted(cluster, "c", tmp_path / f"{name}.ndjson", name=name, sql=sql, begin="now")
        plan = (await state_of(cluster, "c", "late")).plan
        assert plan is not None
        assert plan.since_ms is not None
        for name in ("all", "late", "counts"):
            await finished(cluster, name)
        every = [(row["id"], at_ms(row["ts"])) for row in rows(tmp_path / "all.ndjson")]
        late = sorted(str(row["id"]) for row in rows(tmp_path / "late.ndjson"))
        assert late == sorted(str(one) for one, at in every if at >= plan.since_ms)
        assert bool(late) == goes_on
        assert bool(rows(tmp_path / "counts.ndjson")) == goes_on

    in_cluster(tmp_path, "abc", test)

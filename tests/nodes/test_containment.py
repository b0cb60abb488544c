"""A new query computes its rows from those of another query's operator that contain them, and gets what it would get alone."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from tests.nodes.clusters import UNHURRIED, ask, declare, in_cluster, source_at, state_of, submitted

ROWS = 600
COUNT = "SELECT window(ts, '{0}').start AS w, window(ts, '{0}').end AS e, {1} FROM numbers{2} GROUP BY window(ts, '{0}')"
OFFERED = {
    "filter": "SELECT id, v, ts FROM numbers WHERE id > 100",
    "windows": COUNT.format("1 second", "count(*) AS n, sum(v) AS s, max(id) AS x, count(v) AS c", ""),
    "pairs": "SELECT a.id, a.ts, b.ts AS t, b.v FROM numbers a JOIN numbers b"
    " ON a.id = b.id AND b.ts BETWEEN a.ts - INTERVAL 2 SECOND AND a.ts",
}
CONTAINED = [
    ("filter", "SELECT id AS number FROM numbers WHERE id > 300 AND id % 2 = 0"),
    ("filter", "SELECT v + 1 AS more, id FROM numbers WHERE 200 < id"),
    ("filter", COUNT.format("2 seconds", "count(*) AS n", " WHERE id > 150")),
    ("windows", COUNT.format("2 seconds", "sum(v) AS total, count(*) AS n", "")),
    ("windows", COUNT.format("3 seconds", "max(id) AS greatest, avg(v) AS mean", "")),
    ("windows", COUNT.format("1 second", "count(*) AS n", "")),
    ("windows", "SELECT window(e, '4 seconds').start AS w, max(n) AS most, count(*) AS windows FROM ("
     "SELECT window(ts, '2 seconds').end AS e, count(*) AS n FROM numbers GROUP BY window(ts, '2 seconds')) x"
     " GROUP BY window(e, '4 seconds')"),
    ("pairs", "SELECT a.id FROM numbers a JOIN numbers b ON a.id = b.id AND b.ts BETWEEN a.ts - INTERVAL 1 SECOND AND a.ts"
     " WHERE a.id > 50"),
    ("pairs", "SELECT window(ts, '2 seconds').start AS w, count(*) AS n FROM (SELECT a.ts FROM numbers a JOIN numbers b"
     " ON a.id = b.id AND b.ts BETWEEN a.ts - INTERVAL 1 SECOND AND a.ts) x GROUP BY window(ts, '2 seconds')"),
]  # fmt: skip


async def finished(cluster: SimulatedCluster, name: str) -> None:
    while (info := await state_of(cluster, "a", name)).state == "running":
        await cluster.clock.sleep(0.5)
    assert info.state == "finished", info.reason


def rows(path: Path) -> list[str]:
    """Rows in order; the last digits of sums depend on the order of the summands."""
    made = [json.loads(line, parse_float=lambda text: round(float(text), 6)) for line in path.read_text().splitlines()]
    return sorted(json.dumps(row, sort_keys=True) for row in made)


@pytest.mark.one_part_per_commit("queries whose offering one goes on or is stopped", parts=4)
@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("offered, wanted", CONTAINED)
def test_a_query_whose_rows_another_one_has(tmp_path: Path, offered: str, wanted: str, stopped: bool) -> None:
    """Its rows are those of the same query alone, also if the other one is stopped meanwhile."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=120.0))
        await submitted(cluster, "b", None, name="first", sql=OFFERED[offered], decompose="never")
        fields: dict[str, Any] = {"decompose": "never", "sql": wanted}
        await submitted(cluster, "b", tmp_path / "second.ndjson", name="second", **fields)
        info = await state_of(cluster, "b", "second")
        assert info.plan is not None
        residuals = [one for one in info.plan.operators if one.residual]
        assert len(residuals) == 1, info.plan
        (read,) = residuals[0].inputs
        first = await state_of(cluster, "b", "first")
        assert first.plan is not None
        assert read.stream in first.plan.outputs
        assert read.stream in [one.id for one in info.shared]
        if stopped:
            await cluster.clock.sleep(3.0)
            await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("first"))
        await finished(cluster, "second")
        await submitted(cluster, "b", tmp_path / "alone.ndjson", name="alone", reuse="never", **fields)
        await finished(cluster, "alone")
        alone = rows(tmp_path / "alone.ndjson")
        assert alone
        assert rows(tmp_path / "second.ndjson") == alone

    in_cluster(tmp_path, "ab", test)


def test_equal_operators_alone_are_shared_on_request(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=120.0))
        await submitted(cluster, "b", None, name="first", sql=OFFERED["filter"])
        await submitted(cluster, "b", None, name="second", sql=CONTAINED[0][1], reuse="equal")
        assert not (await state_of(cluster, "b", "second")).shared
        await submitted(cluster, "b", None, name="third", sql=OFFERED["filter"], reuse="equal")
        assert (await state_of(cluster, "b", "third")).shared

    in_cluster(tmp_path, "ab", test)


def test_residuals_are_shared_in_turn(tmp_path: Path) -> None:
    """The third query's rows are equal to the second's, whose operator is a residual of the first's."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=120.0))
        await submitted(cluster, "b", None, name="first", sql=OFFERED["filter"])
        for name in ("second", "third"):
            await submitted(cluster, "b", tmp_path / f"{name}.ndjson", name=name, sql=CONTAINED[0][1])
        info = await state_of(cluster, "b", "third")
        assert not info.operators
        assert {one.id.rpartition("-")[0] for one in info.shared} == {"first", "second"}
        for name in ("first", "second"):
            await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop(name))
        await finished(cluster, "third")
        assert len(rows(tmp_path / "third.ndjson")) == len([one for one in range(301, ROWS) if one % 2 == 0])

    in_cluster(tmp_path, "ab", test)


@pytest.mark.parametrize("history_bytes", [0, 1 << 20])
@pytest.mark.parametrize("sql", ["SELECT id, ts FROM numbers WHERE id > 300", COUNT.format("1 second", "count(*) AS n", "")])
def test_a_query_from_now_on_reads_operators_that_began_before(tmp_path: Path, sql: str, history_bytes: int) -> None:
    """Also though their frames are gone as soon as they are read: it reads their next ones."""
    streams = msgspec.structs.replace(CONFIG.streams, operator_history_bytes=history_bytes)

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await submitted(cluster, "b", tmp_path / "all.ndjson", name="all", sql="SELECT id, ts FROM numbers")
        await submitted(cluster, "b", None, name="windows", sql=OFFERED["windows"], decompose="never", reuse="never")
        await cluster.clock.sleep(4.3)
        await submitted(cluster, "b", tmp_path / "late.ndjson", name="late", sql=sql, begin="now", decompose="never")
        plan = (await state_of(cluster, "b", "late")).plan
        assert plan is not None
        assert plan.shared
        assert all(plan.starts[one.stream] > 0 for op in plan.operators for one in op.inputs if op.residual)
        assert len(plan.operators) == 1
        for name in ("all", "late"):
            await finished(cluster, name)
        every = [json.loads(line) for line in (tmp_path / "all.ndjson").read_text().splitlines()]
        late = [json.loads(line) for line in (tmp_path / "late.ndjson").read_text().splitlines()]
        assert late
        if "count" not in sql:
            assert plan.since_ms is not None
            expected = [one for one in every if at_ms(one["ts"]) >= plan.since_ms and one["id"] > 300]
            assert sorted(one["id"] for one in late) == sorted(one["id"] for one in expected)
        else:
            begun: dict[int, int] = {}
            for one in every:
                if (begin := at_ms(one["ts"]) // 1000 * 1000) >= (plan.since_ms or 0):
                    begun[begin] = begun.get(begin, 0) + 1
            assert {at_ms(one["w"]): one["n"] for one in late} == begun

    in_cluster(tmp_path, "ab", test, config=msgspec.structs.replace(UNHURRIED, streams=streams))


def at_ms(text: object) -> int:
    return round(datetime.fromisoformat(str(text)).timestamp() * 1000)

"""Queries that keep state, over real daemons and Spark: the same answers as DuckDB's on the whole input at once."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sbon_node.control.report import SinkSpec
from tests.live.family import engine_process
from tests.live.world import World, finished, submit, wait_for

pytestmark = pytest.mark.live

QUERIES = {
    "windowed": (
        "SELECT window.start AS w, site, count(*) AS n, avg(value) AS mean FROM {0} WHERE value > 10e0"
        " GROUP BY window(ts, '1 hour'), site HAVING count(*) > 5",
        "SELECT time_bucket(INTERVAL 1 HOUR, ts), site, count(*), avg(value) FROM readings WHERE value > 10 GROUP BY ALL"
        " HAVING count(*) > 5",
    ),
    "twice": (
        "SELECT window.start AS w, max(n) AS most FROM (SELECT window, site, count(*) AS n FROM {0}"
        " GROUP BY window(ts, '10 minutes'), site) GROUP BY window",
        "SELECT w, max(n) FROM (SELECT time_bucket(INTERVAL 10 MINUTE, ts) AS w, site, count(*) AS n FROM readings GROUP BY ALL)"
        " GROUP BY w",
    ),
    "joined": (
        "SELECT a.n, a.value AS one, b.value AS other FROM {0} a LEFT JOIN {0} b ON a.n + 1 = b.n AND b.site = 'bob'"
        " AND b.ts BETWEEN a.ts - INTERVAL 1 MINUTE AND a.ts + INTERVAL 1 MINUTE WHERE a.site = 'ada' AND a.value > 50e0",
        "SELECT a.n, a.value, b.value FROM readings a LEFT JOIN readings b ON a.n + 1 = b.n AND b.site = 'bob'"
        " AND b.ts BETWEEN a.ts - INTERVAL 1 MINUTE AND a.ts + INTERVAL 1 MINUTE WHERE a.site = 'ada' AND a.value > 50",
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_state_over_several_sources(world: World, tmp_path: Path, name: str) -> None:
    sql, reference = QUERIES[name]
    world.declare(f"state_{name}", replay=0)
    path = tmp_path / "rows.parquet"
    sink = SinkSpec(kind="file", options={"path": str(path), "format": "parquet"})
    info = submit(world.cluster["ada"], sql=sql.format(f"state_{name}"), consumer="dee", sink=sink)
    wait_for(lambda: finished(world.cluster["ada"], info.id), "the query is finished")
    assert _rounded(_rows(path)) == _rounded(world.answer(reference))


def test_state_survives_the_death_of_its_engine(world: World, tmp_path: Path) -> None:
    sql, reference = QUERIES["windowed"]
    world.declare("state_killed", replay=400.0)
    path = tmp_path / "rows.parquet"
    sink = SinkSpec(kind="file", options={"path": str(path), "format": "parquet"})
    info = submit(world.cluster["ada"], sql=sql.format("state_killed"), consumer="dee", sink=sink, strategy="consumer")
    wait_for(lambda: path.is_dir() and any(path.glob("*.parquet")), "rows arrive")
    assert not finished(world.cluster["ada"], info.id)
    engine_process(world.cluster["dee"], "jvm").kill()
    wait_for(lambda: finished(world.cluster["ada"], info.id), "the query is finished")
    assert _rounded(_rows(path)) == _rounded(world.answer(reference))


def _rows(path: Path) -> list[tuple[object, ...]]:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    return database.sql(f"FROM read_parquet('{path}/*.parquet')").fetchall()


def _rounded(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    def plain(value: object) -> object:
        return round(value, 6) if isinstance(value, float) else str(value).removesuffix("+00:00")

    return sorted((tuple(plain(value) for value in row) for row in rows), key=repr)

"""Queries that share operators on Spark have DuckDB's rows each, though one is stopped and a host is killed."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sbon.model import QueryInfo, SinkSpec
from tests.live.world import SQL, World, finished, submit, wait_for

pytestmark = pytest.mark.live

RENAMED = "SELECT r.site AS place, r.n AS number, r.value * 2e0 AS t2, upper(r.note) AS remark, r.ts AS seen FROM {0} r"
WHERE = " WHERE 10e0 < r.value AND r.n % 2 = 0"


def test_rows_of_a_shared_operator_are_those_of_each_query(world: World, tmp_path: Path) -> None:
    world.declare("twice", replay=500.0)
    dee, ada = world.cluster["dee"], world.cluster["ada"]

    def begin(name: str, sql: str) -> QueryInfo:
        sink = SinkSpec(kind="file", options={"path": str(tmp_path / f"{name}.parquet")})
        return submit(dee, name=name, sql=sql, sink=sink, strategy="producer")

    owner = begin("owner", SQL.replace("readings", "twice"))
    reader = begin("reader", RENAMED.format("twice") + WHERE)
    assert {one.id for one in reader.shared} == {one.id for one in owner.operators}
    assert not reader.operators
    wait_for(lambda: (dee.client.query("reader").rows or 0) > 100, "the reader has rows")
    dee.client.stop_query("owner")
    # The host of one of the operators dies, and comes back when their own query is over.
    ada.kill()
    ada.restart()
    wait_for(lambda: finished(dee, "reader"), "the reader has all rows")
    assert read(tmp_path / "reader.parquet") == world.answer()
    wait_for(lambda: all(not node.client.status().operators for node in world.cluster.nodes), "no operator is left")


def read(path: Path) -> list[tuple[object, ...]]:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    pattern = f"{path}/*.parquet" if path.is_dir() else str(path)
    columns = "place, number, t2, remark, seen::TIMESTAMP AS seen"
    return sorted(database.sql(f"SELECT {columns} FROM read_parquet('{pattern}')").fetchall(), key=repr)

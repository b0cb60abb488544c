"""Queries that share operators on Spark have DuckDB's rows each, though one is stopped and a host is killed."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sbon.model import QueryInfo, SinkSpec, SourceDeclaration, StreamDeclaration
from tests.live.world import READINGS, ROWS, SITES, SQL, World, finished, submit, wait_for

pytestmark = pytest.mark.live

RENAMED = "SELECT r.site AS place, r.n AS number, r.value * 2e0 AS t2, upper(r.note) AS remark, r.ts AS seen FROM {0} r"
WHERE = " WHERE 10e0 < r.value AND r.n % 2 = 0"


def test_rows_of_a_shared_operator_are_those_of_each_query(world: World, tmp_path: Path) -> None:
    """The streams begin once both queries run: an operator is shared only as long as it retains its first rows."""
    dee, ada = world.cluster["dee"], world.cluster["ada"]
    ada.client.create_stream(StreamDeclaration(name="twice", schema=READINGS.schema, event_time="ts"))
    files = {site: world.files[0].parent / f"twice-{site}.csv" for site in SITES}
    for site, file in files.items():
        options = {"path": str(file), "from": "beginning"}
        ada.client.attach_source(SourceDeclaration(stream="twice", name=site, node=site, connector="tail", options=options))

    def begin(name: str, sql: str) -> QueryInfo:
        sink = SinkSpec(kind="file", options={"path": str(tmp_path / f"{name}.parquet")})
        return submit(ada, name=name, sql=sql, consumer="dee", sink=sink, strategy="producer")

    def write(lines: slice) -> None:
        for whole, file in zip(world.files, files.values(), strict=True):
            with file.open("a", encoding="utf-8") as out:
                out.writelines(whole.read_text(encoding="utf-8").splitlines(keepends=True)[lines])

    owner = begin("owner", SQL.replace("readings", "twice"))
    reader = begin("reader", RENAMED.format("twice") + WHERE)
    assert {one.id for one in reader.shared} == {one.id for one in owner.operators}
    assert not reader.operators
    write(slice(ROWS // 2))
    wait_for(lambda: (dee.client.query("reader").rows or 0) > 100, "the reader has rows")
    dee.client.stop_query("owner")
    # The host of one of the operators dies, and comes back when their own query is over.
    ada.kill()
    ada.restart()
    write(slice(ROWS // 2, None))
    wait_for(lambda: dee.client.query("reader").rows == len(world.answer()), "the reader has all rows")
    dee.client.stop_query("reader")
    assert read(tmp_path / "reader.parquet") == world.answer()
    wait_for(lambda: all(not node.client.status().operators for node in world.cluster.nodes), "no operator is left")


OFFERED = {
    "rows": "SELECT ts, site, n, value FROM {0} WHERE n > 100",
    "windows": "SELECT window.end AS e, site, count(*) AS n, max(n) AS x FROM {0} GROUP BY window(ts, '1 second'), site",
}
CONTAINED = {
    "rows": ("SELECT n AS number, site AS place FROM {0} WHERE n > 1000 AND value > 10e0", "number, place"),
    "windows": (
        "SELECT window.start AS w, count(*) AS n, max(n) AS x FROM {0} GROUP BY window(ts, '4 seconds')",
        "w::TIMESTAMP AS w, n, x",
    ),
}
ANSWERS = {
    "rows": "SELECT n, site FROM readings WHERE n > 1000 AND value > 10",
    "windows": "SELECT time_bucket(INTERVAL '4 seconds', ts) AS w, count(*), max(n) FROM readings GROUP BY w",
}


@pytest.mark.only_in_test_all("live queries that share operators containing their rows")
def test_rows_computed_from_those_of_other_queries_are_those_of_each_query(world: World, tmp_path: Path) -> None:
    """The queries whose operators contain the rows are stopped, and a host is killed."""
    # Slow machines must not be at the end before the last query begins.
    world.declare("contained", replay=200.0)
    dee, bob = world.cluster["dee"], world.cluster["bob"]

    def begin(name: str, sql: str) -> QueryInfo:
        sink = SinkSpec(kind="file", options={"path": str(tmp_path / f"{name}.parquet")})
        fields = {"strategy": "producer", "decompose": "never", "consumer": "dee"}
        return submit(world.cluster["ada"], name=name, sql=sql.format("contained"), sink=sink, **fields)

    for kind, sql in OFFERED.items():
        begin(f"of-{kind}", sql)
    for kind, (sql, _) in CONTAINED.items():
        info = begin(kind, sql)
        assert info.plan is not None
        assert any(one.residual for one in info.plan.operators), info.plan
        assert f"of-{kind}" in {one.id.rpartition("-")[0] for one in info.shared}
    wait_for(lambda: (dee.client.query("rows").rows or 0) > 100, "the query has rows")
    for kind in OFFERED:
        dee.client.stop_query(f"of-{kind}")
    bob.kill()
    bob.restart()
    for kind, (_, columns) in CONTAINED.items():
        wait_for(lambda kind=kind: finished(dee, kind), f"{kind} has all rows")  # type: ignore[misc]
        assert read(tmp_path / f"{kind}.parquet", columns) == world.answer(ANSWERS[kind])
    wait_for(lambda: all(not node.client.status().operators for node in world.cluster.nodes), "no operator is left")


def read(path: Path, columns: str = "place, number, t2, remark, seen::TIMESTAMP AS seen") -> list[tuple[object, ...]]:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    pattern = f"{path}/*.parquet" if path.is_dir() else str(path)
    return sorted(database.sql(f"SELECT {columns} FROM read_parquet('{pattern}')").fetchall(), key=repr)

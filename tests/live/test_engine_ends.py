"""Ends of engines: a full engine is replaced, and a query that kills its engine is removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.node import LocalNode
from sbon.model import Column, SinkSpec, SourceDeclaration, StreamDeclaration
from tests.live.world import READINGS, submit, wait_for

pytestmark = [pytest.mark.live, pytest.mark.only_in_test_all("ends of engines of live nodes")]

FULL: dict[str, Any] = {
    "engine.replace_heap_percent": 10,  # an empty engine holds more after its first full collection
    "engine.replace_every_s": 4.0,
    "engine.footprint_s": 0.5,
}
REPLACEMENTS = 2
ROW = "SELECT n, value * 2e0 AS twice, upper(note) AS note FROM {0} WHERE n % 2 = 0"
PAIR = """SELECT l.n, r.value AS next FROM {0} AS l JOIN {0} AS r
    ON l.n + 3 = r.n AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 5 SECOND WHERE l.n % 4 = 0"""
WINDOW = """SELECT unix_seconds(window.start) AS start, count(*) AS n, sum(n) AS total, max(value) AS top FROM {0}
    GROUP BY window(ts, '5 minutes')"""
WINDOW_OF_DUCKDB = """SELECT epoch(time_bucket(INTERVAL 5 MINUTE, ts))::BIGINT AS start, count(*) AS n, sum(n) AS total,
    max(value) AS top FROM {0} GROUP BY 1"""
QUERIES = {"row": (ROW, ROW), "pair": (PAIR, PAIR), "window": (WINDOW, WINDOW_OF_DUCKDB)}
"""Without state, with a join's and with an aggregate's: for the nodes and for DuckDB."""

REPLAY = 500.0
"""The readings of a site in forty seconds."""

DEEP = "SELECT n FROM poison WHERE text RLIKE '^(a|b)*$'"
"""Java's own regular expressions go a step deeper for each character: the stack of a JVM's thread is too small for this text."""
POISON = "ts,n,text\n" + "".join(f"2026-03-02T09:00:0{n}Z,{n},{'ab' * 20_000}\n" for n in range(3))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(["full", "shot"], overrides=SHORT_LIVED, per_node={"full": FULL}) as cluster:
        yield cluster


def attach(node: LocalNode, name: str, schema: tuple[Column, ...], options: dict[str, Any]) -> None:
    """A stream of one file at the node."""
    node.client.create_stream(StreamDeclaration(name=name, schema=schema, event_time="ts"))
    node.client.attach_source(
        SourceDeclaration(stream=name, name="it", node=node.name, connector="file", options=options, rows_s=1000.0)
    )


class Started:
    """Queries of every kind at one node over slow readings, each with its expected result."""

    def __init__(self, node: LocalNode, name: str, readings: Path, folder: Path) -> None:
        self.node, self._readings = node, readings
        attach(node, name, READINGS.schema, {"path": str(readings), "replay": REPLAY})
        self._paths = {kind: folder / f"{name}-{kind}.parquet" for kind in QUERIES}
        self.ids = {
            kind: submit(node, sql=sql.format(name), sink=SinkSpec(kind="file", options={"path": str(self._paths[kind])})).id
            for kind, (sql, _) in QUERIES.items()
        }

    def over(self) -> bool:
        """Whether all have finished; none may have failed."""
        infos = [self.node.client.query(one) for one in self.ids.values()]
        assert all(info.state in ("running", "finished") for info in infos), [info.reason for info in infos]
        return all(info.state == "finished" for info in infos)

    def check(self) -> None:
        """Each row is there once."""
        for kind, (_, sql) in QUERIES.items():
            database = duckdb.connect()
            database.execute(f"CREATE VIEW readings AS SELECT * FROM read_csv('{self._readings}')")
            due = database.sql(sql.format("readings")).fetchall()
            found = database.sql(f"SELECT * FROM read_parquet('{_pattern(self._paths[kind])}')").fetchall()
            assert due
            assert sorted(found, key=repr) == sorted(due, key=repr), kind


def _pattern(path: Path) -> str:
    return f"{path}/*.parquet" if path.is_dir() else str(path)


def metric(node: LocalNode, name: str) -> float:
    found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", node.client.metrics().decode(), re.M)
    assert found is not None, name
    return float(found[1])


def lacks(node: LocalNode) -> set[str]:
    return {reason.code for reason in node.client.readiness().reasons}


def test_rows_come_out_once_while_full_engines_are_replaced(
    cluster: LocalCluster, readings: list[Path], tmp_path: Path, record_property: Any
) -> None:
    node = cluster["full"]
    runs: list[Started] = []
    pauses: list[float] = []

    def look() -> bool:
        count = metric(node, "sbon_engine_replacements_total")
        pause_s = metric(node, "sbon_engine_replacement_seconds")
        if count > len(pauses) and pause_s not in pauses[-1:] and pause_s > 0:
            pauses.append(pause_s)
        return runs[-1].over()

    while len(pauses) < REPLACEMENTS:
        runs.append(Started(node, f"slow_{len(runs)}", readings[0], tmp_path))
        wait_for(look, "they have finished", 600.0)
    for run in runs:
        run.check()
    for pause_s in pauses:
        record_property("pause_s", pause_s)
        print(f"a replacement's pause: {pause_s:.1f} s")


def test_a_query_that_kills_its_engine_is_quarantined_and_others_continue(
    cluster: LocalCluster, readings: list[Path], tmp_path: Path, record_property: Any
) -> None:
    node, path = cluster["shot"], tmp_path / "poison.csv"
    path.write_text(POISON)
    healthy = Started(node, "healthy", readings[0], tmp_path)
    attach(node, "poison", (Column("ts", "timestamp"), Column("n", "bigint"), Column("text", "string")), {"path": str(path)})
    poison = submit(node, sql=DEEP, sink=SinkSpec(kind="file", options={"path": str(tmp_path / "none.csv")}))

    def states() -> set[str]:
        return {operator.state for operator in node.client.query(poison.id).operators}

    wait_for(lambda: states() == {"quarantined"}, "it is quarantined")
    (operator,) = node.client.query(poison.id).operators
    assert "it has killed the engine 2 times, at last: the engine's JVM died" in operator.reason
    assert "operators-quarantined" in lacks(node)
    starts = metric(node, "sbon_engine_starts_total")
    assert starts <= 5, "one death that may be anybody's, one of those that start side by side, two on trial"

    wait_for(healthy.over, "the others have finished")
    healthy.check()
    assert metric(node, "sbon_engine_starts_total") == starts
    recovery_s = metric(node, "sbon_engine_recovery_seconds")
    assert recovery_s > 0
    node.client.stop_query(poison.id)
    wait_for(lambda: "operators-quarantined" not in lacks(node), "the node lacks nothing more")
    record_property("recovery_s", recovery_s)
    print(f"the others went on after {recovery_s:.1f} s")

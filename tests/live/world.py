"""Input and helpers of live tests: readings of three sites, DuckDB's answers, and waiting for queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from sbon.local.cluster import LocalCluster
from sbon.local.node import LocalNode
from sbon.model import Column, QueryInfo, SourceDeclaration, StreamDeclaration, Submission
from sbon_lab.migration.feed import Feed

SITES = ("ada", "bob", "cyd")
NODES = (*SITES, "dee")
TINY_MB = 1e-6
"""Expected state from which a node that plans chooses RocksDB: any."""
OWN: dict[str, dict[str, Any]] = {"bob": {"query.rocksdb_from_mb": TINY_MB}, "dee": {"node.drain_on_stop": True}}
"""Settings of single nodes."""
ROWS = 20_000
EVENT_S = 20.0
"""Event time between the first row and the last, in thousands of seconds of a site's clock."""

READINGS = StreamDeclaration(
    name="readings",
    schema=(
        Column("ts", "timestamp"),
        Column("site", "string"),
        Column("n", "bigint"),
        Column("value", "double"),
        Column("note", "string"),
    ),
    event_time="ts",
)

UNHURRIED = Feed(rows=60, every_s=0.5)
"""A fifth of the rows of the default feed in a tenth of the frames: batches are what costs."""

SQL = "SELECT site, n, value * 2e0 AS twice, upper(note) AS note, ts FROM readings WHERE n % 2 = 0 AND value > 10e0"


class World:
    """The cluster with its declared stream, and DuckDB's answer to any query over it."""

    def __init__(self, cluster: LocalCluster, files: list[Path], passwords: Path = Path()) -> None:
        """``passwords`` is the file that the nodes read for passwords of sources and sinks."""
        self.cluster, self.files, self.passwords = cluster, files, passwords

    def answer(self, sql: str = SQL) -> list[tuple[object, ...]]:
        database = duckdb.connect()
        database.execute("SET TimeZone = 'UTC'")
        types = {"ts": "TIMESTAMP", "site": "VARCHAR", "n": "BIGINT", "value": "DOUBLE", "note": "VARCHAR"}
        database.register("readings", database.read_csv([str(f) for f in self.files], dtype=types, header=True))
        return sorted(database.sql(sql).fetchall(), key=repr)

    def declare(self, name: str, replay: float, node: str = "") -> StreamDeclaration:
        """The stream once more under another name, read afresh at each site or at one node; ``replay`` 0 is as fast as it
        goes."""
        client = self.cluster.nodes[0].client
        declaration = StreamDeclaration(name=name, schema=READINGS.schema, event_time="ts")
        client.create_stream(declaration)
        for site, file in zip(SITES, self.files, strict=True):
            options = {"path": str(file), "replay": replay} if replay else {"path": str(file)}
            client.attach_source(
                SourceDeclaration(stream=name, name=site, node=node or site, connector="file", options=options, rows_s=1000.0)
            )
        return declaration


def submit(node: LocalNode, **fields: Any) -> QueryInfo:
    return node.client.submitted(Submission(**fields))


def wait_for(condition: Callable[[], bool], what: str | Callable[[], str], patience_s: float = 240.0) -> None:
    """Wait until the condition holds; fail after ``patience_s``, far more than any machine needs."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what if isinstance(what, str) else what()}"
        time.sleep(0.05)


def finished(node: LocalNode, query: str) -> bool:
    info = node.client.query(query)
    assert info.state in ("running", "finished"), info.reason
    return info.state == "finished"


def stored(path: Path) -> list[tuple[object, ...]]:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    pattern = f"{path}/*.parquet" if path.is_dir() else str(path)
    columns = "site, n, twice, note, ts::TIMESTAMP AS ts"
    reader = {".parquet": "read_parquet", ".ndjson": "read_json", ".csv": "read_csv"}[path.suffix]
    types = ", columns={'site': 'VARCHAR', 'n': 'BIGINT', 'twice': 'DOUBLE', 'note': 'VARCHAR', 'ts': 'TIMESTAMPTZ'}"
    return sorted(
        database.sql(f"SELECT {columns} FROM {reader}('{pattern}'{'' if reader == 'read_parquet' else types})").fetchall(),
        key=repr,
    )

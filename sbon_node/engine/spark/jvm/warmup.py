"""Small streaming queries of the operators' kinds, so that later queries meet loaded and compiled classes."""

import datetime
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.jvm.session import Jvm, open_session

_EPOCH = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)

FILTER = "SELECT a + 1 AS a, upper(c) AS c, round(b, 1) AS b FROM in0 WHERE a > 0 AND c IS NOT NULL"
GROUPS = "SELECT window.start AS s, c, count(*) AS n, avg(b) AS b FROM in0 GROUP BY window(t, '1 second'), c"
PAIRS = "SELECT x.a, y.b FROM in0 x LEFT JOIN in0 y ON x.a = y.a AND y.t BETWEEN x.t - INTERVAL 1 SECOND AND x.t"


class _Once(SimpleDataSourceStreamReader):
    """Three rows in the first batch, none after."""

    def initialOffset(self) -> dict[str, Any]:
        return {"frame": 0}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
        rows = [(i, float(i), f"row {i}", _EPOCH) for i in range(3)] if start["frame"] == 0 else []
        return iter(rows), {"frame": 1}

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        return self.read(start)[0]


class _OnceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "sbon_warm_up"

    def schema(self) -> str:
        return "a bigint, b double, c string, t timestamp"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return _Once()


def warm_up(session: SparkSession, fragment: str = FILTER) -> None:
    """Run one batch of a fragment to its commit."""
    own = session.newSession()
    own.dataSource.register(_OnceSource)
    rows = own.readStream.format("sbon_warm_up").load()
    (rows if fragment == FILTER else rows.withWatermark("t", "1 second")).createOrReplaceTempView("in0")

    def take(batch: DataFrame, number: int) -> None:
        batch.toArrow()

    with tempfile.TemporaryDirectory(prefix="sbon-warm-up-") as folder:
        running = own.sql(fragment).writeStream.foreachBatch(take).option("checkpointLocation", folder).start()
        while running.lastProgress is None and running.isActive:
            running.awaitTermination(0.02)
        running.stop()


def train(archive: str, settings: EngineSettings) -> None:
    """Start a JVM that runs operators of every kind, and archive its loaded classes at its end."""
    jvm = Jvm(settings, dump=archive)
    try:
        session = open_session(settings)
        for fragment in (FILTER, GROUPS, PAIRS):
            warm_up(session, fragment)
        session.stop()
    finally:
        jvm.close(timeout_s=300)


if __name__ == "__main__":
    train(sys.argv[1], EngineSettings(heap_mb=int(sys.argv[2])))

"""Bare Spark as the baseline for the engine: a plain session, started as spark-submit starts it.

It has the engine's own reader, SQL and streaming settings, and nothing of the overlay: no outbox, no visibility, no
supervised host. It is a separate process (``python -m sbon_lab.bench.bare_spark plain|tuned``), which the
benchmark controls over a local socket.
"""

import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from sbon_lab.bench.bare_messages import COMMAND, QueryFailed, RowsOut, StartQuery
from sbon_node.engine.spark.jvm.session import CONF
from sbon_node.engine.spark.messages import Done, Ready, Stop
from sbon_node.engine.spark.operators.source import PartitionedSource, SimpleSource
from sbon_node.engine.spark.wire import Feed, FeedError, FeedLostError

SOURCES: dict[str, type[SimpleSource] | type[PartitionedSource]] = {"simple": SimpleSource, "partitioned": PartitionedSource}


def open_bare_session(settings: dict[str, str]) -> SparkSession:
    """Open a session with ``settings`` beside Spark's defaults; spark-submit launches the JVM, with its defaults."""
    builder: Any = SparkSession.builder.master("local[2]").appName("bare").config("spark.ui.enabled", "false")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def start(session: SparkSession, command: StartQuery, folder: str) -> StreamingQuery:
    """Start a query; each batch reports its rows, and when they were available.

    With state, Spark's watermark is the greatest time that it has read: no row arrives late.
    """
    own = session.newSession()
    source = SOURCES[command.reader]
    own.dataSource.register(source)
    for position, schema in enumerate(command.schemas):
        reader = own.readStream.format(source.name()).schema(schema)
        rows = reader.options(operator=command.operator, position=position, wait=command.wait_s).load()
        if command.event_time:
            rows = rows.withWatermark(command.event_time, "0 seconds")
        rows.createOrReplaceTempView(f"in{position}")
    feed = Feed("output")

    def take(batch: DataFrame, number: int) -> None:
        rows = batch.toArrow().num_rows
        feed.call(RowsOut(operator=command.operator, rows=rows, at_s=time.monotonic()), Done)

    writer = own.sql(command.fragment).writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", str(Path(folder) / command.operator)).start()
    threading.Thread(target=watch, args=(query, command.operator), daemon=True).start()
    return query


def watch(query: StreamingQuery, operator: str) -> None:
    """Report a query's end to the benchmark, which otherwise waits for rows."""
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        try:
            Feed("output").call(QueryFailed(operator=operator, reason=str(error)[:2000]), Done)
        except (FeedError, FeedLostError):
            return  # no reader waits any more


def main(settings: dict[str, str]) -> None:
    feed = Feed("engine")
    queries: dict[str, StreamingQuery] = {}
    with tempfile.TemporaryDirectory(prefix="bare-spark-") as folder:
        os.chdir(folder)  # Spark keeps a warehouse here
        session = open_bare_session(settings)
        session.range(1000).selectExpr("sum(id)").collect()
        feed.send(Ready(pid=os.getpid()))
        while True:
            try:
                command = feed.receive(COMMAND)
            except FeedLostError:
                break
            if isinstance(command, StartQuery):
                queries[command.operator] = start(session, command, folder)
            elif isinstance(command, Stop):
                queries.pop(command.operator).stop()
            else:
                break
            feed.send(Done())
        for query in queries.values():
            query.stop()
        session.stop()


if __name__ == "__main__":
    main(CONF if sys.argv[1] == "tuned" else {})

"""Processor time of the streaming queries of a JVM, from ``CpuTimes.java``, a listener of Spark's scheduler."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sbon_node.engine.spark.jvm.compiled import define


class CpuTimes:
    """The listener of one JVM; it follows the queries that are watched."""

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        define(jvm, "CpuTimes")
        self._listener = jvm.py4j.reflection.CpuTimes()
        java: Any = session._jsparkSession
        java.sparkContext().addSparkListener(self._listener)

    def watch(self, query: StreamingQuery) -> None:
        self._listener.watch(query.id)

    def forget(self, query: StreamingQuery) -> None:
        self._listener.forget(query.id)

    def spent_s(self, query: StreamingQuery) -> float:
        """Return the seconds of the query's tasks, which count shortly after their end, and of the thread that plans it."""
        planner = query._jsq.streamingQuery().queryExecutionThread()
        return int(self._listener.spent(query.id, planner)) / 1e9

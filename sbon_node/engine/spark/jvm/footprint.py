"""An engine's use of resources: threads, descriptors, the heap's live objects, and processor time."""

import os
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sbon_node.engine.interface import Footprint
from sbon_node.engine.spark.jvm.session import define

MB = 2**20


def footprint(session: SparkSession, jvm_pid: int, *, collect: bool) -> Footprint:
    """Return the resources of the engine process and its JVM together.

    The heap is that after the last full collection; ``collect`` requests one now.
    """
    jvm: Any = session._jvm
    management = jvm.java.lang.management.ManagementFactory
    if collect:
        jvm.System.gc()
        live = management.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    else:
        live = sum(_left(pool) for pool in management.getMemoryPoolMXBeans())
    processes = [psutil.Process(os.getpid()), psutil.Process(jvm_pid)]
    return Footprint(
        threads=sum(process.num_threads() for process in processes),
        descriptors=sum(process.num_fds() for process in processes),
        heap_mb=live / MB,
        max_heap_mb=jvm.java.lang.Runtime.getRuntime().maxMemory() / MB,
    )


def _left(pool: Any) -> int:
    """Return the bytes left in a heap pool by its last collection."""
    usage = pool.getCollectionUsage()
    return int(usage.getUsed()) if usage is not None and pool.getType().name() == "HEAP" else 0


class CpuTimes:
    """``CpuTimes.java``, a listener of Spark's scheduler, for one JVM; it follows the streaming queries that are watched."""

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

"""An engine's use of resources: threads, descriptors, and the heap's live objects."""

from __future__ import annotations

import os
from typing import Any

import psutil
from pyspark.sql import SparkSession

from sbon_node.engine.interface import Footprint

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

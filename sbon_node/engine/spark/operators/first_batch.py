"""Watermark settings and first batch for a new operator, since Spark itself begins at 1970.

The watermark of Spark's first batch is 0, which drops rows of 1970 and before; so this module plans the first batch. Where
several stateful nodes may follow each other, Spark computes a watermark for each of them, and ignores one of 1970 or before.
This is disabled for a single stateful node; an operator with several is limited to times after 1970.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.promise import EARLIEST_MS

PROPAGATED = "spark.sql.streaming.statefulOperator.allowMultiple"
PARTITIONS = "spark.sql.shuffle.partitions"
_STATEFUL = frozenset(["Join", "Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark"])


def propagate(session: SparkSession, fragment: DataFrame) -> bool:
    """Let Spark compute watermarks node by node if several have state; return whether it does.

    Call at each start: sessions are reused.
    """
    several = _stateful_nodes(_analyzed(fragment)) > 1
    session.conf.set(PROPAGATED, str(several).lower())
    return several


def begin(session: SparkSession, fragment: DataFrame, log: BatchLog) -> None:
    """Plan the first batch, where none is planned; raises ``OSError``."""
    if log.offsets():
        return
    leaves = _analyzed(fragment).collectLeaves()
    relations = [leaves.apply(number) for number in range(leaves.size()) if leaves.apply(number).isStreaming()]
    spark: Any = session._jvm.org.apache.spark.sql.execution.streaming
    java: Any = session._jsparkSession
    metadata = json.loads(spark.checkpointing.OffsetSeqMetadata.apply(EARLIEST_MS, 0, java.conf()).json())
    metadata["conf"][PARTITIONS] = session.conf.get(PARTITIONS)
    log.begin([int(relation.extraOptions().get("position")) for relation in relations], metadata)


def _analyzed(fragment: DataFrame) -> Any:
    return fragment._jdf.queryExecution().analyzed()


def _stateful_nodes(plan: Any) -> int:
    """Return an upper bound on stateful nodes: a join with a constant relation has no state. Each subquery becomes a join."""
    children, subqueries = plan.children(), plan.subqueries()
    below = sum(_stateful_nodes(children.apply(number)) for number in range(children.size()))
    within = sum(1 + _stateful_nodes(subqueries.apply(number)) for number in range(subqueries.size()))
    return below + within + (plan.nodeName() in _STATEFUL)

"""Watermark of a new operator's first batch, since Spark itself begins at 1970.

The watermark of Spark's first batch is 0, which drops rows of 1970 and before; so this module sets it. Where several stateful
nodes may follow each other, Spark computes a watermark for each of them, and ignores one of 1970 or before. This is disabled for
a single stateful node; an operator with several is limited to times after 1970.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sbon_node.engine.promise import EARLIEST_MS

PROPAGATED = "spark.sql.streaming.statefulOperator.allowMultiple"
_LOOK_S = 0.01
_STATEFUL = frozenset(["Join", "Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark"])
_AT_ONCE = frozenset(["Inner", "LeftSemi"])


def propagate(session: SparkSession, fragment: DataFrame) -> bool:
    """Let Spark compute watermarks node by node if several have state; return whether it does.

    Call at each start: sessions are reused.
    """
    several = _stateful_nodes(_analyzed(fragment)) > 1
    session.conf.set(PROPAGATED, str(several).lower())
    return several


def begin(query: StreamingQuery) -> None:
    """Give a query without a checkpoint the earliest watermark. None of its readers may have had an answer yet.

    Spark takes the watermark into a batch's plan after its readers have said how far the batch goes.
    """
    execution: Any = query._jsq.streamingQuery()
    while query.isActive:
        tracker = execution.watermarkTracker()  # None until Spark has looked for a checkpoint
        if tracker is not None:
            tracker.setWatermark(EARLIEST_MS)
            return
        time.sleep(_LOOK_S)


def gives_at_once(fragment: DataFrame) -> bool:
    """Return whether all nodes with state are inner or semi joins: their state gives no rows without later input."""
    nodes = list(_with_state(_analyzed(fragment)))
    return bool(nodes) and all(node.nodeName() == "Join" and node.joinType().toString() in _AT_ONCE for node in nodes)


def _with_state(plan: Any) -> Iterator[Any]:
    if plan.nodeName() in _STATEFUL:
        yield plan
    for within in (plan.children(), plan.subqueries()):
        for number in range(within.size()):
            yield from _with_state(within.apply(number))


def _analyzed(fragment: DataFrame) -> Any:
    return fragment._jdf.queryExecution().analyzed()


def _stateful_nodes(plan: Any) -> int:
    """Return an upper bound on stateful nodes: a join with a constant relation has no state. Each subquery becomes a join."""
    children, subqueries = plan.children(), plan.subqueries()
    below = sum(_stateful_nodes(children.apply(number)) for number in range(children.size()))
    within = sum(1 + _stateful_nodes(subqueries.apply(number)) for number in range(subqueries.size()))
    return below + within + (plan.nodeName() in _STATEFUL)

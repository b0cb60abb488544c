"""Spark's watermark: marker rows, which alone advance it, and its first value (docs/design.md, section 7).

Every input with an event time is declared with a delay of :data:`DELAY_MS`, so that no row of data ever advances its watermark.
A marker, all NULL but for its time and its mark, lies that much ahead: it advances the watermark exactly to the stream's own.
The filter that removes markers must run above Spark's watermark node. Spark would push ``NOT marker`` alone below it,
so the condition contains the event time. The second half, always true but not deterministic, keeps all other conditions above it
too: a user's condition, or one Spark infers from a join, would drop the marker.

The watermark of Spark's first batch is 0, which drops rows of 1970 and before; so this module sets it. Where several stateful
nodes may follow each other, Spark computes a watermark for each of them, and ignores one of 1970 or before. This is disabled for
a single stateful node; an operator with several is limited to times after 1970.
"""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from sbon_node.engine.promise import EARLIEST_MS, reached_ms
from sbon_node.model.frames import InputOffset

MARK = "sbon marker"
"""The column that distinguishes markers from rows; no stream can have a column of this name."""
DELAY_MS = 36_500 * 86_400_000


def marker(schema: pa.Schema, event_time: str, offset: InputOffset, lag_ms: int) -> pa.RecordBatch:
    """Return the marker row of an offset's watermark less its lag: no earlier rows of ``event_time`` follow."""
    values = {event_time: (reached_ms(offset, lag_ms) + DELAY_MS) * 1000, MARK: True}
    columns = [
        pa.array([values.get(field.name)], pa.int64()).cast(field.type)
        if field.name == event_time
        else pa.array([values.get(field.name)], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_watermark(rows: DataFrame, event_time: str) -> DataFrame:
    """Return a streaming view's rows without markers, which set its watermark."""
    marked = rows.withWatermark(event_time, f"{DELAY_MS} milliseconds")
    is_marker = f.col(f"`{MARK}`") & f.col(f"`{event_time}`").isNotNull()
    above: Any = f.spark_partition_id() >= 0
    return marked.filter(~is_marker & above).drop(MARK)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns of ``schema``, in its order and types, and without metadata, which Spark refuses."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [
        pa.repeat(pa.scalar(False), batch.num_rows) if field.name == MARK else batch.column(field.name).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# -- The first batch ---------------------------------------------------------------------------------------------------

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


def begin_first_batch(query: StreamingQuery) -> None:
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

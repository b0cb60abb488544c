"""Marker rows, which alone advance Spark's watermark (docs/design.md, section 7).

Every input with an event time is declared with a delay of :data:`DELAY_MS`, so that no row of data ever advances its watermark.
A marker, all NULL but for its time and its mark, lies that much ahead: it advances the watermark exactly to the stream's own.
The filter that removes markers must run above Spark's watermark node. Spark would push ``NOT marker`` alone below it,
so the condition contains the event time. The second half, always true but not deterministic, keeps all other conditions above it
too: a user's condition, or one Spark infers from a join, would drop the marker.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from sbon_node.engine.promise import reached_ms
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

"""Marker rows: what alone moves the watermark of Spark (docs/design.md, section 7).

Every input with an event time is declared with a delay of :data:`DELAY_MS`, so that no row of data ever moves its watermark. A
marker, all NULL but for its time and its mark, lies that much ahead: it moves the watermark exactly to where the stream promises
that nothing earlier follows. The filter that takes markers out again has to stand above Spark's watermark node. ``NOT marker``
alone would be pushed below it, hence the event time in the condition; and the second half, which is always true but not
deterministic, keeps everything above it too: a condition of the user's, or one Spark infers of a join, would drop the marker.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from sbon_node.engine.promise import reached_ms
from sbon_node.streams.frame import InputOffset

MARK = "sbon marker"
"""The column that tells markers from rows; no stream can have one of this name."""
DELAY_MS = 36_500 * 86_400_000


def marker(schema: pa.Schema, event_time: str, offset: InputOffset, lag_ms: int) -> pa.RecordBatch | None:
    """The one row that says rows of ``event_time`` before the offset's watermark less its lag come no more; None before any are
    known."""
    reached = reached_ms(offset, lag_ms)
    if reached is None:
        return None
    values = {event_time: (reached + DELAY_MS) * 1000, MARK: True}
    columns = [
        pa.array([values.get(field.name)], pa.int64()).cast(field.type)
        if field.name == event_time
        else pa.array([values.get(field.name)], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_watermark(rows: DataFrame, event_time: str) -> DataFrame:
    """A streaming view's rows, whose watermark the markers among them move, without the markers."""
    marked = rows.withWatermark(event_time, f"{DELAY_MS} milliseconds")
    is_marker = f.col(f"`{MARK}`") & f.col(f"`{event_time}`").isNotNull()
    above: Any = f.spark_partition_id() >= 0
    return marked.filter(~is_marker & above).drop(MARK)

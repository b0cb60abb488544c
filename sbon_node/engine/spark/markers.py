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

from sbon_node.streams.frame import END_WATERMARK_MS, NO_WATERMARK_MS

MARK = "sbon marker"
"""The column that tells markers from rows; no stream can have one of this name."""
DELAY_MS = 36_500 * 86_400_000
FAR_MS = 10**15
"""The watermark of a stream that has ended: beyond every window, and within what Spark's timestamps hold."""


def marker(schema: pa.Schema, event_time: str, watermark_ms: int, lag_ms: int, *, ended: bool) -> pa.RecordBatch | None:
    """The one row that says rows of ``event_time`` before ``watermark_ms`` less its lag come no more; None before any are known.

    Spark drops what is *at* its watermark too, hence one millisecond less.
    """
    if watermark_ms == NO_WATERMARK_MS and not ended:
        return None
    reached_ms = FAR_MS if ended or watermark_ms >= END_WATERMARK_MS else watermark_ms - lag_ms - 1
    values = {event_time: (reached_ms + DELAY_MS) * 1000, MARK: True}
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


def promised_ms(spark_watermark_ms: int) -> int:
    """What the output of a batch that ran with that watermark may promise: nothing earlier follows."""
    if spark_watermark_ms <= 0:
        return NO_WATERMARK_MS
    return END_WATERMARK_MS if spark_watermark_ms >= FAR_MS else spark_watermark_ms + 1

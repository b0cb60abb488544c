"""Markers of a reader that has no news."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from sbon_node.engine.promise import EARLIEST_MS
from sbon_node.engine.spark.operators.source import SimpleReader, start_of
from sbon_node.engine.spark.operators.watermarks import DELAY_MS, MARK

SCHEMA = StructType([StructField("ts", TimestampType()), StructField(MARK, BooleanType())])
OPTIONS = {"operator": "q.o1", "position": "0", "wait": "1", "lag": "0"}


@pytest.mark.parametrize("event_time, markers", [("ts", 1), ("", 0)])
def test_a_first_batch_without_news_has_a_marker(event_time: str, markers: int) -> None:
    """Spark counts an input without one as one at 1970, ever after."""
    reader = SimpleReader({**OPTIONS, "event_time": event_time}, SCHEMA)
    found = list(reader.readBetweenOffsets(start_of(0), start_of(0)))
    assert len(found) == markers
    assert [batch["ts"].cast(pa.int64()).to_pylist() for batch in found] == [[(EARLIEST_MS + DELAY_MS) * 1000]] * markers

"""Spark marks columns that have a watermark; frames do not carry the marks, which Spark refuses where it reads them."""

from __future__ import annotations

import pyarrow as pa

from sbon_node.engine.spark.operators.output import cut
from sbon_node.engine.spark.operators.watermarks import conform
from sbon_node.streams.payload import unpack

TIME = pa.timestamp("us", "UTC")
MARK = {"SPARK::metadata::json": '{"spark.watermarkDelayMs": 3153600000000}'}
MARKED = pa.schema([pa.field("ts", TIME, metadata=MARK), pa.field("id", pa.int64())], metadata=MARK)
PLAIN = pa.schema([pa.field("ts", TIME), pa.field("id", pa.int64())])
ROWS = pa.RecordBatch.from_pydict({"ts": pa.array([1, None]).cast(TIME), "id": [7, 8]}, MARKED)


def test_frames_of_an_operator_carry_no_marks() -> None:
    (frame,) = cut(pa.Table.from_batches([ROWS]), 1000)
    rows = unpack(frame.payload)
    assert rows.schema.equals(PLAIN, check_metadata=True)
    assert rows.to_pydict() == ROWS.to_pydict()


def test_rows_of_an_operator_that_wrote_marks_are_read_without_them() -> None:
    rows = conform(ROWS, PLAIN)
    assert rows.schema.equals(PLAIN, check_metadata=True)
    assert rows.to_pydict() == ROWS.to_pydict()

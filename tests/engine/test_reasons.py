"""What a person is told of Spark's long reports."""

from __future__ import annotations

import pytest

from sbon_node.engine.spark.reports import brief

OURS = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. Reason: null
Traceback (most recent call last):
  File "py4j/clientserver.py", line 617, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
pyspark.errors.exceptions.captured.ArithmeticException: [DECIMAL_OVERFLOW] too large
  File "sbon_node/engine/spark/output.py", line 90, in __call__
sbon_node.engine.spark.wire.FeedError: the batch 7 was cut otherwise before

JVM stacktrace:
java.lang.RuntimeException: not for people"""
ANSI = """Query [id = 7, runId = 8] terminated with exception: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to \
tolerate divisor being 0 and return NULL instead. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. \
SQLSTATE: 22012
== SQL (line 1, position 8) ==
SELECT a / b AS x
       ^^^^^

JVM stacktrace:
org.apache.spark.SparkArithmeticException: not for people"""
READER = """[STREAM_FAILED] Query [id = 7, runId = 8] terminated with exception: the reader has failed
Traceback (most recent call last):
  File "sbon_node/engine/spark/source.py", line 10, in read
ValueError: frame 3 is no frame"""


@pytest.mark.parametrize(
    "report, told",
    [
        (OURS, "FeedError: the batch 7 was cut otherwise before"),
        (
            ANSI,
            "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead. "
            "SQLSTATE: 22012 in a / b",
        ),
        (READER, "[STREAM_FAILED] the reader has failed ValueError: frame 3 is no frame"),
        ("", "RuntimeError"),
    ],
)
def test_a_report_is_cut_to_what_says_why(report: str, told: str) -> None:
    assert brief(RuntimeError(report)) == told

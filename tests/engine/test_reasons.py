"""Short reasons for users from Spark's long reports."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, ParseException, StreamingQueryException

from sbon_node.engine.spark.operators.failure_reports import brief, why_ended

OURS = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. Reason: null
Traceback (most recent call last):
  File "py4j/clientserver.py", line 617, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
pyspark.errors.exceptions.captured.ArithmeticException: [DECIMAL_OVERFLOW] too large
  File "sbon_node/engine/spark/operators/output.py", line 90, in __call__
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
  File "sbon_node/engine/spark/operators/source.py", line 10, in read
ValueError: frame 3 is no frame"""


@pytest.mark.parametrize(
    "report, code",
    [
        (ANSI, "bad-rows"),
        (f"{OURS}\npyspark.errors.exceptions.captured.AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION] k", "not-runnable"),
        ("o1.x\n: java.util.regex.PatternSyntaxException: Unclosed group near index 4\n((((\n", "bad-rows"),
        ("[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] offsets should be empty on batch 0 SQLSTATE: 42K03", ""),
        ("java.lang.IllegalArgumentException: requirement failed", ""),
        ("java.io.IOException: No space left on device", "disk-full"),
    ],
)
def test_deterministic_errors_are_recognised(report: str, code: str) -> None:
    found = why_ended(RuntimeError(report))
    assert (found.code, "--on-error" in str(found)) == (code, code == "bad-rows")


@pytest.mark.parametrize(
    "kind, code", [(AnalysisException, "not-runnable"), (ParseException, "not-runnable"), (RuntimeError, "")]
)
def test_a_query_that_spark_does_not_plan_is_recognised_by_the_cause(kind: type[Exception], code: str) -> None:
    """The report itself has the message alone."""
    error = StreamingQueryException("[STREAM_FAILED] Global aggregation with session window is not supported. SQLSTATE: XXKST")
    error._cause = kind("Global aggregation with session window is not supported.")
    assert why_ended(error).code == code


JAVA = """An error occurred while calling o9.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times, most recent failure: \
Lost task 0.0 in stage 2.0 (TID 4) (vm executor driver): java.util.regex.PatternSyntaxException: Unclosed group near index 4
((((
\tat java.base/java.util.regex.Pattern.error(Pattern.java:2028)
Caused by: java.util.regex.PatternSyntaxException: Unclosed group near index 4
((((
\tat java.base/java.util.regex.Pattern.error(Pattern.java:2028)"""


def test_the_innermost_cause_of_a_java_error_is_reported() -> None:
    assert brief(RuntimeError(JAVA)) == "Unclosed group near index 4 (PatternSyntaxException)"


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


def test_a_first_line_that_ends_with_a_colon_brings_its_cause_along() -> None:
    first = "[INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION] You may get a different result:"
    cause = "Fail to recognize 'bogus' pattern in the DateTimeFormatter."
    assert brief(RuntimeError(f"{first}\n{cause}\n\nJVM stacktrace:\nx")) == f"{first} {cause}"

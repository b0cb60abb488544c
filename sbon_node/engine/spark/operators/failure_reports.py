"""Short reasons from Spark's long failure reports."""

import re
from typing import cast

from pyspark.errors import AnalysisException

from sbon_protocol.errors import SbonError

OF_THE_ROWS = re.compile(
    r"SQLSTATE: (?:22|42601)|\b(?:java\.util\.regex\.PatternSyntaxException|java\.time\.(?:\w+\.)?\w+Exception"
    r"|java\.lang\.(?:ArithmeticException|NumberFormatException))"
)
"""Data exceptions (ISO 9075) in Spark's reports, which the same rows will raise again.

Examples are a division by zero, a text of another format than asked for, or errors of Java's own functions for a value or a
pattern. Other exceptions may be the engine's own.
"""
OF_THE_PLAN = re.compile(r"^pyspark\.errors\.(?:\w+\.)*(?:AnalysisException|ParseException):", re.M)
"""Spark's refusal to plan the SELECT of a batch, in the traceback of the function that runs it."""
NO_ROOM = re.compile("No space left on device|Disk quota exceeded")
LATE_WORKER = "Python worker failed to connect back"
OF_SETTINGS = re.compile(r"If necessary,? set .* to bypass this error\.\s*")
"""Spark's advice on settings, which the user cannot change here."""
CONTEXT = re.compile(r"^== SQL .*==\n(?P<line>.*)\n(?P<marks> *\^+)", re.MULTILINE)
"""Spark's quotation of the expression that failed, with marks below it."""
CAUSE = re.compile(
    r"^(?:Caused by: |: )?(?:.*\(executor driver\): )?(?P<class>(?:[a-z]\w*\.)+\w+(?:Exception|Error)): (?P<said>.+)", re.M
)
"""A Java exception and its message, in a trace of the JVM's."""
WRAPPERS = ("org.apache.spark.SparkException", "py4j.Py4JException", "java.lang.RuntimeException")
"""Classes of exceptions that only wrap another one."""
MOST = 500
"""Most characters of a line that are shown."""
OTHERWISE = "write the query in another way, and report it: the planner should have refused it"
GO_ON = "sbon submit --on-error skip, or null, continues after such rows"


def why_ended(error: Exception) -> SbonError:
    """Return why a streaming query ended; with a ``code`` if the error would recur, or is known to pass."""
    if (full := no_room(error)) is not None:
        return full
    if LATE_WORKER in str(error):  # Not the operator's fault.
        return SbonError("engine-failed", "a Python process did not start within 10 s", hint="the machine is overloaded")
    if OF_THE_ROWS.search(str(error)):
        return SbonError("bad-rows", brief(error), hint=GO_ON)
    return _of_the_plan(error) or SbonError("", brief(error))


def _of_the_plan(error: Exception) -> SbonError | None:
    """Return the error for a query that Spark does not plan, with rows or without, if it is one."""
    is_refused, cause = OF_THE_PLAN.search(str(error)) is not None, cast(Exception | None, error)
    while not is_refused and cause is not None:
        is_refused, cause = isinstance(cause, AnalysisException), getattr(cause, "_cause", None)
    return SbonError("not-runnable", brief(error), hint=OTHERWISE) if is_refused else None


def no_room(error: Exception) -> SbonError | None:
    """Return the error for a full disk, wherever Spark's report mentions it."""
    if NO_ROOM.search(str(error)):
        return SbonError("disk-full", "no space for the checkpoint", hint="free some space")
    return None


def brief(error: Exception) -> str:
    """Return the first line of Spark's report with the failed expression, and the last line of a Python traceback in it.

    Returns the traceback's line alone if the first line gives no reason. For a Java error, returns the innermost cause.
    """
    if (cause := _cause(str(error))) is not None:
        return cause
    report = str(error).split("JVM stacktrace")[0]
    lines = [line.strip() for line in report.splitlines() if line.strip()]
    ends = [line for line in lines if re.match(r"^[\w.]+(Error|Exception|Lost)\b.*", line)]
    first = re.sub(r"Query \[id = .*?\] terminated with exception: ", "", lines[0] if lines else type(error).__name__)
    if first.endswith(":"):  # The cause follows on a line of its own.
        first = " ".join([first, *lines[1:2]])
    only_the_end = ends and "FOREACH_BATCH_USER_FUNCTION_ERROR" in first
    parts = [re.sub(r"^[\w.]+\.", "", ends[-1])] if only_the_end else [first, *ends[-1:]]
    if expression := marked(report):
        parts.insert(1, f"in {expression}")
    return " ".join(OF_SETTINGS.sub("", part)[:MOST] for part in parts)


def _cause(report: str) -> str | None:
    """Return the message of the innermost Java exception of a report, if Spark has no message of its own."""
    if "Py4JJavaError" not in report and "An error occurred while calling" not in report:
        return None
    causes = [(match["class"], match["said"]) for match in CAUSE.finditer(report)]
    own = [(kind, reason) for kind, reason in causes if kind not in WRAPPERS]
    if not own:
        return None
    kind, reason = own[-1]
    return f"{OF_SETTINGS.sub('', reason).strip()} ({kind.rpartition('.')[2]})"[:MOST]


def marked(report: str) -> str:
    """Return the expression that Spark marked; empty if there is none."""
    context = CONTEXT.search(report)
    if context is None:
        return ""
    marks = context["marks"]
    return context["line"][marks.index("^") : len(marks)].strip()[:MOST]

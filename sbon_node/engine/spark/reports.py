"""Spark's long reports of what failed, cut to what a person needs."""

from __future__ import annotations

import re

from sbon_node.errors import SbonError

OF_THE_ROWS = "SQLSTATE: 22"
"""In Spark's reports: a data exception (ISO 9075), as a division by zero, which the same rows will raise again."""
NO_ROOM = re.compile("No space left on device|Disk quota exceeded")
LATE_WORKER = "Python worker failed to connect back"
OF_SETTINGS = re.compile(r"If necessary,? set .* to bypass this error\.\s*")
"""Spark's advice on settings, which are not the user's here."""
CONTEXT = re.compile(r"^== SQL .*==\n(?P<line>.*)\n(?P<marks> *\^+)", re.MULTILINE)
"""Where Spark shows the expression that failed, with marks below it."""
MOST = 500
"""Characters of a line that are told."""


def why_ended(error: Exception) -> SbonError:
    """Why a streaming query ended; ``code`` where that would come again, or is known to pass."""
    return no_room(error) or _late_worker(error) or SbonError("bad-rows" if OF_THE_ROWS in str(error) else "", brief(error))


def no_room(error: Exception) -> SbonError | None:
    """Spark's report of a full disk, wherever in it that stands."""
    if NO_ROOM.search(str(error)):
        return SbonError("disk-full", "no room for the checkpoint", hint="free some space")
    return None


def brief(error: Exception) -> str:
    """Of Spark's report its first line with the expression that failed, and the last line of a Python traceback in it; that alone
    where the first one only says that it was so."""
    report = str(error).split("JVM stacktrace")[0]
    lines = [line.strip() for line in report.splitlines() if line.strip()]
    ends = [line for line in lines if re.match(r"^[\w.]+(Error|Exception|Lost)\b.*", line)]
    first = re.sub(r"Query \[id = .*?\] terminated with exception: ", "", lines[0] if lines else type(error).__name__)
    only_the_end = ends and "FOREACH_BATCH_USER_FUNCTION_ERROR" in first
    parts = [re.sub(r"^[\w.]+\.", "", ends[-1])] if only_the_end else [first, *ends[-1:]]
    if marked := _marked(report):
        parts.insert(1, f"in {marked}")
    return " ".join(OF_SETTINGS.sub("", part)[:MOST] for part in parts)


def _marked(report: str) -> str:
    """The expression below which Spark set its marks; empty where it shows none."""
    context = CONTEXT.search(report)
    if context is None:
        return ""
    marks = context["marks"]
    return context["line"][marks.index("^") : len(marks)].strip()[:MOST]


def _late_worker(error: Exception) -> SbonError | None:
    """Spark's report of a Python process that was too slow to start, which says nothing of the operator."""
    if LATE_WORKER in str(error):
        return SbonError("engine-failed", "a Python process did not start within 10 s", hint="the machine is overloaded")
    return None

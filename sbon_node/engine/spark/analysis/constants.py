"""Plan-time detection of errors that every row would raise, by running constants and calls with constant arguments.

A call such as ``k RLIKE '(('`` runs with a few sample values in place of its columns. If it raises the same message for all of
them, the constant is at fault and not the values.
"""

import re
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from sbon_node.engine.spark.analysis.expressions import CONDITIONAL, TIME_PIECES, Expressions, each, kind_of, walk
from sbon_node.engine.spark.operators.failure_reports import OF_SETTINGS, brief
from sbon_protocol.api.operators import OnError
from sbon_protocol.errors import SbonError

COMPARED = frozenset({"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In"})
SAMPLES: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "string": ("'a'", "'7'", "'2001-02-03 04:05:06'"),
    "date": ("DATE'2001-02-03'", "DATE'1999-12-31'"),
    "timestamp": ("TIMESTAMP'2001-02-03 04:05:06'", "TIMESTAMP'1999-12-31 00:00:00'"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'2001-02-03 04:05:06'", "TIMESTAMP_NTZ'1999-12-31 00:00:00'"),
    "array<string>": ("split('a', ',')", "split('a,b,c', ',')"),
}
"""Samples by type. Binary has none: functions of sketches refuse almost every value."""
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
_KNOWN: WeakKeyDictionary[SparkSession, dict[str, list[Any]]] = WeakKeyDictionary()
"""Samples by session and type: objects of the session's JVM, which mean nothing to the next one."""
ADDED = frozenset({"Add", "Divide", "IntegralDivide", "Multiply", "Pmod", "Remainder", "Subtract", "UnaryMinus", "Abs"})
"""Arithmetic whose string operands Spark casts."""

_OF_A_PATTERN = re.compile(
    "INVALID_PARAMETER_VALUE|INVALID_DATETIME_PATTERN|INVALID_TIMEZONE|DATETIME_PATTERN_RECOGNITION|ILLEGAL_DAY_OF_WEEK"
    "|PatternSyntaxException|ZoneRulesException"
)


def check_constants(session: SparkSession, rows: DataFrame, on_error: OnError) -> None:
    """Check constants; raises :class:`SbonError` ``bad-constant`` or ``bad-operand`` with the place in the fragment."""
    check = _Check(session, on_error)
    for plan in walk(rows._jdf.queryExecution().analyzed()):
        if kind_of(plan) not in ("Project", "Filter", "Aggregate", "Join"):
            continue
        for root in each(plan.expressions()):
            check.strings(root)
            if not any(kind_of(node) in TIME_PIECES for node in walk(root)):
                check.tree(root, root, always=True)


class _Check:
    def __init__(self, session: SparkSession, on_error: OnError) -> None:
        self._session, self._on_error = session, on_error
        self._x = Expressions(session)

    def strings(self, root: Any) -> None:
        """Reject arithmetic on string columns, unless an explicit cast makes them numbers."""
        for node in walk(root):
            if kind_of(node) not in ADDED:
                continue
            for cast in each(node.children()):
                text, to = self._from_string(cast), cast.dataType().simpleString()
                if text is not None:
                    hint = f"write CAST({text} AS {to}), or TRY_CAST, which gives NULL for a text that is no number"
                    raise SbonError("bad-operand", f"{text} is a string, and no number", where=place_of(node), hint=hint)

    def _from_string(self, node: Any) -> str | None:
        """Return the text of an operand that Spark casts from a string by itself, perhaps through another type."""
        while kind_of(node) == "Cast" and not node.foldable():
            if node.getTagValue(self._x.catalyst.Cast.USER_SPECIFIED_CAST()).isDefined():
                return None
            node = node.child()
            if node.dataType().simpleString() == "string":
                return re.sub(r"\bin\d+\.", "", str(node.sql()))
        return None

    def tree(self, node: Any, origin: Any, *, always: bool) -> None:
        """Check a node of an expression; ``always`` if it runs for every row."""
        kind = kind_of(node)
        if kind in ("Literal", "AttributeReference"):
            return
        origin = node if place_of(node) != "fragment" else origin
        children = list(each(node.children()))
        if kind != "Alias" and kind not in COMPARED and not kind.startswith("Aggregate"):
            if node.foldable():
                wrong = self._x.fault(self._x.plain(node))
                if wrong is not None and (of_a_pattern(wrong) or (always and self._on_error != "null")):
                    raise self._refusal(wrong, origin)
                return
            if any(child.foldable() for child in children):
                self._try(node, origin, always=always)
        for position, child in enumerate(children):
            self.tree(child, origin, always=always and (kind not in CONDITIONAL or position == 0))

    def _try(self, node: Any, origin: Any, *, always: bool) -> None:
        """Run a call with constant arguments, with samples for the others."""
        reasons = set()
        for children in self._sampled(list(each(node.children()))):
            wrong = self._x.fault(self._x.plain(self._x.with_children(node, children)))
            if wrong is None:
                return
            reasons.add(str(wrong))
        if len(reasons) == 1 and wrong is not None and (of_a_pattern(wrong) or (always and self._on_error == "fail")):
            raise self._refusal(wrong, origin)

    def _sampled(self, children: list[Any]) -> Iterator[list[Any]]:
        """Yield the arguments with each sample in place of the variable ones. Yields nothing if a type has no samples."""
        known = [None if child.foldable() else self._of_type(child.dataType()) for child in children]
        if any(samples == [] for samples in known):
            return
        for turn in range(max((len(samples) for samples in known if samples is not None), default=0)):
            pairs = zip(children, known, strict=True)
            yield [child if samples is None else samples[turn % len(samples)] for child, samples in pairs]

    def _of_type(self, type_: Any) -> list[Any]:
        name, known = str(type_.simpleString()), _KNOWN.setdefault(self._session, {})
        if name not in known:
            texts = SAMPLES.get(name, ())
            if name in NUMBERS or name.startswith("decimal"):
                texts = tuple(f"CAST({number} AS {name})" for number in ("0", "1", "-1"))
            plans = [self._session.sql(f"SELECT {text} AS x")._jdf.queryExecution().analyzed() for text in texts]
            values = [self._x.plain(plan.projectList().apply(0).child()) for plan in plans]
            known[name] = values
        return known[name]

    def _refusal(self, wrong: Exception, origin: Any) -> SbonError:
        reason = OF_SETTINGS.sub("", brief(wrong)).split(" SQLSTATE")[0]
        return SbonError("bad-constant", f"no row can be worked on with this: {reason}", where=place_of(origin))


def of_a_pattern(error: Exception) -> bool:
    """Return whether the error names an invalid pattern, time zone or the like."""
    return _OF_A_PATTERN.search(str(error)) is not None


def place_of(node: Any) -> str:
    """``line 1, column C`` of an expression in its fragment, or ``fragment``."""
    position = node.origin().startPosition()
    return f"line 1, column {position.get() + 1}" if position.isDefined() else "fragment"

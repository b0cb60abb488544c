"""Evaluation of expressions on sampled rows, column by column.

It knows the operators and functions that conditions and keys usually have. For any other expression the answer is None, and the
caller estimates without the sample. Errors of a row give NULL: a sample is no place to fail.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from sqlglot import exp

from sbon_node.model.samples import Value
from sbon_node.planning.sql.syntax.durations import interval_ms

Kind = Literal["number", "text", "boolean", "timestamp", "date", "interval", "null"]

DAY_US = 86_400_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: dict[str, Kind] = {"boolean": "boolean", "string": "text", "date": "date", "timestamp": "timestamp"}
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})


@dataclass(frozen=True, slots=True)
class Values:
    """A column of sampled rows; None is NULL. Timestamps and intervals are microseconds, dates are days since 1970."""

    kind: Kind
    values: Sequence[Value]

    def chosen(self, rows: Sequence[int]) -> Values:
        return Values(self.kind, [self.values[row] for row in rows])


def kind_of(type_: str) -> Kind | None:
    """Return the kind of a column's type; None for types without sampled values."""
    bare = type_.partition("(")[0]
    return "number" if bare in _NUMBERS else _KINDS.get(bare)


def each(function: Callable[..., Any], *columns: Values) -> list[Any]:
    """Return the function of each row; NULL if a value is NULL, or if the function fails for it."""
    results: list[Any] = []
    for row in zip(*(column.values for column in columns), strict=True):
        if None in row:
            results.append(None)
            continue
        try:
            results.append(function(*row))
        except (ValueError, ArithmeticError, TypeError):
            results.append(None)
    return results


def converted(column: Values, kind: Kind) -> Values | None:
    """Return the column as another kind, values that cannot be converted as NULL; None if Spark has no such conversion here."""
    if column.kind == kind:
        return column
    if column.kind == "null":
        return Values(kind, column.values)
    conversion = _CONVERSIONS.get((column.kind, kind))
    return Values(kind, each(conversion, column)) if conversion is not None else None


def alike(left: Values, right: Values) -> tuple[Values, Values] | None:
    """Return two columns as one kind in which they compare; None if they do not."""
    if left.kind == right.kind:
        return left, right
    for kind in ("timestamp", "date", "number", "text"):
        if kind in (left.kind, right.kind):
            one, two = converted(left, kind), converted(right, kind)
            return (one, two) if one is not None and two is not None else None
    return None


def as_datetime(value: int) -> datetime:
    """Return a timestamp as a datetime, for its parts. Raises ``OverflowError`` beyond the years that Python knows."""
    return datetime.fromtimestamp(value // 1_000_000, UTC).replace(microsecond=value % 1_000_000)


def _timestamp_of(text: str) -> int:
    read = datetime.fromisoformat(text.strip())
    since = (read if read.tzinfo else read.replace(tzinfo=UTC)) - EPOCH
    return since.days * DAY_US + since.seconds * 1_000_000 + since.microseconds


_CONVERSIONS: dict[tuple[Kind, Kind], Callable[..., Any]] = {
    ("text", "timestamp"): _timestamp_of,
    ("text", "date"): lambda text: _timestamp_of(text) // DAY_US,
    ("text", "number"): float,
    ("number", "text"): str,
    ("date", "timestamp"): lambda days: days * DAY_US,
    ("timestamp", "date"): lambda micros: micros // DAY_US,
    ("boolean", "number"): int,
    ("number", "boolean"): bool,
}


# -- Expressions --------------------------------------------------------------------------------------------------------

Row = Mapping[str, Values]
"""Columns by name; in a join's condition the names are qualified."""

MAX_RESULT_TEXT = 1024
"""Longest text of a value, since expressions may lengthen it."""

_COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_ARITHMETIC: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
    exp.IntDiv: lambda a, b: int(a / b),
    exp.Mod: math.fmod,
}


def evaluate(node: exp.Expr, columns: Row, count: int) -> Values | None:
    """Return the values of an expression over ``count`` rows; None if it cannot be evaluated here."""
    bare = node.unnest()
    if isinstance(bare, exp.Column):
        return columns.get(f"{bare.table}.{bare.name}" if bare.table else bare.name)
    if isinstance(bare, exp.Literal | exp.Boolean | exp.Null | exp.Interval):
        return _constant(bare, count)
    if isinstance(bare, exp.Anonymous) and str(bare.this).lower() == "if" and len(bare.expressions) == 3:
        condition, true, false = bare.expressions
        bare = exp.If(this=condition.copy(), true=true.copy(), false=false.copy())
    if isinstance(bare, exp.Case | exp.If):
        return _chosen_by_case(bare, columns, count)
    arguments = [evaluate(child, columns, count) for child in _children(bare)]
    known = [argument for argument in arguments if argument is not None]
    if len(known) < len(arguments):
        return None
    return _applied(bare, known, count)


def _children(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Between):
        return [node.this, node.args["low"], node.args["high"]]
    if isinstance(node, exp.In):
        return [node.this, *node.expressions]
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    if isinstance(node, exp.Binary):
        return [node.this, node.expression]
    return [node.this] if isinstance(node.this, exp.Expr) else []


def _constant(node: exp.Expr, count: int) -> Values | None:
    if isinstance(node, exp.Null):
        return Values("null", [None] * count)
    if isinstance(node, exp.Boolean):
        return Values("boolean", [bool(node.this)] * count)
    if isinstance(node, exp.Interval):
        length_ms = interval_ms(node)
        return Values("interval", [length_ms * 1000] * count) if length_ms is not None else None
    if node.is_string:
        return Values("text", [node.name] * count)
    try:
        return Values("number", [float(node.name) if re.search(r"[.eE]", node.name) else int(node.name)] * count)
    except ValueError:
        return None


def _applied(node: exp.Expr, arguments: Sequence[Values], count: int) -> Values | None:
    """Return the values of an operator or a function over its arguments."""
    match node:
        case exp.And() | exp.Or():
            return _logical(node, arguments)
        case exp.Not():
            truth = converted(arguments[0], "boolean")
            return Values("boolean", each(operator.not_, truth)) if truth is not None else None
        case exp.NullSafeEQ() | exp.NullSafeNEQ() | exp.Is():
            return _null_safe(node, arguments)
        case exp.Between():
            low, high = _compared(operator.ge, *arguments[:2]), _compared(operator.le, arguments[0], arguments[2])
            return _logical(exp.And(), (low, high)) if low is not None and high is not None else None
        case exp.In():
            equal = [_compared(operator.eq, arguments[0], other) for other in arguments[1:]]
            known = [one for one in equal if one is not None]
            return _logical(exp.Or(), known) if known and len(known) == len(equal) and not node.args.get("query") else None
        case exp.Like() | exp.ILike():
            return _like(node, arguments)
        case exp.Cast():
            return _cast(node, arguments[0])
        case exp.Neg():
            return Values(arguments[0].kind, each(operator.neg, arguments[0])) if arguments[0].kind != "text" else None
    if type(node) in _COMPARISONS:
        return _compared(_COMPARISONS[type(node)], *arguments)
    if type(node) in _ARITHMETIC:
        return _calculated(node, *arguments)
    return _called(node, arguments)


def _compared(comparison: Callable[[Any, Any], bool], left: Values, right: Values) -> Values | None:
    pair = alike(left, right)
    return Values("boolean", each(comparison, *pair)) if pair is not None else None


def _logical(node: exp.Expr, arguments: Sequence[Values]) -> Values | None:
    """Return AND or OR in three-valued logic: one deciding value decides, else NULL is unknown."""
    decides = isinstance(node, exp.Or)
    if any(argument.kind not in ("boolean", "null") for argument in arguments):
        return None
    rows = zip(*(argument.values for argument in arguments), strict=True)
    return Values("boolean", [decides if decides in row else None if None in row else not decides for row in rows])


def _null_safe(node: exp.Expr, arguments: Sequence[Values]) -> Values | None:
    pair = alike(*arguments) if arguments[1].kind != "null" else tuple(arguments)
    if pair is None:
        return None
    equal = [one == two for one, two in zip(pair[0].values, pair[1].values, strict=True)]
    return Values("boolean", [not one for one in equal] if isinstance(node, exp.NullSafeNEQ) else equal)


def _like(node: exp.Expr, arguments: Sequence[Values]) -> Values | None:
    """Return LIKE for one constant pattern without an escape."""
    text, pattern = arguments
    if text.kind != "text" or not isinstance(node.expression, exp.Literal) or "\\" in node.expression.name or not pattern.values:
        return None
    parts = re.sub(r"%+", "%", node.expression.name)
    if parts.count("%") > 3:
        return None  # many wildcards may take long
    written = "".join(".*" if part == "%" else "." if part == "_" else re.escape(part) for part in parts)
    matches = re.compile(written, re.DOTALL | (re.IGNORECASE if isinstance(node, exp.ILike) else 0)).fullmatch
    return Values("boolean", each(lambda value: matches(value) is not None, text))


def _cast(node: exp.Expr, argument: Values) -> Values | None:
    to = node.args["to"]
    name = to.this.name.lower() if isinstance(to.this, exp.DataType.Type) else ""
    kind = kind_of({"varchar": "string", "text": "string", "timestamptz": "timestamp", "bigint": "bigint"}.get(name, name))
    if kind is None:
        return None
    changed = converted(argument, kind)
    if changed is not None and kind == "number" and name in ("int", "bigint", "smallint", "tinyint"):
        return Values(kind, each(int, changed))
    return changed


def _calculated(node: exp.Expr, left: Values, right: Values) -> Values | None:
    kinds = {left.kind, right.kind}
    calculate = _ARITHMETIC[type(node)]
    if kinds <= {"number", "null"}:
        return Values("number", each(_finite(calculate), left, right))
    if kinds == {"timestamp", "interval"} and isinstance(node, exp.Add | exp.Sub):
        return Values("timestamp", each(calculate, left, right))
    if kinds == {"timestamp"} and isinstance(node, exp.Sub):
        return Values("interval", each(calculate, left, right))
    return None


def _finite(calculate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def finite(left: Any, right: Any) -> Any:
        result = calculate(left, right)
        if isinstance(result, int) and abs(result) >= 2**127:
            raise OverflowError
        return result

    return finite


def _chosen_by_case(node: exp.Expr, columns: Row, count: int) -> Values | None:
    """Return CASE with conditions, or IF."""
    if isinstance(node, exp.Case) and node.this is not None:
        return None
    branches = node.args.get("ifs") or [node]
    default = node.args.get("default") if isinstance(node, exp.Case) else node.args.get("false")
    conditions = [evaluate(branch.this, columns, count) for branch in branches]
    results = [evaluate(branch.args["true"], columns, count) for branch in branches]
    results.append(evaluate(default, columns, count) if default is not None else Values("null", [None] * count))
    if any(column is None or column.kind not in ("boolean", "null") for column in conditions):
        return None
    known = [column for column in results if column is not None]
    kinds: list[Kind] = sorted({column.kind for column in known} - {"null"})
    if len(known) < len(results) or len(kinds) > 1:
        return None
    truths = zip(*(column.values for column in conditions if column is not None), strict=True)
    values = [known[next((i for i, true in enumerate(row) if true), len(branches))].values[at] for at, row in enumerate(truths)]
    return Values(kinds[0] if kinds else "null", values)


def _called(node: exp.Expr, arguments: Sequence[Values]) -> Values | None:
    """Return a function's values, with numbers for its optional arguments."""
    name = str(node.this).lower() if isinstance(node, exp.Anonymous) else type(node).__name__.lower()
    if name == "coalesce" and arguments:
        kinds = {argument.kind for argument in arguments} - {"null"}
        if len(kinds) != 1:
            return None
        rows = zip(*(argument.values for argument in arguments), strict=True)
        return Values(kinds.pop(), [next((value for value in row if value is not None), None) for row in rows])
    function = FUNCTIONS.get(name)
    if function is None or len(arguments) not in function.counts:
        return None
    changed = [converted(argument, kind) for argument, kind in zip(arguments, function.takes, strict=False)]
    known = [column for column in changed if column is not None]
    if len(known) < len(arguments):
        return None
    values = each(function.of, *known)
    return Values(function.gives, [v[:MAX_RESULT_TEXT] if isinstance(v, str) else v for v in values])


# -- Functions that are evaluated on sampled rows, under Spark's names ------------------------------------------------


class Function(NamedTuple):
    """A function of one row: the kinds it takes, the kind it gives, and the allowed numbers of arguments."""

    of: Callable[..., Any]
    takes: tuple[Kind, ...]
    gives: Kind
    counts: tuple[int, ...]


_WIDTHS_US = {
    "millisecond": 1000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": DAY_US, "dd": DAY_US,
}  # fmt: skip


def _truncated(unit: str, micros: int) -> int:
    width = _WIDTHS_US.get(unit.lower())
    if width is not None:
        return micros - micros % width
    begin = as_datetime(micros).replace(hour=0, minute=0, second=0, microsecond=0)
    match unit.lower():
        case "week":
            return micros - micros % DAY_US - begin.weekday() * DAY_US
        case "month" | "mon" | "mm":
            begin = begin.replace(day=1)
        case "year" | "yyyy" | "yy":
            begin = begin.replace(month=1, day=1)
        case _:
            raise ValueError(unit)
    return (begin - EPOCH).days * DAY_US


def _of_number(of: Callable[..., Any]) -> Function:
    return Function(of, ("number",), "number", (1,))


def _of_text(of: Callable[..., Any], gives: Kind = "text") -> Function:
    return Function(of, ("text",), gives, (1,))


def _of_texts(of: Callable[..., Any]) -> Function:
    return Function(of, ("text", "text"), "boolean", (2,))


def _of_time(of: Callable[[datetime], int]) -> Function:
    return Function(lambda micros: of(as_datetime(micros)), ("timestamp",), "number", (1,))


def _substring(text: str, start: int, length: int = 2**31) -> str:
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(0, int(first)) : max(0, int(first + length))]


FUNCTIONS: dict[str, Function] = {
    "abs": _of_number(abs),
    **dict.fromkeys(("ceil", "ceiling"), _of_number(math.ceil)),
    "floor": _of_number(math.floor),
    "sqrt": _of_number(math.sqrt),
    "round": Function(lambda value, digits=0: round(value, int(digits)), ("number", "number"), "number", (1, 2)),
    "mod": Function(math.fmod, ("number", "number"), "number", (2,)),
    "pmod": Function(lambda a, b: a % abs(b), ("number", "number"), "number", (2,)),
    **dict.fromkeys(("lower", "lcase"), _of_text(str.lower)),
    **dict.fromkeys(("upper", "ucase"), _of_text(str.upper)),
    "trim": _of_text(lambda text: text.strip(" ")),
    "reverse": _of_text(lambda text: text[::-1]),
    **dict.fromkeys(("length", "char_length", "len"), _of_text(len, "number")),
    **dict.fromkeys(("substring", "substr"), Function(_substring, ("text", "number", "number"), "text", (2, 3))),
    "left": Function(lambda text, n: text[: max(0, int(n))], ("text", "number"), "text", (2,)),
    "concat": Function(lambda *texts: "".join(texts), ("text",) * 4, "text", (1, 2, 3, 4)),
    "dpipe": Function(lambda one, two: one + two, ("text", "text"), "text", (2,)),
    "startswith": _of_texts(str.startswith),
    "endswith": _of_texts(str.endswith),
    "contains": _of_texts(lambda text, part: part in text),
    "date_trunc": Function(_truncated, ("text", "timestamp"), "timestamp", (2,)),
    **{name: _of_time(attrgetter(name)) for name in ("year", "month", "day", "hour", "minute", "second")},
    "dayofmonth": _of_time(lambda time: time.day),
    "dayofweek": _of_time(lambda time: time.isoweekday() % 7 + 1),
    "weekday": _of_time(datetime.weekday),
    "to_date": Function(lambda micros: micros // DAY_US, ("timestamp",), "date", (1,)),
}

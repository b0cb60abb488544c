"""Implication between conditions of rows: sound, and complete only for comparisons of a column with literals.

A condition that is NULL drops its row as one that is false does. So conditions count by the rows for which they are true:
``a > 5`` also says that ``a`` is not NULL. Values are compared in Spark's order, in which NaN is the greatest number.
"""

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Any

from sqlglot import exp

from sbon_node.planning.sql.rewrite.canonical import canonical_expression, plain_conjuncts
from sbon_node.planning.sql.rewrite.error_free import are_alike, is_error_free
from sbon_node.planning.sql.syntax.dialect import call_name
from sbon_node.planning.sql.syntax.durations import interval_ms
from sbon_node.planning.sql.syntax.lexical import words

MAX_CONDITIONS = 200
"""Most conditions on either side; relations with more are not compared."""
MAX_DISJUNCTIONS = 3
"""Most conditions on either side that are looked at by cases."""
MAX_CASES = 32
"""Most disjunctions that a question divides into cases."""

_DIGITS = 15
"""Numbers of so many digits are exact in all types of a column, and so is their comparison."""
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_COMPARISONS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(?: \d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)?\Z")

Value = Any
"""Number, text or time; all values of a subject have one Python type, and compare as in Spark."""


@dataclass(frozen=True, slots=True)
class _Atom:
    """A comparison of ``subject`` with literals: ``in`` and ``not in`` have several, ``not null`` has none."""

    subject: str
    operator: str
    values: tuple[Value, ...] = ()


class Facts:
    """Conditions that hold for all rows of a relation; ``types`` are those of its columns."""

    def __init__(self, conditions: Sequence[exp.Expr], types: Mapping[str, str], cases: Iterator[int] | None = None) -> None:
        self._conditions = plain_conjuncts(conditions)
        self._types, self._cases = types, cases
        self._texts = {canonical_expression(condition) for condition in self._conditions}
        self._present = {column for condition in self._conditions for column in _present(condition)}
        self._atoms: dict[str, list[_Atom]] = {}
        for condition in self._conditions:
            if (atom := _atom(condition, types)) is not None:
                self._atoms.setdefault(atom.subject, []).append(atom)

    def imply(self, condition: exp.Expr) -> bool:
        """Return whether the condition is true for every row for which all facts are true."""
        cases = self._cases if self._cases is not None else iter(range(MAX_CASES))
        return all(self._implies(part, cases) for part in plain_conjuncts([condition]))

    def _implies(self, part: exp.Expr, cases: Iterator[int]) -> bool:
        if canonical_expression(part) in self._texts:
            return True
        if isinstance(part, exp.Or) and any(self.imply(side) for side in (part.this, part.expression)):
            return True
        atom = _atom(part, self._types)
        if atom is not None and self._imply_atom(atom):
            return True
        return self._implies_by_cases(part, cases)

    def _imply_atom(self, atom: _Atom) -> bool:
        known = self._atoms.get(atom.subject, [])
        if atom.operator == "not null":
            return bool(known) or atom.subject in self._present
        finite = [set(one.values) for one in known if one.operator == "in"]
        if finite and all(_holds(atom, value) for value in set.intersection(*finite) if all(_holds(one, value) for one in known)):
            return True
        return any(_follows(one, atom) for one in known) or (
            atom.operator == "not in"
            and all(any(_follows(one, _Atom(atom.subject, "not in", (value,))) for one in known) for value in atom.values)
        )

    def _implies_by_cases(self, part: exp.Expr, cases: Iterator[int]) -> bool:
        """Return whether each side of a known disjunction implies the condition, together with the other facts."""
        for at, known in enumerate(self._conditions):
            if isinstance(known, exp.Or) and next(cases, None) is not None:
                others = [*self._conditions[:at], *self._conditions[at + 1 :]]
                if all(Facts([*others, side], self._types, cases).imply(part) for side in (known.this, known.expression)):
                    return True
        return False


def missing(wanted: Sequence[exp.Expr], offered: Sequence[exp.Expr], types: Mapping[str, str]) -> list[exp.Expr] | None:
    """Return the wanted conditions that the offered rows do not satisfy anyway; None if a wanted row may not be offered."""
    if max(len(wanted), len(offered)) > MAX_CONDITIONS or max(map(_disjunctions, (wanted, offered))) > MAX_DISJUNCTIONS:
        return None
    of_wanted, of_offered = Facts(wanted, types), Facts(offered, types)
    if not all(of_wanted.imply(condition) for condition in offered):
        return None
    left = {canonical_expression(condition): condition for condition in wanted if not of_offered.imply(condition)}
    return list(left.values())


def _disjunctions(conditions: Sequence[exp.Expr]) -> int:
    """Return how many conditions are looked at by cases, which takes time."""
    return sum(isinstance(condition.unnest(), exp.Or) for condition in conditions)


def is_plain(condition: exp.Expr, types: Mapping[str, str]) -> bool:
    """Return whether a condition compares a column, or the distance of two times, with literals of its type."""
    return _atom(condition, types) is not None


def _holds(atom: _Atom, value: Value) -> bool:
    if atom.operator in ("in", "not in"):
        return (value in atom.values) == (atom.operator == "in")
    tests = {"<": lt, "<=": le, ">": gt, ">=": ge}
    return atom.operator == "not null" or tests[atom.operator](value, atom.values[0])


def _follows(known: _Atom, atom: _Atom) -> bool:
    """Return whether a comparison follows from another of the same subject, which has one value unless it is a list."""
    if known.operator == "not in":
        return atom.operator == "not in" and set(atom.values) <= set(known.values)
    if known.operator not in ("<", "<=", ">", ">="):
        return False
    (bound,) = known.values
    if atom.operator == "not in":
        return all(not _holds(known, value) for value in atom.values)
    if atom.operator[0] != known.operator[0] or atom.operator not in ("<", "<=", ">", ">="):
        return False
    (limit,) = atom.values
    beyond = bound > limit if known.operator[0] == ">" else bound < limit
    return beyond or (bound == limit and (known.operator == atom.operator or len(known.operator) == 1))


# -- comparisons ------------------------------------------------------------------------------------------------------------


def _present(condition: exp.Expr) -> Iterable[str]:
    """Return the columns that are not NULL where the condition is true."""
    if isinstance(condition, (*_COMPARISONS, exp.Like)):
        return [side.unnest().name for side in (condition.this, condition.expression) if isinstance(side.unnest(), exp.Column)]
    return []


def _atom(condition: exp.Expr, types: Mapping[str, str]) -> _Atom | None:
    """Return a plain condition as a comparison of a column, or of the distance of two times, with literals."""
    node = condition.unnest()
    denied = isinstance(node, exp.Not)
    if denied:
        node = node.this.unnest()
    if isinstance(node, exp.Is):
        of = node.this.unnest()
        missing_ = isinstance(node.expression, exp.Null) and isinstance(of, exp.Column)
        return _Atom(of.name, "not null") if denied and missing_ else None
    if isinstance(node, exp.In):
        return _listed(node, "not in" if denied else "in", types)
    if denied or type(node) not in _COMPARISONS:
        return None
    operator = _COMPARISONS[type(node)]
    sides = node.this.unnest(), node.expression.unnest()
    if not isinstance(sides[0], exp.Column):
        sides, operator = (sides[1], sides[0]), _MIRRORED[operator]
    if isinstance(sides[0], exp.Column):
        value = _value(sides[1], types.get(sides[0].name, ""))
        if value is not None:
            return _compared(sides[0].name, operator, value)
    return _distance(node, types)


def _compared(subject: str, operator: str, value: Value) -> _Atom:
    return _Atom(subject, {"=": "in", "<>": "not in"}.get(operator, operator), (value,))


def _listed(node: exp.In, operator: str, types: Mapping[str, str]) -> _Atom | None:
    of = node.this.unnest()
    if not isinstance(of, exp.Column) or not node.expressions:
        return None
    values = [_value(value, types.get(of.name, "")) for value in node.expressions]
    return None if None in values else _Atom(of.name, operator, tuple(values))


def _value(node: exp.Expr, type_: str) -> Value | None:
    """Return a literal's value as Spark compares it with a column of that type; None if that is not certain."""
    bare = node.unnest()
    if type_ in _WHOLE or type_ == "double" or _is_short_decimal(type_):
        number = _number(bare)
        return float(number) if number is not None and type_ == "double" else number
    if type_ == "string" and isinstance(bare, exp.Literal) and bare.is_string:
        return None if "\\" in bare.name else bare.name
    if type_ in ("timestamp", "date"):
        return _time(bare, type_)
    return None


def _is_short_decimal(type_: str) -> bool:
    return type_.startswith("decimal(") and int(type_.removeprefix("decimal(").split(",")[0]) <= _DIGITS


def _number(node: exp.Expr) -> Decimal | None:
    if isinstance(node, exp.Neg):
        number = _number(node.this.unnest())
        return -number if number is not None else None
    plain = isinstance(node, exp.Literal) and not node.is_string and re.fullmatch(r"\d*\.?\d*", node.name)
    return Decimal(node.name) if plain and 0 < sum(digit.isdigit() for digit in node.name) <= _DIGITS else None


def _time(node: exp.Expr, type_: str) -> dt.datetime | None:
    """Return a time that is written in full, without a zone: ``TIMESTAMP '...'``, ``DATE '...'`` or the text alone."""
    if isinstance(node, exp.Cast):
        if node.to.this not in (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.DATE):
            return None
        type_ = "date" if node.to.this == exp.DType.DATE else type_
        node = node.this
    if not isinstance(node, exp.Literal) or not node.is_string or not _TIME.match(node.name):
        return None
    if type_ == "date" and len(node.name) != len("2013-01-01"):
        return None
    try:
        return dt.datetime.fromisoformat(node.name)
    except ValueError:
        return None


def _distance(node: exp.Expr, types: Mapping[str, str]) -> _Atom | None:
    """Return ``a >= b - INTERVAL ...`` as a comparison of the distance of two times, in milliseconds."""
    left, right = _shifted(node.this, types), _shifted(node.expression, types)
    if left is None or right is None or left[0] == right[0]:
        return None
    operator = _COMPARISONS[type(node)]
    (a, a_ms), (b, b_ms) = left, right
    if b < a:
        (a, a_ms), (b, b_ms), operator = (b, b_ms), (a, a_ms), _MIRRORED[operator]
    return _compared(f"{a} - {b}", operator, b_ms - a_ms)


def _shifted(node: exp.Expr, types: Mapping[str, str]) -> tuple[str, int] | None:
    """Return a column of times, and the milliseconds that are added to it."""
    bare = node.unnest()
    if isinstance(bare, exp.Column):
        return (bare.name, 0) if types.get(bare.name) == "timestamp" else None
    if not isinstance(bare, exp.Add | exp.Sub):
        return None
    below, length_ms = _shifted(bare.this, types), interval_ms(bare.expression)
    if below is None or length_ms is None:
        return None
    return below[0], below[1] + (length_ms if isinstance(bare, exp.Add) else -length_ms)


# -- Expressions that fail on no row -----------------------------------------------------------------------------------

_CONDITIONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Like, exp.In, exp.Between,
)  # fmt: skip
_FRACTIONS = ("float", "double")
_SAFE_ARGUMENTS = words("count count_if min max bool_and bool_or every any some isnull isnotnull")
_SAFE_IF_ALIKE = words("coalesce ifnull nvl nullif concat")
_CONDITIONAL = words("coalesce ifnull nvl nvl2 if iff nullif decode")
_SUMS = words("sum try_sum avg mean try_avg stddev stddev_pop stddev_samp std variance var_pop var_samp")
_DECIMAL_DIGITS = 38
_NEVER_TOO_LONG = ("tinyint", "smallint", "int", *_FRACTIONS)
"""Types whose sums exceed no range."""


class Failures:
    """Expressions over columns of these types; the query that asks computes those in ``own`` itself.

    It may not fail by the errors of another query's expressions.
    """

    def __init__(self, own: Iterable[exp.Expr], types: Mapping[str, str]) -> None:
        self._types = types
        self._own = {canonical_expression(node) for root in own for node in _always(root) if _reads(node)}

    def none_in(self, expressions: Iterable[exp.Expr]) -> bool:
        """Return whether no expression can fail where the query's own do not."""
        return all(self._is_safe(expression) for expression in expressions)

    def _is_safe(self, expression: exp.Expr) -> bool:
        node = expression.unnest()
        if isinstance(node, exp.Column | exp.Literal | exp.Null | exp.Boolean | exp.Star):
            return True
        if canonical_expression(node) in self._own:
            return True
        if isinstance(node, exp.And | exp.Or | exp.Not | exp.Is):
            return all(self._is_safe(child) for child in node.iter_expressions())
        if isinstance(node, exp.Add | exp.Sub | exp.Mul):
            return self._is_safe_sum(node)
        if isinstance(node, exp.Anonymous):
            return self._is_safe_call(node)
        return isinstance(node, _CONDITIONS) and (is_plain(node, self._types) or is_error_free(node, self._types))

    def _is_safe_sum(self, node: exp.Add | exp.Sub | exp.Mul) -> bool:
        """Return whether a sum is one of fractions, which become infinite, or of a time and an interval."""
        sides = node.this.unnest(), node.expression.unnest()
        if isinstance(sides[0], exp.Column) and self._types.get(sides[0].name) == "timestamp":
            return not isinstance(node, exp.Mul) and interval_ms(sides[1]) is not None
        fractions = [isinstance(side, exp.Column) and self._types.get(side.name) in _FRACTIONS for side in sides]
        return any(fractions) and all(
            known or (isinstance(side, exp.Literal) and not side.is_string) for known, side in zip(fractions, sides, strict=True)
        )

    def _is_safe_call(self, node: exp.Anonymous) -> bool:
        name, arguments = call_name(node), node.expressions
        if not all(self._is_safe(argument) for argument in arguments):
            return False
        if name in _SUMS and len(arguments) == 1:
            value = arguments[0].unnest()
            type_ = self._types.get(value.name, "") if isinstance(value, exp.Column) else ""
            return type_ in _NEVER_TOO_LONG or _has_room(type_)
        if name in _SAFE_IF_ALIKE:
            return are_alike(arguments, self._types)
        return name in _SAFE_ARGUMENTS or are_alike([node], self._types)


def _has_room(type_: str) -> bool:
    """Return whether a sum of decimals has ten digits more than its values."""
    return type_.startswith("decimal(") and int(type_.removeprefix("decimal(").split(",")[0]) <= _DECIMAL_DIGITS - 10


def _reads(node: exp.Expr) -> bool:
    return not isinstance(node, exp.Column) and node.find(exp.Column) is not None


def _always(root: exp.Expr) -> Iterator[exp.Expr]:
    """Return the expressions that are computed for every row: what is behind a condition may not be."""
    yield root
    if isinstance(root, exp.Case | exp.If | exp.And | exp.Or | exp.Coalesce) or call_name(root) in _CONDITIONAL:
        return
    for child in root.iter_expressions():
        yield from _always(child)

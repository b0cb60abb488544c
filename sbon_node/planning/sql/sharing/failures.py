"""Expressions that fail on no row: a query may not fail by the errors of another query's expressions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sqlglot import exp

from sbon_node.planning.sql.rewrite.canonical import canonical_expression
from sbon_node.planning.sql.rewrite.error_free import are_alike, is_error_free
from sbon_node.planning.sql.sharing.implication import is_plain
from sbon_node.planning.sql.syntax.dialect import call_name
from sbon_node.planning.sql.syntax.durations import interval_ms
from sbon_node.planning.sql.syntax.lexical import words

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
    """Expressions over columns of these types; the query that asks computes those in ``own`` itself."""

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

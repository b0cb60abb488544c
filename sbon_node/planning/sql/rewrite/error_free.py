"""Conditions that raise an error on no row.

Spark's arithmetic and casts raise (division by zero, overflow, a text that is no number), and the query fails. Inferred
conditions are evaluated on rows that the user's condition never reaches, so only conditions that cannot raise may be inferred.
"""

from collections.abc import Mapping

from sqlglot import exp

from sbon_node.planning.sql.syntax.dialect import call_name
from sbon_node.planning.sql.syntax.lexical import words

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_OF_TEXT = words("upper lower ucase lcase trim ltrim rtrim btrim reverse initcap")
_COUNTED = words("length char_length character_length len octet_length")
_OF_TIME = words("year month day hour minute second quarter dayofweek dayofmonth dayofyear weekofyear weekday")

Types = Mapping[str, str]
"""Maps columns to their types."""


def is_error_free(condition: exp.Expr, types: Types) -> bool:
    """Return whether a condition gives true, false or NULL for all values of its columns, which have these types."""
    node = condition.unnest()
    if isinstance(node, exp.And | exp.Or):
        return is_error_free(node.this, types) and is_error_free(node.expression, types)
    if isinstance(node, exp.Not):
        return is_error_free(node.this, types)
    if isinstance(node, exp.Is):
        return _family(node.this, types) is not None
    if isinstance(node, exp.Like):
        return _family(node.this, types) == _family(node.expression, types) == "text"
    if isinstance(node, exp.In):
        return are_alike([node.this, *node.expressions], types)
    if isinstance(node, exp.Between):
        return are_alike([node.this, node.args["low"], node.args["high"]], types)
    return isinstance(node, _COMPARISONS) and are_alike([node.this, node.expression], types)


def are_alike(values: list[exp.Expr], types: Types) -> bool:
    """Return whether the values are compared without a cast that may fail."""
    families = {_family(value, types) for value in values} - {"null"}
    return None not in families and len(families) <= 1


def _family(value: exp.Expr, types: Types) -> str | None:
    """Return a value's comparison family; None if it may raise or is unknown."""
    node = value.unnest()
    if isinstance(node, exp.Column):
        return _family_of(types.get(node.name, ""))
    if isinstance(node, exp.Null):
        return "null"
    if isinstance(node, exp.Literal):
        return "text" if node.is_string else "number"
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
        return _family_of(node.to.sql("spark").lower())
    if isinstance(node, exp.Mod):
        return _remainder([node.this, node.expression], types)
    return _family_of_call(node, types)


def _family_of_call(node: exp.Expr, types: Types) -> str | None:
    name = call_name(node)
    if name in ("mod", "pmod"):
        return _remainder(node.expressions, types)
    if name == "date_trunc" and len(node.expressions) == 2:
        unit, time = node.expressions
        return "time" if isinstance(unit, exp.Literal) and _family(time, types) == "time" else None
    for names, takes, gives in ((_OF_TEXT, "text", "text"), (_COUNTED, "text", "number"), (_OF_TIME, "time", "number")):
        if name in names:
            return gives if len(node.expressions) == 1 and _family(node.expressions[0], types) == takes else None
    return None


def _remainder(values: list[exp.Expr], types: Types) -> str | None:
    """Return the family of a remainder by a number that is not zero."""
    dividend, by = values if len(values) == 2 else (exp.Null(), exp.Null())
    nonzero = isinstance(by, exp.Literal) and not by.is_string and by.name.isdigit() and int(by.name) > 0
    return "number" if nonzero and _family(dividend, types) == "number" else None


def _family_of(type_: str) -> str | None:
    if type_ in ("tinyint", "smallint", "int", "bigint", "float", "double") or type_.startswith("decimal"):
        return "number"
    return {"string": "text", "timestamp": "time", "date": "date", "boolean": "boolean"}.get(type_)

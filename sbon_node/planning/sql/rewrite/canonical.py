"""A canonical text, the same for all expressions recognised as equal.

Sound before complete. The text ignores brackets, the order and nesting of AND and OR, the sides of ``=``, ``<>``, ``<=>``, ``+``
and ``*``, the direction of ``<`` and ``>``, repeated conditions, the case of function names, BETWEEN or two comparisons for a
range, the order of literals of one type after IN, and NOT before NOT or before a comparison. It keeps all other differences.
"""

from collections.abc import Iterable

from sqlglot import exp

from sbon_node.planning.sql.syntax.dialect import render

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE}
_OPPOSITE: dict[type[exp.Expr], type[exp.Expr]] = {exp.EQ: exp.NEQ, exp.LT: exp.GTE, exp.GT: exp.LTE}
_OPPOSITE |= {other: one for one, other in _OPPOSITE.items()}
"""Negated comparisons in Spark's order of values, where NaN is the greatest; NULL stays NULL."""
_COMMUTATIVE = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Add, exp.Mul, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)


def canonical_expression(node: exp.Expr) -> str:
    """Return the canonical text in prefix form. Children come first, so that sides can be sorted."""
    node = _plainer(node)
    if isinstance(node, exp.And | exp.Or):
        sides = _texts(_flatten(node))
        return sides[0] if len(sides) == 1 else f"{type(node).__name__}({', '.join(sides)})"
    if type(node) in _MIRRORED:
        return f"{_MIRRORED[type(node)].__name__}({canonical_expression(node.expression)}, {canonical_expression(node.this)})"
    if isinstance(node, exp.LT | exp.LTE):
        return f"{type(node).__name__}({canonical_expression(node.this)}, {canonical_expression(node.expression)})"
    if isinstance(node, _COMMUTATIVE):
        both = sorted((canonical_expression(node.this), canonical_expression(node.expression)))
        return f"{type(node).__name__}({', '.join(both)})"
    if isinstance(node, exp.Literal | exp.Column | exp.DataType | exp.Interval | exp.HexString | exp.RawString):
        return render(node)
    if isinstance(node, exp.Identifier):
        return f"`{node.name.lower()}`"
    if isinstance(node, exp.Star):
        return "*"
    if isinstance(node, exp.Cast):  # the parser has two classes for CAST; their text distinguishes them
        return f"{render(node).split('(')[0]}({canonical_expression(node.this)}, {render(node.to)})"
    texts_by_name = []
    if isinstance(node, exp.In) and _of_one_type(node.expressions):
        node = exp.In(this=node.this, expressions=sorted(node.expressions, key=render))
    for name in sorted(node.args):
        value = node.args[name]
        if value is None or value is False or value in ([], ""):
            continue
        many = value if isinstance(value, list) else [value]
        texts = [canonical_expression(value) if isinstance(value, exp.Expr) else _plain(node, name, value) for value in many]
        texts_by_name.append(f"{name}={', '.join(texts)}")
    return f"{type(node).__name__}({'; '.join(texts_by_name)})"


def _plain(node: exp.Expr, name: str, value: object) -> str:
    return repr(value).lower() if isinstance(node, exp.Anonymous) and name == "this" else repr(value)


def canonical_conditions(conditions: Iterable[exp.Expr]) -> list[str]:
    """Return the canonical texts of conditions that must all hold, however they are grouped."""
    return _texts(plain_conjuncts(conditions))


def plain_conjuncts(conditions: Iterable[exp.Expr]) -> list[exp.Expr]:
    """Return the parts of all conditions, in their order and each in the plain form that its canonical text has."""
    parts: list[exp.Expr] = []
    for condition in conditions:
        plain = _plainer(condition.copy())
        parts += reversed(_flatten(plain)) if isinstance(plain, exp.And) else [plain]
    return parts


def _texts(sides: Iterable[exp.Expr]) -> list[str]:
    return sorted({canonical_expression(side) for side in sides})


def _flatten(node: exp.And | exp.Or) -> list[exp.Expr]:
    """Return the sides of a chain of the same connector."""
    sides: list[exp.Expr] = []
    pending: list[exp.Expr] = [node]
    while pending:
        plain = _plainer(pending.pop())
        if type(plain) is type(node):
            pending += [plain.this, plain.expression]
        else:
            sides.append(plain)
    return sides


def _plainer(node: exp.Expr) -> exp.Expr:
    """Return an equal expression without brackets or BETWEEN, and without NOT where possible."""
    if isinstance(node, exp.Paren):
        return _plainer(node.this)
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low = exp.GTE(this=node.this, expression=node.args["low"])
        return exp.And(this=low, expression=exp.LTE(this=node.this, expression=node.args["high"]))
    if isinstance(node, exp.Not):
        denied = _plainer(node.this)
        if type(denied) in _OPPOSITE:
            return _OPPOSITE[type(denied)](this=denied.this, expression=denied.expression)
        if isinstance(denied, exp.Not) and isinstance(twice := _plainer(denied.this), exp.Predicate | exp.Connector):
            return twice
        return exp.Not(this=denied)
    return node


def _of_one_type(literals: list[exp.Expr]) -> bool:
    """Return whether the literals need no common type, which their order could affect."""
    if not all(isinstance(literal, exp.Literal) for literal in literals):
        return False
    return len({"text" if literal.is_string else "integer" if literal.is_int else "other" for literal in literals}) == 1

"""One text for all expressions that are recognised as equal.

Sound before complete. What does not matter: brackets, the order and nesting of AND and OR, the sides of ``=``, ``<>``, ``<=>``,
``+`` and ``*``, the direction of ``<`` and ``>``, repeated conditions, the case of function names. Everything else does.
"""

from __future__ import annotations

from sqlglot import exp

from sbon_node.query.dialect import render

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE}
_COMMUTATIVE = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Add, exp.Mul, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)


def canonical_expression(node: exp.Expr) -> str:
    """One text for all expressions recognised as equal, in prefix form; children first, so that sides can be sorted."""
    if isinstance(node, exp.Paren):
        return canonical_expression(node.this)
    if isinstance(node, exp.And | exp.Or):
        sides = sorted({canonical_expression(one) for one in _flatten(node)})
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
    if isinstance(node, exp.Cast):  # the parser has two classes for the one CAST; their text tells them apart
        return f"{render(node).split('(')[0]}({canonical_expression(node.this)}, {render(node.to)})"
    parts = []
    for name in sorted(node.args):
        value = node.args[name]
        if value is None or value is False or value in ([], ""):
            continue
        many = value if isinstance(value, list) else [value]
        texts = [canonical_expression(one) if isinstance(one, exp.Expr) else _plain(node, name, one) for one in many]
        parts.append(f"{name}={', '.join(texts)}")
    return f"{type(node).__name__}({'; '.join(parts)})"


def _plain(node: exp.Expr, name: str, value: object) -> str:
    return repr(value).lower() if isinstance(node, exp.Anonymous) and name == "this" else repr(value)


def _flatten(node: exp.And | exp.Or) -> list[exp.Expr]:
    """The sides of a chain of one connector, through brackets."""
    sides: list[exp.Expr] = []
    pending: list[exp.Expr] = [node]
    while pending:
        one = pending.pop()
        if type(one) is type(node):
            pending += [one.this, one.expression]
        elif isinstance(one, exp.Paren) and type(one.unnest()) is type(node):
            pending.append(one.unnest())
        else:
            sides.append(one)
    return sides

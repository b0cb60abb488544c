"""The identity of a stateless fragment over given inputs: equal signatures promise equal rows (docs/design.md, section 6).

Sound before complete. What does not matter: the names of the view's alias and of the outputs, brackets, the order and nesting
of AND and OR, the sides of ``=``, ``<>``, ``<=>``, ``+`` and ``*``, the direction of ``<`` and ``>``, repeated conditions, the
case of function names. Everything else does, the order of the outputs too.
"""

from __future__ import annotations

import hashlib

from sqlglot import exp

from sbon_node.query.allowlist import normalise_unit
from sbon_node.query.dialect import parse, render
from sbon_node.query.lexical import scan

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE}
_COMMUTATIVE = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Add, exp.Mul, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)


def signature(fragment: str, inputs: tuple[str, ...]) -> str:
    """A digest of the canonical fragment and the ids of the streams it reads."""
    text = "\n".join((canonical(fragment), *inputs))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def canonical(fragment: str) -> str:
    """One text for all fragments recognised as equal; ``fragment`` has passed the allow-list."""
    clean, _ = scan(fragment, strict=True)
    return canonical_tree(parse(clean)[0])


def canonical_tree(tree: exp.Expr) -> str:
    """As :func:`canonical`, of a parsed SELECT."""
    select = tree.copy()
    for call in select.find_all(exp.Anonymous):
        normalise_unit(call)
    for column in select.find_all(exp.Column):
        column.set("table", None)
        column.this.set("this", column.name.lower())
    outputs = [_canonical(one.unalias()) for one in select.expressions]
    where = select.args.get("where")
    condition = f" WHERE {_canonical(where.this)}" if where is not None else ""
    return f"SELECT {', '.join(outputs)} FROM {select.args['from_'].this.name}{condition}"


def _canonical(node: exp.Expr) -> str:
    """A text in prefix form; children first, so that sides can be sorted."""
    if isinstance(node, exp.Paren):
        return _canonical(node.this)
    if isinstance(node, exp.And | exp.Or):
        sides = sorted({_canonical(one) for one in _flatten(node)})
        return sides[0] if len(sides) == 1 else f"{type(node).__name__}({', '.join(sides)})"
    if type(node) in _MIRRORED:
        return f"{_MIRRORED[type(node)].__name__}({_canonical(node.expression)}, {_canonical(node.this)})"
    if isinstance(node, exp.LT | exp.LTE):
        return f"{type(node).__name__}({_canonical(node.this)}, {_canonical(node.expression)})"
    if isinstance(node, _COMMUTATIVE):
        return f"{type(node).__name__}({', '.join(sorted((_canonical(node.this), _canonical(node.expression))))})"
    if isinstance(node, exp.Literal | exp.Column | exp.DataType | exp.Interval | exp.HexString | exp.RawString):
        return render(node)
    if isinstance(node, exp.Star):
        return "*"
    if isinstance(node, exp.Cast):  # the parser has two classes for the one CAST; their text tells them apart
        return f"{render(node).split('(')[0]}({_canonical(node.this)}, {render(node.to)})"
    parts = []
    for name in sorted(node.args):
        value = node.args[name]
        if value is None or value is False or value == []:
            continue
        many = value if isinstance(value, list) else [value]
        texts = [_canonical(one) if isinstance(one, exp.Expr) else _plain(node, name, one) for one in many]
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

"""Nesting depth of expressions: balances chains of AND and OR, and limits the rest."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sbon_node.planning.sql.syntax.dialect import start_of
from sbon_node.planning.sql.syntax.lexical import refusal

MAX_DEPTH = 100

_AROUND = (
    exp.Select, exp.SetOperation, exp.Subquery, exp.With, exp.CTE, exp.From, exp.Join, exp.Table,
    exp.Where, exp.Group, exp.Having, exp.Exists, exp.Distinct,
)  # fmt: skip
"""Tree nodes below which expressions begin."""


def balance(tree: exp.Expr) -> None:
    """Balance chains such as ``a AND b AND c AND d`` into pairs of pairs.

    The parser nests a chain as deep as it is long, and every walk over the tree recurses.
    """
    for node in list(tree.find_all(exp.And, exp.Or)):
        if type(node.parent) is not type(node):
            sides = _sides(node)
            if len(sides) > 3:
                middle = len(sides) // 2
                node.set("this", _together(type(node), sides[:middle]))
                node.set("expression", _together(type(node), sides[middle:]))


def _sides(node: exp.Expr) -> list[exp.Expr]:
    """Return the sides in the order in which they are written."""
    sides: list[exp.Expr] = []
    pending: list[exp.Expr] = [node]
    while pending:
        node_or_side = pending.pop()
        if type(node_or_side) is type(node):
            pending += [node_or_side.expression, node_or_side.this]
        else:
            sides.append(node_or_side)
    return sides


def _together(connector: type[exp.Expr], sides: Sequence[exp.Expr]) -> exp.Expr:
    if len(sides) == 1:
        return sides[0]
    middle = len(sides) // 2
    return connector(this=_together(connector, sides[:middle]), expression=_together(connector, sides[middle:]))


def all_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """Return the conditions joined by AND."""
    return _together(exp.And, conditions)


def check_depth(clean: str, tree: exp.Expr, most: int) -> None:
    """Raise ``too-deep`` if more than ``most`` expressions are nested. A chain of AND or of OR counts once."""
    pending = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > most:
            message = f"more than {most} expressions inside one another"
            hint = "simplify the expression; query.max_depth sets the limit"
            raise refusal("too-deep", message, clean, start_of(node), hint=hint)
        flat = isinstance(node, exp.And | exp.Or)
        for child in node.iter_expressions(reverse=True):
            same = flat and type(child) is type(node)
            pending.append((child, 0 if isinstance(node, _AROUND) else depth if same else depth + 1))

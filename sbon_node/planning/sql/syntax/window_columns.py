"""Window expressions (whole, by their ends, or as a call), converted to columns for their ends."""

from __future__ import annotations

from sqlglot import exp

from sbon_node.planning.sql.checks.functions import WINDOW_COLUMNS
from sbon_node.planning.sql.relations.scope import Scope
from sbon_node.planning.sql.syntax.dialect import call_name


def window_column_of(node: exp.Expr) -> str:
    """Return ``window`` or ``session_window`` if the whole window is selected."""
    name = call_name(node) or (node.name.lower() if isinstance(node, exp.Column) and not node.table else "")
    return name if name in WINDOW_COLUMNS else ""


def end_of(window: str, end: str, alias: object = None) -> exp.Column:
    """Return the column ``window.start`` or ``window.end``, of the relation ``alias`` if given."""
    return exp.Column(this=exp.Identifier(this=end), table=exp.Identifier(this=window), db=alias)


def by_ends(condition: exp.Expr | None, scope: Scope) -> exp.Expr | None:
    """Rewrite ``a.window = b.window`` as equalities of starts and of ends."""

    def ends(node: exp.Expr) -> exp.Expr:
        sides = (node.this, node.expression) if isinstance(node, exp.EQ) else ()
        names = {side.name.lower() for side in sides if isinstance(side, exp.Column) and scope.find(side) is None}
        if len(names) != 1 or not names <= set(WINDOW_COLUMNS) or not all(isinstance(side, exp.Column) for side in sides):
            return node
        window = names.pop()
        both = ([end_of(window, end, side.args.get("table")) for side in sides] for end in ("start", "end"))
        starts, stops = (exp.EQ(this=start, expression=other) for start, other in both)
        return exp.Paren(this=exp.And(this=starts, expression=stops))

    return condition.copy().transform(ends) if condition is not None else None


def is_end(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.table.lower() in WINDOW_COLUMNS and not node.args.get("db")


def cut_of(node: exp.Expr) -> exp.Expr | None:
    """Return the call of ``window`` that a part of the SELECT list is, or was."""
    return node if call_name(node) in WINDOW_COLUMNS else node.meta.get("cut")


def plain_window(node: exp.Expr) -> exp.Expr:
    """Rewrite ``window(ts, '1 hour').start`` as ``window.start``.

    ``window_time(w.window)`` becomes a microsecond before ``w.window.end``.
    """
    if isinstance(node, exp.Dot) and call_name(node.this) in WINDOW_COLUMNS and isinstance(node.expression, exp.Identifier):
        end = end_of(call_name(node.this), node.expression.name.lower())
        end.meta["cut"] = node.this
        return end
    window = node.expressions[0] if call_name(node) == "window_time" and len(node.expressions) == 1 else None
    if not isinstance(window, exp.Column) or window.name.lower() not in WINDOW_COLUMNS:
        return node
    end = end_of(window.name.lower(), "end", window.args.get("table"))
    return exp.Sub(this=end, expression=exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this="MICROSECOND")))

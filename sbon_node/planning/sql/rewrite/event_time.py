"""Columns that follow a relation's watermark, their lags, and time bounds of joins.

A column *follows* with lag L when no later row has a value of W - L or less there, W being the stream's watermark
(docs/design.md, section 7). All lengths are whole milliseconds.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from sbon_node.planning.sql.relations.logical import (
    LEFT,
    OUTER,
    RIGHT,
    Aggregate,
    Input,
    Join,
    Output,
    Relation,
    Scan,
    Select,
    Union,
    children_of,
    named,
)
from sbon_node.planning.sql.syntax.durations import interval_ms

_TRUNCATED_MS = {
    "millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "dd": 86_400_000,
    "week": 7 * 86_400_000, "month": 31 * 86_400_000, "mm": 31 * 86_400_000, "mon": 31 * 86_400_000,
    "quarter": 92 * 86_400_000, "year": 366 * 86_400_000, "yyyy": 366 * 86_400_000, "yy": 366 * 86_400_000,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bound:
    """``least_ms <= left - right <= most_ms`` for two columns that follow their watermarks."""

    left: str
    right: str
    least_ms: float = -math.inf
    most_ms: float = math.inf

    @property
    def closed(self) -> bool:
        return self.least_ms > -math.inf and self.most_ms < math.inf

    @property
    def left_lag_ms(self) -> int:
        """Return the left column's lag behind the join's watermark; unmatched rows come slightly later."""
        return max(0, -int(self.least_ms)) + 1

    @property
    def right_lag_ms(self) -> int:
        return max(0, int(self.most_ms)) + 1


def lags_ms(relation: Relation, *, bounded: bool = True) -> dict[str, int]:
    """Return the columns of ``relation`` that follow its watermark, with their lags.

    ``bounded=False`` includes columns that would follow if their joins were bound in time.
    """
    match relation:
        case Scan(entry):
            return {entry.declaration.event_time: 0}
        case Input():
            return dict(relation.lags_ms)
        case Select(child, outputs):
            return _lags_of(outputs, lags_ms(child, bounded=bounded))
        case Union(children):
            of_each = [lags_ms(child, bounded=bounded) for child in children]
            common = [name for name in of_each[0] if all(name in lags for lags in of_each)]
            return {name: max(lags[name] for lags in of_each) for name in common}
        case Aggregate(child, window, keys):
            below = {name: max(lag, held_ms(child)) for name, lag in lags_ms(child, bounded=bounded).items()}
            if window is not None:
                lag = below.get(window.time)
                start = {window.start: lag + window.size_ms} if window.kind == "window" and lag is not None else {}
                return {window.end: lag, **start} if lag is not None else {}
            return _lags_of(keys, below)
        case Join():
            return _lags_of_join(relation) if bounded else _times_of_join(relation)
    raise TypeError(f"no relation: {relation!r}")


def _lags_of(outputs: Iterable[Output], below: Mapping[str, int]) -> dict[str, int]:
    return {output.name: lag for output in outputs if (lag := lag_of(output.expression, below)) is not None}


def held_ms(relation: Relation) -> int:
    """Return the lag of the watermark that reaches stateful relations above ``relation`` in its operator.

    The lag is relative to the operator's watermark. An outer join passes on the least watermark by which its two sides release
    state, whichever of their times is used.
    """
    join = relation.child if isinstance(relation, Select) else None
    if not isinstance(join, Join) or join.kind not in OUTER:
        return 0
    own = [max(bound.left_lag_ms, bound.right_lag_ms) for bound in bounds(join) if bound.closed]
    return max(own, default=0) + max(held_ms(join.left), held_ms(join.right))


def _lags_of_join(join: Join) -> dict[str, int]:
    hold_ms = max(held_ms(join.left), held_ms(join.right))
    lags: dict[str, int] = {}
    for bound in bounds(join):
        if not bound.closed:
            continue
        for name, side, at in join.columns:
            if at == (bound.left if side == LEFT else bound.right):
                lag = hold_ms + (bound.left_lag_ms if side == LEFT else bound.right_lag_ms)
                lags[name] = max(lag, lags.get(name, 0))
    return lags


def _times_of_join(join: Join) -> dict[str, int]:
    sides = {LEFT: lags_ms(join.left, bounded=False), RIGHT: lags_ms(join.right, bounded=False)}
    return {name: sides[side][at] for name, side, at in join.columns if at in sides[side]}


def lag_of(expression: exp.Expr, lags: Mapping[str, int]) -> int | None:
    """Return the lag of an expression over columns with ``lags``; None if it does not follow."""
    node = expression.unnest()
    if isinstance(node, exp.Column):
        return lags.get(node.name)
    if isinstance(node, exp.Add | exp.Sub):
        lag, shift = lag_of(node.this, lags), _shift_ms(node)
        return max(0, lag - shift) if lag is not None and shift is not None else None
    width = truncated_ms(node)
    lag = lag_of(node.expressions[1], lags) if width is not None else None
    return lag + width if lag is not None and width is not None else None


def truncated_ms(node: exp.Expr) -> int | None:
    """Return the longest length of the unit of a ``date_trunc`` call; None for other expressions."""
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "date_trunc" or len(node.expressions) != 2:
        return None
    unit = node.expressions[0]
    return _TRUNCATED_MS.get(unit.name.lower()) if isinstance(unit, exp.Literal) else None


def _shift_ms(node: exp.Add | exp.Sub) -> int | None:
    interval = node.expression.unnest()
    unit = interval.args.get("unit") if isinstance(interval, exp.Interval) else None
    if unit is not None and unit.name.upper() == "MICROSECOND" and interval.this.name == "1":
        return -1 if isinstance(node, exp.Sub) else 0
    length = interval_ms(interval)
    return -length if isinstance(node, exp.Sub) and length is not None else length


def bounds(join: Join) -> list[Bound]:
    """Return the distance bounds for each pair of following columns, one of each side."""
    left, right = lags_ms(join.left), lags_ms(join.right)
    by_columns: dict[tuple[str, str], Bound] = {}
    for left_column, other, least, most in _distances(join):
        if left_column in left and other in right:
            known = by_columns.get((left_column, other), Bound(left_column, other))
            by_columns[left_column, other] = Bound(left_column, other, max(known.least_ms, least), min(known.most_ms, most))
    return list(by_columns.values())


def _distances(join: Join) -> list[tuple[str, str, float, float]]:
    """Return the difference bounds that the join's conditions state.

    Each has left column, right column, least and most difference. A strict comparison counts as a non-strict one.
    """
    distances = []
    for condition in join.conditions:
        for low, operator, other in _sides(condition.unnest()):
            a, b = _span(low), _span(other)
            if a is None or b is None or a.column.table == b.column.table:
                continue
            if a.column.table != LEFT:
                a, b, operator = b, a, {"=": "=", "<=": ">=", ">=": "<="}[operator]
            least = b.least_ms - a.most_ms if operator in ("=", ">=") else -math.inf
            most = b.most_ms - a.least_ms if operator in ("=", "<=") else math.inf
            distances.append((a.column.name, b.column.name, least, most))
    return distances


def _sides(node: exp.Expr) -> list[tuple[exp.Expr, str, exp.Expr]]:
    if isinstance(node, exp.Between):
        return [(node.this, ">=", node.args["low"]), (node.this, "<=", node.args["high"])]
    operators: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.LT: "<=", exp.LTE: "<=", exp.GT: ">=", exp.GTE: ">="}
    operator = operators.get(type(node))
    return [(node.this, operator, node.expression)] if operator is not None else []


@dataclass(frozen=True, slots=True)
class _Span:
    """A value between ``column`` plus ``least_ms`` and ``column`` plus ``most_ms``."""

    column: exp.Column
    least_ms: int = 0
    most_ms: int = 0


def _span(expression: exp.Expr) -> _Span | None:
    """Return the span of a column, with additions and truncations."""
    node = expression.unnest()
    if isinstance(node, exp.Column):
        return _Span(node)
    if isinstance(node, exp.Add | exp.Sub):
        inner, shift = _span(node.this), _shift_ms(node)
        return _Span(inner.column, inner.least_ms + shift, inner.most_ms + shift) if inner and shift is not None else None
    width = truncated_ms(node)
    inner = _span(node.expressions[1]) if width is not None else None
    return _Span(inner.column, inner.least_ms - width, inner.most_ms) if inner and width is not None else None


def width_ms(relation: Relation) -> int:
    """Return how long a row may stay in an operator's state. It is the sum over its nested windows and join bounds."""
    below = max((width_ms(child) for child in children_of(relation)), default=0)
    if isinstance(relation, Aggregate) and relation.window is not None:
        return below + relation.window.size_ms
    closed = [bound for bound in bounds(relation) if bound.closed] if isinstance(relation, Join) else []
    return below + min((max(bound.left_lag_ms, bound.right_lag_ms) for bound in closed), default=0)


def optional(relation: Relation) -> frozenset[str]:
    """Return the columns that are NULL in rows for which an outer join had no partner."""
    match relation:
        case Scan() | Input():
            return frozenset()
        case Select(child, outputs) | Aggregate(child, _, outputs):
            below = optional(child)
            return frozenset(o.name for o in outputs if any(one.name in below for one in o.expression.find_all(exp.Column)))
        case Union(children):
            return frozenset(name for child in children for name in optional(child))
        case Join(kind, left, right):
            of = {LEFT: optional(left), RIGHT: optional(right)}
            null = {"left": (RIGHT,), "right": (LEFT,), "full": (LEFT, RIGHT)}.get(kind, ())
            return frozenset(name for name, side, at in relation.columns if side in null or at in of[side])
    raise TypeError(f"no relation: {relation!r}")


def truncations(expression: exp.Expr) -> list[exp.Anonymous]:
    """Return the expression's ``date_trunc`` calls, which can be separate columns."""
    return [call for call in expression.find_all(exp.Anonymous) if call.name.lower() == "date_trunc"]


def has_equal_times(join: Join) -> bool:
    """Return whether an equality of times, or of truncated times, divides the rows of a join."""
    times = {f"{LEFT}.{name}" for name in lags_ms(join.left)}, {f"{RIGHT}.{name}" for name in lags_ms(join.right)}
    equalities = (equality for condition in join.conditions for equality in condition.find_all(exp.EQ))
    return any(all(named(equality) & of_side for of_side in times) for equality in equalities)

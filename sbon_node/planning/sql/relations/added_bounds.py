"""Bounds in event time that a submission adds to its query.

With a join window, each row of a side of a join without a bound meets the rows of the other side within that distance. A query
from now on is over rows that are later than all those that its sources had when it was submitted.
"""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from sqlglot import exp

from sbon_node.planning.sql.relations.logical import (
    LEFT,
    RIGHT,
    Aggregate,
    Join,
    Output,
    Relation,
    Scan,
    Select,
    as_they_are,
    column,
    over,
)
from sbon_node.planning.sql.rewrite.event_time import bounds, lag_of, lags_ms
from sbon_node.planning.sql.syntax.durations import MAX_MS, sql_interval
from sbon_protocol.errors import SbonError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS = 86_400_000


def check_join_window(window_ms: int | None) -> None:
    """Raise ``bad-join-window`` for a length out of range."""
    if window_ms is not None and not 0 < window_ms <= MAX_MS:
        hint = f"give a length of event time from 1 ms to {MAX_MS // _DAY_MS:,} days"
        raise SbonError("bad-join-window", f"a join window of {window_ms:,} ms is none", where="join_window_ms", hint=hint)


def with_join_window(relation: Relation, window_ms: int) -> Relation:
    """Return the relation with a time bound on every join that lacks it.

    The bound is ``left BETWEEN right - window AND right + window`` over the sides' event times. Joins with a side without event
    time stay as they are.
    """
    relation = over(relation, lambda child: with_join_window(child, window_ms))
    return _bounded(relation, window_ms) if isinstance(relation, Join) else relation


def _bounded(join: Join, window_ms: int) -> Join:
    left, right = _event_time(join.left), _event_time(join.right)
    if left is None or right is None or any(bound.closed for bound in bounds(join)):
        return join
    low = exp.Sub(this=column(right, RIGHT), expression=sql_interval(window_ms))
    high = exp.Add(this=column(right, RIGHT), expression=sql_interval(window_ms))
    within = exp.Between(this=column(left, LEFT), low=low, high=high)
    return replace(join, conditions=(*join.conditions, within))


def _event_time(relation: Relation) -> str | None:
    """Return the column that follows the watermark most closely; the first of equals."""
    lags = lags_ms(relation)
    return min((name for name in relation.names if name in lags), key=lambda name: lags[name], default=None)


def with_since(relation: Relation, since_ms: int) -> Relation:
    """Return the relation over rows whose event times are at or after ``since_ms``.

    A window, or a group by a truncated time, that began before has lost rows, so it is left out.
    """
    counted = over(relation, lambda child: with_since(child, since_ms))
    match relation:
        case Scan(entry):
            time = entry.declaration.event_time
            types = {field.name: field.type for field in entry.declaration.schema}
            return _filtered(counted, time, types[time], since_ms)
        case Aggregate(child, window, keys):
            begins = [window.start] if window is not None and window.kind == "window" else _truncated(keys, child)
            return _filtered(counted, begins[0], "timestamp", since_ms) if begins else counted
    return counted


def _truncated(keys: tuple[Output, ...], child: Relation) -> list[str]:
    """Return the keys by which groups begin: they follow the event time, and lag behind it."""
    lags = lags_ms(child)
    return [key.name for key in keys if lag_of(key.expression, lags)]


def _filtered(relation: Relation, name: str, type_: str, since_ms: int) -> Select:
    later = exp.GTE(this=column(name), expression=_literal(type_, since_ms))
    return Select(relation, as_they_are(relation.names), (later,))


def _literal(type_: str, since_ms: int) -> exp.Cast:
    """Return the first value of a type of times at or after ``since_ms``."""
    if type_ == "date":
        day = date.fromordinal(min(_EPOCH.toordinal() - (-since_ms // _DAY_MS), date.max.toordinal()))
        return exp.cast(exp.Literal.string(day.isoformat()), type_, dialect="spark")
    time = (_EPOCH + timedelta(milliseconds=since_ms)).replace(tzinfo=None).isoformat(" ", "milliseconds")
    return exp.cast(exp.Literal.string(time), type_, dialect="spark")

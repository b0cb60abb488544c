"""Default time bounds for joins that lack them.

Each row of a side meets the rows of the other side within a given distance in event time.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from sbon_node.planning.sql.relations.logical import LEFT, RIGHT, Aggregate, Join, Relation, Select, Union, column
from sbon_node.planning.sql.rewrite.event_time import bounds, lags_ms
from sbon_node.planning.sql.syntax.durations import MAX_MS, sql_interval
from sbon_protocol.errors import SbonError


def check_join_window(window_ms: int | None) -> None:
    """Raise ``bad-join-window`` for a length out of range."""
    if window_ms is not None and not 0 < window_ms <= MAX_MS:
        raise SbonError(
            "bad-join-window",
            f"a join window of {window_ms:,} ms is none",
            where="join_window_ms",
            hint=f"give a length of event time from 1 ms to {MAX_MS // 86_400_000:,} days",
        )


def with_join_window(relation: Relation, window_ms: int) -> Relation:
    """Return the relation with a time bound on every join that lacks it.

    The bound is ``left BETWEEN right - window AND right + window`` over the sides' event times. Joins with a side without event
    time stay as they are.
    """
    if isinstance(relation, Select | Aggregate):
        return replace(relation, child=with_join_window(relation.child, window_ms))
    if isinstance(relation, Union):
        return replace(relation, children=tuple(with_join_window(child, window_ms) for child in relation.children))
    if isinstance(relation, Join):
        left, right = with_join_window(relation.left, window_ms), with_join_window(relation.right, window_ms)
        return _bounded(replace(relation, left=left, right=right), window_ms)
    return relation


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

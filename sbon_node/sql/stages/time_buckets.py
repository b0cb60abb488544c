"""Time buckets of interval joins: only rows of equal buckets are compared (docs/design.md, section 6).

Spark compares a row of a stream join with every kept row of its key. With a bound ``least <= left - right <= most`` the possible
partners of a row lie in one or two buckets of at least ``most - least``. The bound itself stays in the condition, and so no pair
comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from sbon_node.model.columns import Schema
from sbon_node.model.operators import MAX_SHIFT_MS, TimeBuckets
from sbon_node.model.plan import Rate
from sbon_node.sql.relations.logical import Aggregate, Input, Join, Relation, Select
from sbon_node.sql.rewrite.event_time import bounds, has_equal_times

WIDTH = 2
"""Width of a bucket, in lengths of the interval: half of the copied rows then reach into a second bucket."""
LEAST_WIDTH_MS = 100
"""Shorter buckets have hardly any rows of a key, and each has a record of its own in Spark's state."""


def time_buckets(relation: Relation, schemas: Sequence[Schema], rates: Sequence[Rate]) -> tuple[TimeBuckets, ...]:
    """Return the buckets of the stage's joins, by the schemas and rates of its views.

    Buckets need a bound from below and from above, and two sides that are views. An inner join copies the rows of the side with
    fewer rows. An outer join copies the side that it does not preserve, since a copy without a partner would be a row of the
    result. A full join has no such side.
    """
    return tuple(buckets for join in _joins(relation) if (buckets := _buckets(join, schemas, rates)) is not None)


def _joins(relation: Relation) -> Iterator[Join]:
    if isinstance(relation, Select | Aggregate):
        yield from _joins(relation.child)
    elif isinstance(relation, Join):
        yield from _joins(relation.left)
        yield from _joins(relation.right)
        yield relation


def _buckets(join: Join, schemas: Sequence[Schema], rates: Sequence[Rate]) -> TimeBuckets | None:
    left, right = join.left, join.right
    if not isinstance(left, Input) or not isinstance(right, Input) or join.kind == "full":
        return None
    closed = [bound for bound in bounds(join) if bound.closed and bound.most_ms > bound.least_ms]
    best = min(closed, key=lambda bound: bound.most_ms - bound.least_ms, default=None)
    if best is None or _is_finer(join) or has_equal_times(join):
        return None
    if any(_type(schemas[view], name) != "timestamp" for view, name in ((left.view, best.left), (right.view, best.right))):
        return None
    least_ms, most_ms = int(best.least_ms), int(best.most_ms)
    if max(-least_ms, most_ms) > MAX_SHIFT_MS:
        return None
    width_ms = max(LEAST_WIDTH_MS, WIDTH * (most_ms - least_ms))
    fewer_left = rates[left.view].rows_s < rates[right.view].rows_s
    if join.kind == "right" or (join.kind == "inner" and fewer_left):
        return TimeBuckets(
            view=right.view,
            time=best.right,
            copied_view=left.view,
            copied_time=best.left,
            from_ms=-most_ms,
            upto_ms=-least_ms,
            width_ms=width_ms,
        )
    return TimeBuckets(
        view=left.view,
        time=best.left,
        copied_view=right.view,
        copied_time=best.right,
        from_ms=least_ms,
        upto_ms=most_ms,
        width_ms=width_ms,
    )


def _is_finer(join: Join) -> bool:
    """Return whether a bound has microseconds, which :func:`bounds` rounds."""
    return any((unit := interval.args.get("unit")) is not None and "MICRO" in unit.name.upper() for interval in _intervals(join))


def _intervals(join: Join) -> Iterator[exp.Interval]:
    for condition in join.conditions:
        yield from condition.find_all(exp.Interval)


def _type(schema: Schema, name: str) -> str:
    return next((column.type for column in schema if column.name == name), "")

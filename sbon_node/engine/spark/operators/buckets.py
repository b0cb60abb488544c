"""Time buckets on Spark: a further column of two views, and the equality of both in their join.

The copied rows have a row for each bucket that they reach, which is one or two. A row without a time is in no bucket, and so it
has no partner, as without buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from sqlglot import exp

from sbon_node.planning.sql.relations.logical import LEFT, RIGHT, column
from sbon_node.planning.sql.syntax.dialect import parse, render
from sbon_protocol.api.operators import TimeBuckets
from sbon_protocol.errors import SbonError

BUCKET = "sbon bucket"
"""The column of a row's bucket; no stream can have a column of this name."""


def with_bucket(rows: DataFrame, view: int, buckets: Sequence[TimeBuckets]) -> DataFrame:
    """Return a view's rows with their buckets, if a join compares them."""
    for bucket in buckets:
        if view == bucket.view:
            return rows.withColumn(BUCKET, _bucket(bucket, bucket.time, 0))
        if view == bucket.copied_view:
            first, last = (_bucket(bucket, bucket.copied_time, shift_ms) for shift_ms in (bucket.from_ms, bucket.upto_ms))
            reached = f.when(first == last, f.array(first)).otherwise(f.array(first, last))
            return rows.withColumn(BUCKET, f.explode(reached))
    return rows


def _bucket(buckets: TimeBuckets, time: str, shift_ms: int) -> Column:
    """Return the bucket of a shifted time. Division truncates: the bucket around 1970 is twice as long, which harms nothing."""
    quoted = time.replace("`", "``")
    return f.expr(f"(unix_micros(`{quoted}`) + {shift_ms * 1000}L) div {buckets.width_ms * 1000}L")


def with_equal_buckets(fragment: str, buckets: Sequence[TimeBuckets]) -> str:
    """Return the fragment with the equality of buckets in each of these joins; raises :class:`SbonError` ``bad-inputs``."""
    if not buckets:
        return fragment
    tree = parse(fragment)[0]
    joins = {views: join for select in tree.find_all(exp.Select) for views, join in _joins(select)}
    for bucket in buckets:
        _check(bucket)
        join = joins.get(frozenset({bucket.view, bucket.copied_view}))
        if join is None or not isinstance(on := join.args.get("on"), exp.Expr):
            raise SbonError("bad-inputs", f"no join of in{bucket.view} and in{bucket.copied_view}", where="fragment")
        equal = exp.EQ(this=column(BUCKET, LEFT), expression=column(BUCKET, RIGHT))
        join.set("on", exp.And(this=exp.Paren(this=on.copy()), expression=equal))
    return render(tree)


def _check(bucket: TimeBuckets) -> None:
    if bucket.view == bucket.copied_view or not 0 <= bucket.upto_ms - bucket.from_ms <= bucket.width_ms:
        raise SbonError("bad-inputs", "a row would reach more than two time buckets", where=f"in{bucket.copied_view}")


def _joins(select: exp.Select) -> Iterator[tuple[frozenset[int], exp.Join]]:
    """Yield the SELECT's join with its views, if both of its sides are views."""
    source, joins = select.args.get("from_"), select.args.get("joins") or []
    sides = [join.this for join in [source, *joins] if join is not None]
    if len(sides) == 2 and all(isinstance(side, exp.Table) for side in sides):
        yield frozenset(int(side.name.removeprefix("in")) for side in sides), joins[0]

"""Interval joins on Spark: over time buckets, or over blocks of rows (:mod:`blocks <sbon_node.engine.spark.operators.blocks>`).

The reader gives blocks instead of rows. Spark joins blocks whose times are within reach of each other, and keeps them in its
state until the watermark releases them; a Python function finds the pairs of rows, and the fragment runs over these pairs with
its whole condition. A row is in one block, so no pair comes twice.
"""

from collections.abc import Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from sqlglot import exp

from sbon_node.base.arrow_without_pandas import show_pandas
from sbon_node.engine.spark.operators.blocks import BLOCK, FIRST, LAST, PART, BlockedJoin, PairFinder
from sbon_node.engine.spark.operators.source import arrow_schema
from sbon_node.planning.sql.relations.logical import LEFT, RIGHT, column, conjuncts
from sbon_node.planning.sql.syntax.dialect import parse, render
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import OperatorSpec, TimeBuckets
from sbon_protocol.errors import SbonError

PAIRS = "pairs"
"""The view of pairs, with a struct for the row of each side."""
LEAST_SPAN_MS = 60_000
"""Least span of a block in milliseconds. Rows of short intervals are otherwise in blocks of few rows."""
BYTES_OF_A_BATCH = "16m"
"""Bytes of blocks that Spark hands to Python at once, by its setting ``spark.sql.execution.arrow.maxBytesPerBatch``."""
_COMPARABLE = ("string", "bigint", "int", "smallint", "tinyint", "date", "timestamp", "binary", "decimal")
"""Types of keys that are equal exactly if their Arrow values are. Those of floats are not: -0.0 equals 0.0."""


def blocked_join(spec: OperatorSpec) -> BlockedJoin | None:
    """Return the operator's join in blocks, if it may have blocks.

    It is an inner join with time buckets by the inputs' event times, with a plain column of either side as equal keys, and no
    other part of the fragment has state. A skipped row must be skipped once, not with each of its partners.
    """
    if not spec.blocks or spec.reader != "partitioned" or len(spec.buckets) != 1 or spec.on_error == "skip":
        return None
    views, (bucket,) = spec.views(), spec.buckets
    sides = _sides(parse(spec.fragment)[0])
    if sides is None or len(views) != 2 or set(sides) != {bucket.view, bucket.copied_view}:
        return None
    of_view = {bucket.view: bucket.time, bucket.copied_view: bucket.copied_time}
    times = of_view[sides[0]], of_view[sides[1]]
    if any(one.event_time != of_view[one.view] for one in spec.inputs):
        return None
    keys = _keys(parse(spec.fragment)[0], views[sides[0]][0][1].schema, views[sides[1]][0][1].schema)
    if not keys:
        return None
    least_ms, most_ms = (bucket.from_ms, bucket.upto_ms) if bucket.view == sides[0] else (-bucket.upto_ms, -bucket.from_ms)
    return BlockedJoin(
        views=sides,
        times=times,
        keys=keys,
        least_us=least_ms * 1000,
        most_us=most_ms * 1000,
        span_us=max(LEAST_SPAN_MS, most_ms - least_ms) * 1000,
    )


def _sides(tree: exp.Expr) -> tuple[int, int] | None:
    """Return the left and the right view of a fragment that is an inner join of two views, and nothing else."""
    joins = tree.args.get("joins") or []
    if not isinstance(tree, exp.Select) or len(joins) != 1 or len(list(tree.find_all(exp.Select))) != 1 or tree.args.get("group"):
        return None
    sides = [tree.args["from_"].this, joins[0].this]
    is_inner = not joins[0].side and not joins[0].kind and isinstance(joins[0].args.get("on"), exp.Expr)
    if not is_inner or not all(isinstance(side, exp.Table) for side in sides):
        return None
    if [side.alias_or_name for side in sides] != [LEFT, RIGHT] or any(
        column.table not in (LEFT, RIGHT) for column in tree.find_all(exp.Column)
    ):
        return None
    left, right = (int(side.name.removeprefix("in")) for side in sides)
    return left, right


def _keys(tree: exp.Expr, left: Schema, right: Schema) -> tuple[tuple[str, str], ...]:
    """Return the columns of both sides that the join's condition compares, of the same comparable type."""
    types = {LEFT: {one.name: one.type for one in left}, RIGHT: {one.name: one.type for one in right}}
    keys = []
    for condition in conjuncts(tree.args["joins"][0].args["on"]):
        sides = (condition.this, condition.expression) if isinstance(condition, exp.EQ) else ()
        columns = {side.table: side.name for side in sides if isinstance(side, exp.Column)}
        if set(columns) == {LEFT, RIGHT}:
            of_both = {types[side].get(name, "") for side, name in columns.items()}
            if len(of_both) == 1 and of_both.pop().partition("(")[0] in _COMPARABLE:
                keys.append((columns[LEFT], columns[RIGHT]))
    return tuple(keys)


def over_pairs(fragment: str) -> str:
    """Return the fragment over the view of pairs: the join's condition is one of its rows."""
    tree = parse(fragment)[0]
    (join,) = tree.args["joins"]
    conditions = [join.args["on"], *([where.this] if (where := tree.args.get("where")) is not None else [])]
    tree.set("joins", None)
    tree.set("from_", exp.From(this=exp.Table(this=exp.Identifier(this=PAIRS))))
    tree.set("where", exp.Where(this=exp.and_(*conditions, dialect="spark")))
    return render(tree)


def pairs(join: BlockedJoin, blocks: tuple[DataFrame, DataFrame], rows: tuple[StructType, StructType]) -> DataFrame:
    """Return the pairs of rows whose keys are equal and whose times are within the interval, as structs ``in0`` and ``in1``.

    Spark releases a block by the times of the first rows alone, so the bounds between them allow for the span of a block. The
    bounds between first and last rows are of whole numbers: Spark would also release blocks by those of times.
    """
    session = blocks[0].sparkSession
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", BYTES_OF_A_BATCH)
    left, right = blocks[0].alias("l"), blocks[1].alias("r")
    first, other = f"l.`{_quoted(join.times[0])}`", f"r.`{_quoted(join.times[1])}`"
    conditions = (
        f"l.`{PART}` = r.`{PART}`",
        f"{first} >= {other} - INTERVAL '{join.span_us - join.least_us} microseconds'",
        f"{first} <= {other} + INTERVAL '{join.span_us + join.most_us} microseconds'",
        f"l.`{LAST}` >= r.`{FIRST}` + {join.least_us}L",
        f"l.`{FIRST}` <= r.`{LAST}` + {join.most_us}L",
    )
    joined = left.join(right, f.expr(" AND ".join(conditions)))
    finder = PairFinder(join, (arrow_schema(rows[0]), arrow_schema(rows[1])))
    show_pandas()
    chosen = joined.select(f.col(f"l.`{BLOCK}`").alias(LEFT), f.col(f"r.`{BLOCK}`").alias(RIGHT))
    return chosen.mapInArrow(lambda batches: finder.joined(batches), StructType().add(LEFT, rows[0]).add(RIGHT, rows[1]))


def ddl_of_blocks(time: str) -> str:
    """Return the columns of blocks whose first rows have these times."""
    return f"`{_quoted(time)}` timestamp, `{PART}` bigint, `{FIRST}` bigint, `{LAST}` bigint, `{BLOCK}` binary"


def _quoted(name: str) -> str:
    return name.replace("`", "``")


# -- Time buckets: a further column of two views, and the equality of both in their join -------------------------------

BUCKET = "sbon bucket"
"""The column of a row's bucket; no stream can have a column of this name."""


def with_bucket(rows: DataFrame, view: int, buckets: Sequence[TimeBuckets]) -> DataFrame:
    """Return a view's rows with their buckets, if a join compares them.

    The copied rows have a row for each bucket that they reach, which is one or two. A row without a time is in no bucket, and so
    it has no partner, as without buckets.
    """
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
    return f.expr(f"(unix_micros(`{_quoted(time)}`) + {shift_ms * 1000}L) div {buckets.width_ms * 1000}L")


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

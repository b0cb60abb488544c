"""Interval joins in time buckets: the same pairs as DuckDB's join, whatever the bounds and the width."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import msgspec
import pyarrow as pa
import pytest

from sbon_node.engine.spark.operators.interval_joins import with_equal_buckets
from sbon_node.planning.sql.planner import plan_query
from sbon_protocol.api.operators import OperatorSpec, TimeBuckets
from sbon_protocol.errors import SbonError
from tests.planning.sql.batch import Batch
from tests.planning.sql.test_time_buckets import catalog, joined

US = 1_000_000
EDGES = (0, -1, 1, US, -US, 10 * US, -10 * US, 10 * US - 1)
BOUNDS = (
    "b.ts BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts",
    "b.ts > a.ts AND b.ts < a.ts + INTERVAL '10' SECOND",
    "b.ts BETWEEN a.ts - INTERVAL '7' SECOND AND a.ts + INTERVAL '-2' SECOND",
    "a.ts - INTERVAL '1' MINUTE <= b.ts AND b.ts + INTERVAL '20' SECOND <= a.ts",
    "b.ts >= a.ts - INTERVAL '1' MILLISECOND AND b.ts <= a.ts + INTERVAL '3' MILLISECOND",
    "date_trunc('second', b.ts) BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts",
)
KINDS = ("", "LEFT", "RIGHT", "LEFT SEMI")


def table(rng: random.Random, rows: int = 300) -> pa.Table:
    """Times within a minute around 1970, on the edges of buckets and of seconds more often than elsewhere."""

    def time() -> int | None:
        if rng.random() < 0.05:
            return None
        at = rng.choice(EDGES) if rng.random() < 0.3 else rng.randrange(-30 * US, 30 * US)
        return at + rng.choice((0, 0, 1, -1, 5 * US, -5 * US))

    times = pa.array([time() for _ in range(rows)], pa.timestamp("us", "UTC"))
    keys = pa.array([rng.choice(("x", "y", None)) for _ in range(rows)])
    return pa.table({"ts": times, "k": keys, "v": pa.array(range(rows), pa.int32())})


def answer(sql: str, tables: dict[str, pa.Table]) -> Counter[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, rows in tables.items():
            connection.register(name, rows)
        duck = sql.replace("LEFT SEMI", "SEMI")
        return Counter(tuple(row.values()) for row in connection.sql(duck).to_arrow_table().to_pylist())


@pytest.mark.live
@pytest.mark.one_part_per_commit("joins in buckets on Spark", parts=24)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(len(BOUNDS)))
async def test_the_pairs_are_those_of_duckdb(spark: Batch, number: int, kind: str) -> None:
    rng = random.Random(f"{number} {kind}")
    tables = {"a": table(rng), "b": table(rng)}
    columns = "a.ts, a.k, a.v" if "SEMI" in kind else "a.ts, a.k, a.v, b.ts AS other, b.v AS w"
    sql = joined(kind, BOUNDS[number]).replace("a.ts, a.k FROM", f"{columns} FROM").replace("a.ts, b.v FROM", f"{columns} FROM")
    expected = answer(sql, tables)
    for fewer in ("a", "b"):
        plan = await plan_query(sql, catalog(**{fewer: 1.0}), "q", spark.analyse)
        assert sum(len(one.buckets) for one in plan.operators) == 1
        assert Counter(spark.rows(plan, tables)) == expected


BUCKETS = TimeBuckets(view=0, time="ts", copied_view=1, copied_time="ts", from_ms=0, upto_ms=5000, width_ms=5000)
JOIN = "SELECT in0.ts FROM in0 JOIN in1 ON in0.k = in1.k"


def test_the_equality_joins_the_condition() -> None:
    assert with_equal_buckets(JOIN, ()) == JOIN
    equal = "in0.`sbon bucket` = in1.`sbon bucket`"
    assert with_equal_buckets(JOIN, (BUCKETS,)) == JOIN.replace("in0.k = in1.k", f"(in0.k = in1.k) AND {equal}")


@pytest.mark.parametrize(
    "changes",
    [{"width_ms": 4999}, {"upto_ms": -1}, {"copied_view": 0}, {"copied_view": 2}],
    ids=["too narrow", "no interval", "one view", "no such join"],
)
def test_buckets_that_do_not_fit_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(SbonError) as refused:
        with_equal_buckets(JOIN, (msgspec.structs.replace(BUCKETS, **changes),))
    assert refused.value.code == "bad-inputs"


def test_an_operator_from_before_buckets_continues_without_them() -> None:
    stored = {"id": "q.o1", "query": "q", "fragment": JOIN, "inputs": [], "schema": []}
    assert msgspec.convert(stored, OperatorSpec).buckets == ()

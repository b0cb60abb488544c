"""Filters and groups that readers compute in Arrow have Spark's results, also for NULL, NaN, negative times and overflows."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from sbon_node.engine.arrow.compile import read_plans
from sbon_node.engine.arrow.evaluate import OVERFLOW, ReadPlan, decoded, encoded, read
from sbon_node.engine.spark.operators.failure_reports import why_ended
from sbon_node.model.schema import parse_schema, to_arrow
from sbon_node.planning.sql.planner import plan_query
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.operators import OnError, OperatorSpec
from sbon_protocol.api.plan import Plan
from tests.planning.sql.batch import Batch

pytestmark = pytest.mark.live

SCHEMA = parse_schema(
    "ts timestamp, name string, account bigint, small int, tiny tinyint, price double, ratio float, day date, flag boolean,"
    " cost decimal(10,2), noted timestamp"
)
STREAM = StreamDeclaration(name="t", schema=SCHEMA, event_time="ts")
SEED, ROWS = 18, 3000
HOUR = "window(ts, '1 hour')"


def entry(*, unpaced: bool = True) -> CatalogEntry:
    source = SourceDeclaration(stream="t", name="s", node="n", connector="file", rows_s=1e5, row_bytes=60, unpaced=unpaced)
    return CatalogEntry(declaration=STREAM, sources=(source,))


def hostile(seed: int = SEED, rows: int = ROWS) -> pa.Table:
    """Rows with every kind of value that Arrow and Spark might treat differently. Sums of floats do not depend on the order."""
    rng = random.Random(seed)
    begin = datetime(1969, 12, 31, 20, tzinfo=UTC)
    prices = (math.nan, -0.0, 0.0, math.inf, None, 0.125, -7.5, 1e12)
    return pa.table(
        {
            "ts": [begin + timedelta(milliseconds=rng.choice((0, 3_600_000, rng.randrange(8 * 3_600_000)))) for _ in range(rows)],
            "name": [rng.choice(("a", "A", "", "ä", "zz", None, "a b")) for _ in range(rows)],
            "account": [rng.choice((None, -1, 0, 2**40, rng.randrange(-5, 5))) for _ in range(rows)],
            "small": [rng.choice((None, -(2**31), 2**31 - 1, rng.randrange(100))) for _ in range(rows)],
            "tiny": [rng.choice((None, -128, 127)) for _ in range(rows)],
            "price": [rng.choice(prices) if rng.random() < 0.3 else rng.randrange(800) / 8 for _ in range(rows)],
            "ratio": [rng.choice((None, math.nan, -0.5, 0.25)) for _ in range(rows)],
            "day": [rng.choice((None, date(1969, 12, 31), date(2020, 2, 29))) for _ in range(rows)],
            "flag": [rng.choice((None, True, False)) for _ in range(rows)],
            "cost": [rng.choice((None, Decimal(rng.randrange(1000)) / 8 * 4)) for _ in range(rows)],
            "noted": [rng.choice((None, begin + timedelta(seconds=rng.randrange(100)))) for _ in range(rows)],
        },
        schema=to_arrow(SCHEMA),
    )


def planned(sql: str, spark: Batch, on_error: OnError = "fail", *, unpaced: bool = True) -> Plan:
    catalog = {"t": entry(unpaced=unpaced)}
    return asyncio.run(plan_query(sql, catalog, "q", spark.analyse, decompose="always", on_error=on_error))


def first(plan: Plan) -> OperatorSpec:
    """The operator that reads the source."""
    return plan.operators[0].spec("q", {one.stream: "n" for operator in plan.operators for one in operator.inputs})


def by_arrow(plan: ReadPlan, table: pa.Table, frame_rows: int = 700) -> pa.Table:
    """The rows after a plan that has passed through its text, over several frames."""
    through = decoded(encoded(plan))
    assert through == plan
    columns = table.select([column.name for column in plan.columns])
    batches = list(read(through, columns.combine_chunks().to_batches(max_chunksize=frame_rows)))
    return pa.Table.from_batches(batches) if batches else columns.slice(0, 0)


def by_spark(spark: Batch, plan: Plan, operators: int, table: pa.Table) -> list[tuple[object, ...]]:
    part = plan.operators[:operators]
    return spark.rows(
        Plan(
            text="",
            sources=plan.sources,
            operators=part,
            outputs=(part[-1].id,),
            schema=part[-1].schema,
            event_time=plan.event_time,
        ),
        {"s": table},
    )


def comparable(rows: Sequence[Sequence[object]]) -> list[str]:
    """Rows as sorted texts; 0 and -0 are equal, which one an extreme shows depends on the order."""
    return sorted(repr([0.0 if value == 0 and isinstance(value, float) else value for value in row]) for row in rows)


def values(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


GROUPED = [
    f"SELECT window.start AS s, name, count(*) AS n FROM t GROUP BY {HOUR}, name",
    "SELECT window.end AS e, count(*) AS n, count(price) AS m FROM t GROUP BY window(ts, '7 minutes', '7 minutes', '3 minutes')",
    f"SELECT window.start AS s, min(price) AS a, max(price) AS b, sum(price) AS c, avg(price) AS d FROM t GROUP BY {HOUR}",
    f"SELECT window.start AS s, tiny, min(ratio) AS a, max(ratio) AS b, sum(ratio) AS c FROM t GROUP BY {HOUR}, tiny",
    f"SELECT window.start AS s, flag, sum(small) AS a, sum(tiny) AS b, sum(account) AS c FROM t GROUP BY {HOUR}, flag",
    f"SELECT window.start AS s, day, account, min(noted) AS a, max(day), max(small) AS c FROM t GROUP BY {HOUR}, day, account",
    f"SELECT window.start AS s, noted, sum(price * small) AS a, avg(small) AS b FROM t GROUP BY {HOUR}, noted",
    f"SELECT window.start AS s, sum(price) AS a FROM t WHERE name > 'A' AND small >= 5 AND price <> 3 GROUP BY {HOUR}",
    f"SELECT window.start AS s, count(*) AS n FROM t WHERE account BETWEEN -2 AND 3 AND name IS NOT NULL GROUP BY {HOUR}",
    f"SELECT window.start AS s, name, count(*) AS n FROM t GROUP BY {HOUR}, name HAVING count(*) > 3 AND name <> 'a'",
]


@pytest.mark.one_part_per_commit("groups in Arrow and on Spark", parts=2)
@pytest.mark.parametrize("sql", GROUPED)
def test_groups_in_arrow_are_those_of_spark(spark: Batch, sql: str) -> None:
    plan, table = planned(sql, spark), hostile()
    (read_plan,) = read_plans(first(plan))
    assert read_plan is not None
    assert read_plan.grouping is not None
    groups = by_arrow(read_plan, table)
    assert groups.schema.names == [column.name for column in first(plan).schema]
    spark_groups = by_spark(spark, plan, 1, table)
    assert len(spark_groups) > 1
    assert comparable(values(groups.cast(to_arrow(first(plan).schema)))) == comparable(spark_groups)


@pytest.mark.parametrize(
    "grouped",
    [
        f"sum(cost) AS a FROM t GROUP BY {HOUR}",
        f"max(name) AS a FROM t GROUP BY {HOUR}",
        f"count(*) AS a FROM t GROUP BY {HOUR}, price",
        f"count(*) AS a FROM t GROUP BY {HOUR}, upper(name)",
        "count(*) AS a FROM t GROUP BY window(ts, '1 hour', '30 minutes')",
        f"sum(small + 1) AS a FROM t GROUP BY {HOUR}",
        f"bool_and(flag) AS a FROM t GROUP BY {HOUR}",
        f"approx_count_distinct(name) AS a FROM t GROUP BY {HOUR}",
        f"count(*) AS a FROM t WHERE name LIKE 'a%' GROUP BY {HOUR}",
    ],
)
def test_other_groups_are_left_to_spark(spark: Batch, grouped: str) -> None:
    spec = first(planned(f"SELECT window.start AS s, {grouped}", spark))
    assert spec.groups_per_batch
    assert all(plan is None or plan.grouping is None for plan in read_plans(spec))


CONDITIONS = [
    "price > 3.5", "price >= 3", "price < 3", "price <= 0", "price = 0", "price <> 0", "5 < price", "price > -1e3",
    "name = 'a'", "name <> 'a'", "name < 'b'", "name >= 'Ä'", "'a' <= name", "account > 3", "account = 1099511627776",
    "small >= 2147483647", "small <> -2147483648", "tiny < 127", "tiny < 1000", "account BETWEEN -3 AND 3",
    "price BETWEEN 1 AND 5", "name IS NOT NULL", "small > 5 AND price < 50 AND name <> ''", "(account > 3)",
]  # fmt: skip


@pytest.mark.one_part_per_commit("filters in Arrow and on Spark", parts=2)
@pytest.mark.parametrize("part", range(2))
def test_filters_in_arrow_keep_the_rows_that_spark_keeps(spark: Batch, part: int) -> None:
    table, kept = hostile(), 0
    for condition in CONDITIONS[part::2]:
        plan = planned(f"SELECT ts, name, account, small, tiny, price FROM t WHERE {condition}", spark)
        (read_plan,) = read_plans(first(plan))
        assert read_plan is not None
        assert read_plan.condition is not None, condition
        rows = by_arrow(read_plan, table).select([column.name for column in first(plan).schema])
        spark_rows = by_spark(spark, plan, 1, table)
        kept += len(spark_rows)
        assert comparable(values(rows)) == comparable(spark_rows), condition
    assert kept > ROWS


@pytest.mark.parametrize(
    "condition",
    [
        "ratio > 0.1",
        "small > 1.5",
        "name LIKE 'a%'",
        "upper(name) = 'A'",
        "price > 3 OR flag",
        "NOT price > 3",
        "flag",
        "name = 'a\\\\b'",
        "1 / small > 0 AND price > 3",
    ],
)
def test_other_conditions_are_left_to_spark(spark: Batch, condition: str) -> None:
    for plan in read_plans(first(planned(f"SELECT ts FROM t WHERE {condition}", spark))):
        assert plan is not None
        assert plan.condition is None


def test_readers_decode_only_the_columns_that_are_used(spark: Batch) -> None:
    (plan,) = read_plans(first(planned("SELECT ts, price * 2 AS p FROM t WHERE small + 1 > 3", spark)))
    assert plan is not None
    assert [column.name for column in plan.columns] == ["ts", "small", "price"]
    assert read_plans(first(planned("SELECT * FROM t", spark))) == [None]
    (plan,) = read_plans(first(planned(f"SELECT window.start AS s, count(*) AS n FROM t GROUP BY {HOUR}", spark)))
    assert plan is not None
    assert [column.name for column in plan.columns] == ["ts"]


def test_rows_of_a_query_that_skips_errors_reach_spark_whole(spark: Batch) -> None:
    plan = planned("SELECT price FROM t WHERE small > 5 AND 1 / small > 0", spark, "skip")
    assert read_plans(first(plan)) == [None]
    assert not first(planned(GROUPED[0], spark, "skip")).groups_per_batch


def test_groups_of_paced_sources_keep_state(spark: Batch) -> None:
    spec = first(planned(GROUPED[0], spark, unpaced=False))
    assert spec.has_state
    assert not spec.groups_per_batch
    assert all(plan is not None and plan.grouping is None for plan in read_plans(spec))


def test_a_sum_that_overflows_is_an_error_of_the_rows(spark: Batch) -> None:
    (plan,) = read_plans(first(planned(f"SELECT window.start AS s, sum(account) AS a FROM t GROUP BY {HOUR}", spark)))
    assert plan is not None
    table = hostile(rows=4)
    fits = table.set_column(2, "account", [pa.array([2**62, 2**62 - 1, -(2**62), 2**62])])
    same_time = pa.array([table["ts"][0].as_py()] * 4, pa.timestamp("us", tz="UTC"))
    fits = fits.set_column(0, "ts", [same_time])
    assert by_arrow(plan, fits)["sum"].to_pylist() == [2**63 - 1]
    over = fits.set_column(2, "account", [pa.array([2**62, 2**62, -1, 1])])
    with pytest.raises(OverflowError) as raised:
        by_arrow(plan, over)
    assert str(raised.value) == OVERFLOW
    assert why_ended(raised.value).code == "bad-rows"

"""Decomposed aggregates give the same rows as undivided ones; the planner decomposes where the links then carry less."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from sbon_node.model.schema import parse_schema, to_arrow
from sbon_node.planning.sql.planner import Decompose, plan_query
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.plan import Plan
from tests.planning.sql.batch import Batch

pytestmark = pytest.mark.live
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("divided aggregates on Spark")
ONE_PART = pytest.mark.one_part_per_commit("divided aggregates on Spark", parts=12)

SITES = ("ada", "bob", "cyd")
SCHEMA = parse_schema(
    "ts timestamp, k string, i int, l bigint, s smallint, d double, far double, f float, m decimal(10,2), b boolean, t string"
)
KEYED = "FROM x GROUP BY window(ts, '1 hour'), k"

ALIKE = {
    "sums and averages": "count(*), count(i), sum(i), sum(l), sum(d), sum(f), try_sum(s), count_if(b), sum(m), try_sum(m),"
    " sum(m * 2), avg(i), avg(l), mean(s), avg(d), avg(f), avg(i + d), sum(CASE WHEN b THEN i ELSE l END)",
    "extremes and logic": "min(t), max(m), min(ts), max(d), min(k), max(i) - min(i), bool_and(b), any(b), bool_or(i > 3),"
    " bit_xor(i), bit_or(l), bit_and(s), 100 * sum(i) / count(*), round(avg(d), 3), coalesce(max(i), 0) + count(*)",
    "spreads and distinct values": "stddev(i), stddev_pop(s), variance(i), var_pop(i), std(s), var_samp(s),"
    " approx_count_distinct(i), approx_count_distinct(l), approx_count_distinct(t), approx_count_distinct(s),"
    " approx_count_distinct(l + i)",
    "names that meet": "avg(i) AS avg_sum, sum(i) AS avg_count, avg(l) AS avg_sum_1",
}
FORMS = {
    "one row at most": "SELECT window.start, k, stddev(i), variance(s), avg(d), sum(m) FROM x WHERE i = 7"
    " GROUP BY window(ts, '1 minute'), k",
    "only nulls": "SELECT window.start, avg(i), sum(m), stddev(i), approx_count_distinct(i), count(i) FROM x WHERE i IS NULL"
    " GROUP BY window(ts, '1 hour')",
    "sliding windows": "SELECT window.start, window.end, avg(d), count(*) FROM x"
    " GROUP BY window(ts, '1 hour', '20 minutes', '5 minutes')",
    "HAVING": "SELECT window.start, k, sum(i) AS n FROM x GROUP BY window(ts, '1 hour'), k"
    " HAVING avg(d) > 0 AND approx_count_distinct(l) > 3",
    "a key named like a part": "SELECT window.start, k AS avg_sum, avg(i) FROM (SELECT ts, k AS avg_count, i, k FROM x)"
    " GROUP BY window(ts, '1 hour'), k, avg_count",
    "a union": "SELECT window.start, sum(v) FROM"
    " (SELECT ts, i AS v FROM x WHERE b UNION ALL SELECT ts, i * 2 AS v FROM x WHERE NOT b)"
    " GROUP BY window(ts, '1 hour')",
    "an aggregate of aggregates": "SELECT window.start, max(n) FROM"
    " (SELECT window, k, sum(i) AS n FROM x GROUP BY window(ts, '10 minutes'), k)"
    " GROUP BY window",
}
QUERIES = {name: f"SELECT window.start, k, {aggregates} {KEYED}" for name, aggregates in ALIKE.items()} | FORMS
SAMPLE = (*ALIKE, "one row at most", "sliding windows")

WHOLE = {
    "sums whose parts may overflow where the whole does not": f"SELECT window.start, try_sum(l) {KEYED}",
    "an average of decimals, which rounds": f"SELECT window.start, avg(m) {KEYED}",
    "a sketch of what sketches do not take": f"SELECT window.start, approx_count_distinct(d) {KEYED}",
    "what hangs on pairs": f"SELECT window.start, corr(d, f) {KEYED}",
    "one of several aggregates cannot be decomposed": f"SELECT window.start, count(*), skewness(d) {KEYED}",
    "sessions": "SELECT session_window.start, count(*) FROM x GROUP BY session_window(ts, '5 minutes')",
    "no aggregate": "SELECT DISTINCT window(ts, '1 hour').start AS w, k FROM x",
}


def catalog(rows_s: float = 100.0) -> dict[str, CatalogEntry]:
    sources = tuple(
        SourceDeclaration(stream="x", name=site, node=site, connector="file", rows_s=rows_s, row_bytes=100.0) for site in SITES
    )
    declaration = StreamDeclaration(name="x", schema=SCHEMA, event_time="ts")
    return {"x": CatalogEntry(declaration=declaration, sources=sources)}


def table(seed: int, rows: int = 400) -> pa.Table:
    rng = random.Random(seed)
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)

    def perhaps(value: object) -> object:
        return None if rng.random() < 0.15 else value

    made = [
        (
            start + dt.timedelta(seconds=rng.randrange(7200)),
            rng.choice("AB"),
            perhaps(rng.randrange(-50, 50)),
            perhaps(rng.randrange(10**12)),
            perhaps(rng.randrange(-9, 9)),
            perhaps(1e3 + rng.random()),
            1.7e9 + rng.random(),
            perhaps(rng.randrange(100) / 8),
            perhaps(Decimal(rng.randrange(-(10**6), 10**6)) / 100),
            perhaps(rng.random() < 0.5),
            perhaps(str(rng.randrange(5))),
        )
        for _ in range(rows)
    ]
    schema = to_arrow(SCHEMA)
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(zip(*made, strict=True), schema, strict=True)], schema=schema
    )


TABLES = {site: table(seed) for seed, site in enumerate(SITES)}


async def plan(spark: Batch, sql: str, decompose: Decompose, rows_s: float = 100.0) -> Plan:
    return await plan_query(sql, catalog(rows_s), "q", spark.analyse, decompose=decompose)


def types(schema: Schema) -> list[str]:
    return [column.type for column in schema]


def alike(one: object, other: object, relative: float = 1e-12) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=relative, abs_tol=1e-9)
    return one == other


@pytest.mark.parametrize("name", [pytest.param(name, marks=ONE_PART if name in SAMPLE else ONLY_IN_TEST_ALL) for name in QUERIES])
async def test_in_parts_the_result_is_the_same(spark: Batch, name: str) -> None:
    never, always = await plan(spark, QUERIES[name], "never"), await plan(spark, QUERIES[name], "always")
    assert not any(one.inputs[0].event_time for one in never.operators if ".b" in one.id)
    assert [one.inputs[0].event_time for one in always.operators if ".b" in one.id].count("ts") >= len(SITES)
    assert types(never.schema) == types(always.schema)
    whole, parts = sorted(spark.rows(never, TABLES), key=repr), sorted(spark.rows(always, TABLES), key=repr)
    assert len(whole) == len(parts) > 0
    for one, other in zip(whole, parts, strict=True):
        assert all(alike(a, b) for a, b in zip(one, other, strict=True)), (one, other)


@pytest.mark.parametrize("name", WHOLE)
async def test_other_aggregates_stay_undivided(spark: Batch, name: str) -> None:
    always = await plan(spark, WHOLE[name], "always")
    assert [one.inputs[0].event_time for one in always.operators if ".b" in one.id] == [""] * len(SITES)


@pytest.mark.one_part_per_commit("texts on Spark", parts=6)
async def test_the_cost_decides(spark: Batch) -> None:
    """Ten groups an hour of a stream of a hundred rows a second are worth it; of ten rows an hour they are not."""
    sql = f"SELECT window.start, k, avg(d) {KEYED}"
    busy, quiet = await plan(spark, sql, "auto"), await plan(spark, sql, "auto", rows_s=10 / 3600)
    assert len(busy.operators) == len(quiet.operators) == len(SITES) + 1
    assert all("GROUP BY" in one.fragment for one in busy.operators)
    assert ["GROUP BY" in one.fragment for one in quiet.operators] == [False] * len(SITES) + [True]
    assert busy.carried_bytes_s < 0.8 * (await plan(spark, sql, "never")).carried_bytes_s


async def test_an_aggregate_stays_undivided_if_its_rows_travel_anyway(spark: Batch) -> None:
    """Where a join needs the same rows, partial aggregates spare nothing."""
    sql = (
        "SELECT a.k, a.n, b.d FROM (SELECT window.end AS e, k, count(*) AS n FROM x GROUP BY window(ts, '10 seconds'), k) a"
        " JOIN x b ON a.k = b.k AND b.ts BETWEEN a.e - INTERVAL 10 SECONDS AND a.e"
    )
    chosen = await plan(spark, sql, "auto")
    assert [one.inputs[0].event_time for one in chosen.operators if ".b" in one.id].count("ts") == 0


@pytest.mark.one_part_per_commit("texts on Spark", parts=6)
async def test_a_variance_of_fractions_is_decomposed_only_on_request(spark: Batch) -> None:
    """Its error grows with the square of mean over deviation: about 1e-10 here, and all of it in ``far``, a million times off."""
    near, far = f"SELECT window.start, k, stddev(d) {KEYED}", f"SELECT window.start, k, stddev(far) {KEYED}"
    for sql in (near, far):
        assert (await plan(spark, sql, "auto")).operators == (await plan(spark, sql, "never")).operators
    whole = sorted(spark.rows(await plan(spark, near, "never"), TABLES), key=repr)
    parts = sorted(spark.rows(await plan(spark, near, "always"), TABLES), key=repr)
    assert all(alike(one[2], other[2], 1e-8) for one, other in zip(whole, parts, strict=True))

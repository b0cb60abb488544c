"""Which joins are divided by time buckets, and how."""

from __future__ import annotations

import pytest

from sbon_node.model.schema import parse_schema
from sbon_node.planning.sql.planner import plan_query
from sbon_node.planning.sql.stages.estimate import OPERATOR_MEMORY_MB
from sbon_node.planning.sql.syntax.dialect import parse
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column, Schema
from sbon_protocol.api.operators import TimeBuckets
from sbon_protocol.errors import SbonError

SCHEMA = "ts timestamp, k string, v int"
WITHIN = "b.ts BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts"
RIGHT = (0, 1, 0, 5000)
"""The right side's rows are copied: their partners are up to five seconds later."""
LEFT = (1, 0, -5000, 0)


def catalog(**rates: float) -> dict[str, CatalogEntry]:
    found = {}
    for name in ("a", "b", "c"):
        source = SourceDeclaration(stream=name, name=name, node="n", connector="file", rows_s=rates.get(name, 10.0))
        declaration = StreamDeclaration(name=name, schema=parse_schema(SCHEMA), event_time="ts")
        found[name] = CatalogEntry(declaration=declaration, sources=(source,))
    return found


async def analyse(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
    names = [one.alias_or_name for one in parse(fragment)[0].expressions]
    return tuple(Column(name, "string" if name in ("k", "v") else "timestamp") for name in names)


async def buckets(sql: str, **rates: float) -> list[TimeBuckets]:
    plan = await plan_query(sql, catalog(**rates), "q", analyse)
    assert all(one.spec("q", dict.fromkeys([i.stream for i in one.inputs], "n")).buckets == one.buckets for one in plan.operators)
    return [bucket for operator in plan.operators for bucket in operator.buckets]


def shape(one: TimeBuckets) -> tuple[int, int, int, int]:
    return one.view, one.copied_view, one.from_ms, one.upto_ms


def joined(kind: str, bound: str = WITHIN) -> str:
    columns = "a.ts, a.k" if "SEMI" in kind else "a.ts, b.v"
    return f"SELECT {columns} FROM a {kind} JOIN b ON a.k = b.k AND {bound}"


@pytest.mark.parametrize(
    "kind, rates, copied",
    [
        ("", {}, RIGHT),
        ("", {"a": 1.0}, LEFT),
        ("", {"b": 1.0}, RIGHT),
        ("LEFT", {}, RIGHT),
        ("LEFT", {"a": 1.0}, RIGHT),
        ("RIGHT", {}, LEFT),
        ("RIGHT", {"b": 1.0}, LEFT),
        ("LEFT SEMI", {"a": 1.0}, RIGHT),
    ],
)
async def test_the_side_with_fewer_rows_is_copied_but_none_that_is_preserved(
    kind: str, rates: dict[str, float], copied: tuple[int, int, int, int]
) -> None:
    (one,) = await buckets(joined(kind), **rates)
    assert shape(one) == copied
    assert (one.time, one.copied_time, one.width_ms) == ("ts", "ts", 10_000)


@pytest.mark.parametrize(
    "bound, from_ms, upto_ms",
    [
        ("b.ts > a.ts AND b.ts < a.ts + INTERVAL '10' SECOND", -10_000, 0),
        ("b.ts BETWEEN a.ts + INTERVAL '2' SECOND AND a.ts + INTERVAL '3' SECOND", -3000, -2000),
        ("a.ts - INTERVAL '1' HOUR <= b.ts AND b.ts + INTERVAL '5' MINUTE <= a.ts", 300_000, 3_600_000),
        ("b.ts BETWEEN a.ts - INTERVAL '7' SECOND AND a.ts + INTERVAL '-2' SECOND", 2000, 7000),
        ("date_trunc('second', b.ts) BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts", 0, 2000),
        ("b.ts >= a.ts - INTERVAL '9' SECOND AND b.ts >= a.ts - INTERVAL '5' SECOND AND b.ts <= a.ts", 0, 5000),
    ],
)
async def test_partners_lie_between_two_shifts_of_a_copied_row(bound: str, from_ms: int, upto_ms: int) -> None:
    (one,) = await buckets(joined("", bound))
    assert (one.from_ms, one.upto_ms) == (from_ms, upto_ms)
    assert one.width_ms >= upto_ms - from_ms


@pytest.mark.parametrize(
    "sql",
    [
        joined("FULL"),
        joined("", "b.ts = a.ts"),
        joined("", "date_trunc('hour', b.ts) = date_trunc('hour', a.ts)"),
        joined("", "b.ts BETWEEN a.ts + INTERVAL '1' SECOND AND a.ts + INTERVAL '1' SECOND"),
        joined("", "b.ts > a.ts - INTERVAL '1' SECOND AND b.ts <= a.ts - INTERVAL '1' MICROSECOND"),
    ],
)
async def test_other_joins_stay_as_they_are(sql: str) -> None:
    assert await buckets(sql) == []


@pytest.mark.parametrize("bound", ["b.ts >= a.ts", "b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' MONTH"])
async def test_bounds_without_a_length_are_no_bounds(bound: str) -> None:
    with pytest.raises(SbonError, match="no bound in time"):
        await buckets(joined("", bound))


async def test_each_join_of_a_chain_has_its_own() -> None:
    near = "INTERVAL '5' SECOND"
    sql = f"SELECT a.ts, c.v FROM a JOIN b ON a.k = b.k AND {WITHIN} JOIN c ON a.k = c.k AND c.ts BETWEEN a.ts AND a.ts + {near}"
    assert [shape(one) for one in await buckets(sql)] == [RIGHT, (0, 1, -5000, 0)]


async def test_the_lowest_of_chained_outer_joins_has_buckets() -> None:
    near = "INTERVAL '5' SECOND"
    on = f"a.k = c.k AND c.ts BETWEEN a.ts AND a.ts + {near}"
    sql = f"SELECT a.ts, c.v FROM a LEFT JOIN b ON a.k = b.k AND {WITHIN} LEFT JOIN c ON {on}"
    assert [shape(one) for one in await buckets(sql)] == [RIGHT]


async def test_short_intervals_have_buckets_of_a_least_width() -> None:
    (one,) = await buckets(joined("", "b.ts BETWEEN a.ts - INTERVAL '1' MILLISECOND AND a.ts"))
    assert one.width_ms == 100


async def test_rows_are_not_copied_where_errors_are_skipped() -> None:
    """A copied row whose expression raises an error would be counted and kept twice."""
    plan = await plan_query(joined(""), catalog(), "q", analyse, on_error="skip")
    assert [operator.buckets for operator in plan.operators] == [()] * len(plan.operators)


async def test_a_bound_of_more_than_a_century_has_no_buckets() -> None:
    years = " - INTERVAL '3650' DAY" * 11
    assert await buckets(joined("", f"b.ts BETWEEN a.ts{years} AND a.ts")) == []


@pytest.mark.parametrize("kind, share", [("LEFT", 0.25), ("RIGHT", 0.25), ("FULL", 0.0)])
async def test_the_memory_of_an_operator_counts_copied_rows(kind: str, share: float) -> None:
    """Half of one side's rows are in two buckets; the sides are equal."""
    sources = catalog(a=1000.0, b=1000.0)
    copying, plain = [
        (await plan_query(joined(kind), sources, "q", analyse, on_error=on_error)).operators[-1].needs.memory_mb
        - OPERATOR_MEMORY_MB
        for on_error in ("fail", "skip")
    ]
    assert copying == pytest.approx((1 + share) * plain, abs=0.1)
    assert plain > 1.0

"""Estimates of every planned query of a file: finite, never negative, never less for more input; and measurements instead."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from sbon_node.model.frames import MAX_ROW_BYTES
from sbon_node.model.measurements import Measured, Measurement, SourcePace
from sbon_node.model.schema import parse_schema
from sbon_node.placement.model.from_plan import problem_of
from sbon_node.planning.sql.planner import plan_query
from sbon_node.planning.sql.relations.logical import Aggregate
from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.rewrite.pushdown import push_down
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages.cut import Stage, cut
from sbon_node.planning.sql.stages.estimate import Estimate, StreamEstimate, estimated, selectivity
from sbon_protocol.api.catalogue import MAX_ROWS_S, CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column, Schema
from sbon_protocol.api.plan import Plan, Rate
from tests.planning.sql.test_stages import CASES, CATALOG

STAGES: list[Stage] = []


def _collect(stage: Stage) -> None:
    for view in stage.views:
        for feed in view.feeds:
            if isinstance(feed.origin, Stage):
                _collect(feed.origin)
    STAGES.append(stage)


for _sql, _ in CASES:
    for _stage in cut(push_down(read_query(_sql, CATALOG, QuerySettings())), _sql):
        _collect(_stage)

ROWS_S = st.floats(0, MAX_ROWS_S)
BYTES = st.floats(0.1, MAX_ROW_BYTES)


def of(stage: Stage, rates: list[Rate], measured: Measurement | None = None) -> Estimate:
    schema: Schema = (Column("ts", "timestamp"), Column("name", "string"), Column("n", "bigint"))
    return estimated(stage.relation, [schema] * len(rates), [StreamEstimate(rate) for rate in rates], schema, measured)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Stage, list[Rate], list[Rate]]:
    """A stage, rates of its views, and rates that are nowhere less, of rows as large."""
    stage = draw(st.sampled_from(STAGES))
    less, more = [], []
    for _ in stage.views:
        low, high = sorted((draw(ROWS_S), draw(ROWS_S)))
        size = draw(BYTES)
        less.append(Rate(rows_s=low, bytes_s=low * size))
        more.append(Rate(rows_s=high, bytes_s=high * size))
    return stage, less, more


@given(
    inputs(), st.none() | st.builds(Measurement, rows_in=st.just(500), rows_out=st.integers(0, 5000), bytes_out=st.just(10**5))
)
def test_estimates_are_finite_never_negative_and_grow_with_the_input(
    case: tuple[Stage, list[Rate], list[Rate]], measured: Measurement | None
) -> None:
    stage, less, more = case
    low, high = of(stage, less, measured), of(stage, more, measured)
    for estimate in (low, high):
        figures = (
            estimate.rate.rows_s,
            estimate.rate.bytes_s,
            *(getattr(estimate.needs, n) for n in estimate.needs.__struct_fields__),
        )
        assert all(math.isfinite(figure) and 0 <= figure <= 1e16 for figure in figures)
        assert estimate.needs.bandwidth_bytes_s <= 1e15
    assert low.rate.rows_s <= high.rate.rows_s * (1 + 1e-9)


@given(inputs(), st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 200))
def test_a_measured_selectivity_and_row_size_are_taken_as_they_are(
    case: tuple[Stage, list[Rate], list[Rate]], rows_in: int, rows_out: int, size: int
) -> None:
    stage, rates, _ = case
    found = of(stage, rates, Measurement(rows_in=rows_in, rows_out=rows_out, bytes_out=rows_out * size))
    assert found.rate.rows_s == pytest.approx(min(MAX_ROWS_S, sum(rate.rows_s for rate in rates) * rows_out / rows_in))
    assert found.rate.bytes_s == pytest.approx(found.rate.rows_s * size)
    assert found.rate.measured


def test_every_kind_of_stage_is_among_them() -> None:
    assert len(STAGES) > 50
    assert {len(stage.views) for stage in STAGES} >= {1, 2}


SITES = ("a", "b")
SQL = "SELECT window.start AS s, count(*) AS n FROM numbers WHERE v > 5 GROUP BY window(ts, '1 minute')"
NUMBERS = CatalogEntry(
    declaration=StreamDeclaration(name="numbers", schema=parse_schema("ts timestamp, v double"), event_time="ts"),
    sources=tuple(SourceDeclaration(stream="numbers", name=s, node=s, connector="file", rows_s=100, row_bytes=50) for s in SITES),
)


async def planned(known: Measured | None = None, sql: str = SQL, entry: CatalogEntry = NUMBERS) -> Plan:
    asked = []

    async def recall(sources: object, signatures: object, columns: object) -> Measured:
        asked.append((sources, signatures))
        return known or Measured()

    async def analyse(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
        return (Column("s", "timestamp"), Column("n", "bigint"))

    plan = await plan_query(sql, {"numbers": entry}, "q", analyse, recall=recall, decompose="never")
    nodes = {planned.source.id: planned.source.node for planned in plan.sources}
    assert asked == [(nodes, [operator.signature for operator in plan.operators])]
    return plan


async def test_a_plan_takes_measurements_before_estimates_and_says_which_are_which() -> None:
    first = await planned()
    signatures = [operator.signature for operator in first.operators]
    known = Measured(
        operators={
            signatures[0]: Measurement(rows_in=1000, rows_out=900, bytes_out=9000),
            signatures[2]: Measurement(rows_in=600, rows_out=6, bytes_out=240),
        },
        sources={
            "source/numbers@1/a": SourcePace(rows_s=400.0, row_bytes=25.0),
            "source/numbers@1/b": SourcePace(row_bytes=30.0),
        },
    )
    again = await planned(known)
    assert [(s.rate.rows_s, s.rate.bytes_s, s.rate.measured) for s in again.sources] == [(400, 10_000, True), (100, 3000, True)]
    rates = [(o.rate.rows_s, o.rate.bytes_s, o.rate.measured) for o in again.operators]
    assert rates[0] == pytest.approx((360, 3600, True))
    assert rates[1] == pytest.approx((100 / 3, 100 / 3 * 16, False))
    assert rates[2] == pytest.approx(((360 + 100 / 3) / 100, (360 + 100 / 3) / 100 * 40, True))
    assert [o.estimate for o in again.operators] == [o.rate for o in first.operators] == [o.estimate for o in first.operators]
    edges = {edge.source: edge.rate_bytes_s for edge in problem_of(again, "home").edges}
    assert edges["q.b0"] == pytest.approx(3600)
    assert edges["source/numbers@1/a"] == pytest.approx(10_000)


@pytest.mark.parametrize(
    "measurement, operator, counts",
    [
        (Measurement(rows_in=99, rows_out=50, bytes_out=500), 0, False),
        (Measurement(rows_in=100, rows_out=0, bytes_out=0), 0, True),
        (Measurement(rows_in=10**6, rows_out=0, bytes_out=0), 2, False),
        (Measurement(rows_in=10**6, rows_out=1, bytes_out=20), 2, True),
    ],
    ids=["too few rows", "a filter may keep nothing", "nothing has left the state yet", "something has"],
)
async def test_measurements_over_too_few_rows_do_not_count(measurement: Measurement, operator: int, counts: bool) -> None:
    signature = (await planned()).operators[operator].signature
    plan = await planned(Measured(operators={signature: measurement}))
    assert plan.operators[operator].rate.measured is counts


async def test_a_condition_that_never_holds_has_an_estimate_too() -> None:
    plan = await planned(sql=SQL.replace("v > 5", "false"))
    assert [operator.rate.rows_s for operator in plan.operators] == [0, 0, 0]


def test_many_keys_have_an_estimate_too() -> None:
    """Ten to the power of their number is more than a float holds."""
    aggregates = [(stage, stage.relation.child) for stage in STAGES if isinstance(stage.relation.child, Aggregate)]
    assert any(aggregate.keys for _, aggregate in aggregates)
    for stage, aggregate in aggregates:
        many = replace(stage.relation, child=replace(aggregate, keys=aggregate.keys * 400))
        found = of(replace(stage, relation=many), [Rate(rows_s=10.0, bytes_s=100.0)] * len(stage.views))
        assert 0 < found.rate.rows_s < math.inf


@pytest.mark.parametrize(
    "condition, expected",
    [
        ("v = 1", 1 / 10),
        ("v > 1", 1 / 3),
        ("v BETWEEN 1 AND 2", 1 / 4),
        ("v = 1 AND v > 0", 1 / 30),
        ("v > 1 OR v < 0", 1 - (2 / 3) ** 2),
        ("NOT (v > 1 OR v < 0)", (2 / 3) ** 2),
        ("v IN (1, 2, 3)", 3 / 10),
    ],
)
def test_selectivities_are_those_of_selinger(condition: str, expected: float) -> None:
    assert selectivity(sqlglot.parse_one(condition, read="spark")) == pytest.approx(expected)

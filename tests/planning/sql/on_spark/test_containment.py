"""The rows of residuals by Spark, whose types, errors and order of values are those that count."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from sbon_node.model.schema import parse_schema, to_arrow
from sbon_node.planning.sql.relations.logical import Scan
from sbon_node.planning.sql.stages.cut import Stage
from sbon_node.planning.sql.stages.fragments import fragment_of
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column, Schema
from tests.planning.sql.batch import Batch
from tests.planning.sql.sharing.shared_stages import shared, signed

pytestmark = pytest.mark.live

SCHEMA = parse_schema(
    "ts timestamp, i int, l bigint, t tinyint, d double, f float, m decimal(10,2), n decimal(38,4), b boolean, s string, day date"
)
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
FILTERS = (
    "", "i > 0", "i > 2", "i >= 2", "i IN (1, 3)", "i = 3", "d > 0.1", "d >= 1", "d > 1e300", "m < 2.5", "m < 2", "s > 'b'",
    "s >= 'ba'", "ts >= '2024-01-01 00:30:00'", "ts >= TIMESTAMP '2024-01-01 01:00:00'", "day > DATE '2024-01-01'",
    "i BETWEEN 1 AND 3", "i NOT IN (1, 2)", "i <> 1", "l > 2.5", "l > 3", "i > 2 OR d > 1", "s LIKE 'b%' AND s > 'b'",
    "b", "i IS NOT NULL", "t > 100", "d < 0", "d <= -0.0",
)  # fmt: skip
PLAIN = tuple("SELECT ts, i, l, t, d, f, m, s, b, day FROM u" + (f" WHERE {one}" if one else "") for one in FILTERS)
AGGREGATES = (
    "count(*) AS n, sum(i) AS si, sum(t) AS st, count(i) AS ci, min(d) AS nd, max(d) AS xd, sum(m) AS sm,"
    " sum(d) AS sd, sum(f) AS sf, bool_and(b) AS lb, max(s) AS xs, min(day) AS ny, count_if(b) AS cb"
)
SOME = (
    "count(*) AS n, sum(m) AS sm", "avg(i) AS ai, sum(t) AS st", "sum(f) AS sf, sum(d) AS sd",
    "min(d) AS nd, max(d) AS xd, max(s) AS xs", "bool_and(b) AS lb, min(day) AS ny, count_if(b) AS cb",
)  # fmt: skip
WINDOWS = (
    "window(ts, '30 minutes')",
    "window(ts, '2 hours')",
    "window(ts, '1 hour', '30 minutes')",
    "window(ts, '1 hour', '1 hour', '30 minutes')",
)
FINE = f"SELECT window.start AS w, window.end AS e, s, i, b, {AGGREGATES} FROM u GROUP BY window(ts, '30 minutes'), s, i, b"
BY_STARTS = f"SELECT window.start AS w, s, {AGGREGATES} FROM u GROUP BY window(ts, '30 minutes'), s"
GROUPED = tuple(
    f"SELECT window.start AS x, window.end AS y, s, {some} FROM u{where} GROUP BY {window}, s"
    for (some, window), where in zip(
        itertools.product(SOME, WINDOWS), itertools.cycle(["", " WHERE i > 1", " WHERE b"]), strict=False
    )
)
JOIN = "SELECT {} FROM u x JOIN v y ON x.i = y.i AND y.ts BETWEEN x.ts - INTERVAL '{}' MINUTE AND x.ts{}"
JOINED = tuple(
    JOIN.format("x.s, y.d, x.m", minutes, where) for minutes in (10, 30, 60) for where in ("", " WHERE x.i > 1", " WHERE y.d > 0")
)
WIDE = JOIN.format("x.ts, y.ts AS ts2, x.s, y.d, x.m, x.i", 60, "")
PAIRS = (
    *[(one, other) for one in PLAIN for other in PLAIN if one != other][::7],
    *zip(GROUPED, itertools.cycle([FINE, FINE, BY_STARTS]), strict=False),
    *((one, WIDE) for one in JOINED),
)
PARTS = 8
LEAST = {"rows": 2, "groups": 1, "pairs": 3}
"""Pairs of each kind that share rows, in each part."""


def entry(name: str) -> CatalogEntry:
    declaration = StreamDeclaration(name=name, schema=SCHEMA, event_time="ts")
    return CatalogEntry(declaration=declaration, sources=(SourceDeclaration(stream=name, name="x", node="n", connector="file"),))


CATALOG = {"u": entry("u"), "v": entry("v")}


def table(seed: int, rows: int = 150) -> pa.Table:
    rng = random.Random(seed)

    def perhaps(*values: object) -> object:
        return rng.choice([None, *values])

    made = [
        (
            START + dt.timedelta(seconds=rng.randrange(4 * 3600)),
            perhaps(0, 1, 2, 3, 4, -1),
            perhaps(1, 2, 3, 2**62, -(2**62)),
            perhaps(1, 100, 127, -128),
            perhaps(0.0, -0.0, 0.1, 1.0, math.inf, -math.inf, math.nan, 1.5),
            perhaps(0.5, 1.25, 3.0),
            perhaps(Decimal("2.00"), Decimal("2.49"), Decimal("2.50"), Decimal("-99999999.99")),
            perhaps(Decimal("1.0001"), Decimal(10) ** 20),
            perhaps(True, False),
            perhaps("a", "b", "ba", "bb", "ü", "B"),
            perhaps(dt.date(2024, 1, 1), dt.date(2024, 1, 2)),
        )
        for _ in range(rows)
    ]
    schema = to_arrow(SCHEMA)
    return pa.Table.from_arrays(
        [pa.array(of, field.type) for of, field in zip(zip(*made, strict=True), schema, strict=True)], schema=schema
    )


class Stages:
    """Outputs of stages over one table for each stream; equal stages run once."""

    def __init__(self, spark: Batch) -> None:
        self._spark = spark
        self._streams = {name: spark.table(table(seed), SCHEMA) for seed, name in enumerate(CATALOG)}
        self.bag = functools.cache(self._bag)
        self.frame = functools.cache(self._frame)

    def _frame(self, stage: Stage) -> DataFrame:
        views = []
        for view in stage.views:
            first, *others = (
                self._streams[feed.origin.entry.declaration.name] if isinstance(feed.origin, Scan) else self.frame(feed.origin)
                for feed in view.feeds
            )
            views.append(functools.reduce(DataFrame.union, others, first))
        return self._spark.run(fragment_of(stage.relation), views)

    def schema(self, stage: Stage) -> Schema:
        return self.schema_of(self.frame(stage))

    @staticmethod
    def schema_of(frame: DataFrame) -> Schema:
        return tuple(Column(field.name, field.dataType.simpleString()) for field in frame.schema.fields)

    def _bag(self, stage: Stage) -> list[tuple[object, ...]]:
        return rows(self.frame(stage))

    def over(self, fragment: str, offered: Stage) -> DataFrame:
        return self._spark.run(fragment, [self.frame(offered)])


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in frame.toArrow().to_pylist()), key=repr)


def alike(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        same = repr(one) == repr(other) or (math.isnan(one) and math.isnan(other))
        return same or math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-9)
    return one == other


@pytest.fixture(scope="module")
def stages(spark: Batch) -> Stages:
    return Stages(spark)


@pytest.mark.one_part_per_commit("pairs of queries on Spark", parts=4 * PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_shared_rows_are_the_rows_alone(stages: Stages, part: int) -> None:
    seen = dict.fromkeys(LEAST, 0)
    for wanted, offered in PAIRS[part::PARTS]:
        for way in shared(wanted, offered, CATALOG, stages.schema):
            if signed(way.stage) == signed(way.offered):
                continue
            frame = stages.over(fragment_of(way.residual.relation), way.offered)
            message = f"{wanted}\n{offered}\n{fragment_of(way.residual.relation)}"
            assert stages.schema_of(frame) == stages.schema(way.stage), message
            alone, together = stages.bag(way.stage), rows(frame)
            assert len(alone) == len(together), message
            same = all(alike(a, b) for one, other in zip(alone, together, strict=True) for a, b in zip(one, other, strict=True))
            assert same, message
            kind = "groups" if way.residual.has_state else "pairs" if wanted in JOINED else "rows"
            seen[kind] += bool(alone)
    assert all(seen[kind] >= least for kind, least in LEAST.items()), seen

"""Blocks of an interval join: the same pairs as DuckDB's join, whatever the bounds, the keys and the cuts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sbon_node.engine.spark.operators import blocks as module
from sbon_node.engine.spark.operators.blocks import BlockedJoin, PairFinder, blocks, unpacked

SCHEMA = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("k", pa.string()), ("n", pa.int64()), ("v", pa.int64()), ("w", pa.list_(pa.int64()))]
)
TIMES = st.one_of(st.none(), st.integers(-12, 40), st.sampled_from([0, 10, 20, 10**15]))
ROW = st.tuples(TIMES, st.sampled_from(["x", "y", None]), st.sampled_from([1, 2, None]))
ROWS = st.lists(ROW, max_size=30)
BOUNDS = st.tuples(st.integers(-15, 15), st.integers(0, 20)).map(lambda one: (one[0], one[0] + one[1]))
DUCK = "SELECT a.v, b.v FROM a JOIN b ON a.k = b.k {both} AND epoch_us(a.at) - epoch_us(b.at) BETWEEN {least} AND {most}"


def batch(rows: Sequence[tuple[int | None, str | None, int | None]], first: int = 0) -> pa.RecordBatch:
    columns = zip(*((*row, first + number, [number]) for number, row in enumerate(rows)), strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(list(columns) or [()] * 5, SCHEMA, strict=True)], schema=SCHEMA
    )


def found(join: BlockedJoin, left: list[pa.RecordBatch], right: list[pa.RecordBatch]) -> Counter[tuple[object, object]]:
    cut = [[block.rows for rows in side for block in blocks(rows, "at", join.span_us)] for side in (left, right)]
    pairs = pa.RecordBatch.from_arrays(
        [pa.array([a for a in cut[0] for _ in cut[1]], pa.binary()), pa.array([b for _ in cut[0] for b in cut[1]], pa.binary())],
        ["l", "r"],
    )
    result = PairFinder(join, (SCHEMA, SCHEMA)).joined(iter([pairs]))
    return Counter((row["in0"]["v"], row["in1"]["v"]) for rows in result for row in rows.to_pylist())


def joined(bounds: tuple[int, int], span_us: int = 10, keys: tuple[tuple[str, str], ...] = (("k", "k"),)) -> BlockedJoin:
    return BlockedJoin(views=(0, 1), times=("at", "at"), keys=keys, least_us=bounds[0], most_us=bounds[1], span_us=span_us)


@settings(deadline=None, max_examples=60)
@given(ROWS, ROWS, ROWS, BOUNDS, st.integers(1, 30), st.booleans())
@example([(0, "x", 1)], [(10, "x", 1)], [(0, "x", 1), (10, "x", 1), (11, "x", 1)], (-10, 0), 10, False)
def test_the_pairs_of_all_blocks_are_those_of_duckdb(
    left: list[tuple[int | None, str | None, int | None]],
    more: list[tuple[int | None, str | None, int | None]],
    right: list[tuple[int | None, str | None, int | None]],
    bounds: tuple[int, int],
    span_us: int,
    two_keys: bool,
) -> None:
    sides = [batch(left), batch(more, len(left))], [batch(right)]
    with duckdb.connect() as connection:
        for name, rows in zip("ab", sides, strict=True):
            connection.register(name, pa.Table.from_batches(rows))
        sql = DUCK.format(both="AND a.n = b.n" if two_keys else "", least=bounds[0], most=bounds[1])
        expected = Counter(connection.sql(sql).fetchall())
    keys = (("k", "k"), ("n", "n")) if two_keys else (("k", "k"),)
    assert found(joined(bounds, span_us, keys), *sides) == expected


@settings(deadline=None)
@given(ROWS, st.integers(1, 30))
def test_each_row_with_a_time_is_in_one_block_of_the_span(
    rows: list[tuple[int | None, str | None, int | None]], span: int
) -> None:
    cut = list(blocks(batch(rows), "at", span))
    values = [value for block in cut for value in unpacked(pa.py_buffer(block.rows)).column("v").to_pylist()]
    assert sorted(values) == [number for number, row in enumerate(rows) if row[0] is not None]
    for block in cut:
        times = unpacked(pa.py_buffer(block.rows)).column("at").cast(pa.int64()).to_pylist()
        assert times == sorted(times)
        assert (times[0], times[-1]) == (block.first_us, block.last_us)
        assert block.last_us - block.first_us <= span


def test_many_pairs_come_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAIRS_OF_A_BATCH", 7)
    rows = batch([(0, "x", 1)] * 10)
    pairs = list(PairFinder(joined((0, 0)), (SCHEMA, SCHEMA)).pairs(rows, rows))
    assert [one.num_rows for one in pairs] == [7] * 14 + [2]
    assert len({(row["in0"]["v"], row["in1"]["v"]) for one in pairs for row in one.to_pylist()}) == 100

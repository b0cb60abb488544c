"""Even samples of rows: which rows stay, and the bounds."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbon_node.connectors.sources.sample import MAX_PARTS, RowSample


def kept(sample: RowSample) -> list[int]:
    rows = sample.rows()
    return rows.column(0).to_pylist() if rows is not None else []


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + count), pa.int64())})


@pytest.mark.one_part_per_commit("connectors at work", parts=6)
@settings(deadline=None)
@given(st.lists(st.integers(0, 200), max_size=10), st.integers(1, 50))
def test_the_kept_rows_do_not_depend_on_how_the_rows_are_divided(sizes: list[int], most: int) -> None:
    sample, at_once, seen = RowSample(max_rows=most), RowSample(max_rows=most), 0
    for size in sizes:
        sample.add(numbers(seen, size))
        seen += size
    for number in range(seen):
        at_once.add(numbers(number, 1))
    rows = kept(sample)
    assert sample.seen == at_once.seen == seen
    assert len(rows) <= most
    assert rows == sorted(set(rows))
    assert set(rows) <= set(kept(at_once)) or set(kept(at_once)) <= set(rows), "one was thinned once more"


def test_few_rows_are_all_kept_and_many_evenly() -> None:
    sample = RowSample(max_rows=1000)
    sample.add(numbers(0, 1000))
    assert kept(sample) == list(range(1000))
    for number in range(1, 400):
        sample.add(numbers(number * 1000, 1000))
    rows = kept(sample)
    assert 400 <= len(rows) <= 1000
    quarters = Counter(row // 100_000 for row in rows)
    assert all(len(rows) / 4 * 0.7 < quarters[quarter] < len(rows) / 4 * 1.3 for quarter in range(4))


def test_a_stream_with_a_period_is_sampled_in_all_of_its_phases() -> None:
    sample = RowSample(max_rows=1000)
    for number in range(200):
        sample.add(numbers(number * 1000, 1000))
    assert len({row % 20 for row in kept(sample)}) == 20
    assert len({row % 64 for row in kept(sample)}) == 64


def test_no_rows_are_kept_where_none_are_allowed() -> None:
    sample = RowSample(max_rows=0)
    sample.add(numbers(0, 5000))
    assert (sample.seen, sample.rows()) == (5000, None)


def test_a_sample_is_bounded_in_bytes_too_and_keeps_no_large_batch_alive() -> None:
    sample = RowSample(max_bytes=10_000)
    for _ in range(50):
        sample.add(pa.record_batch({"t": ["x" * 1000] * 40}))
    rows = sample.rows()
    assert rows is not None
    assert 1 <= rows.num_rows <= 10
    assert rows.get_total_buffer_size() <= 12_000


def test_many_small_batches_are_joined() -> None:
    sample = RowSample(max_rows=10_000)
    for number in range(20 * MAX_PARTS):
        sample.add(numbers(number, 1))
    assert len(sample._parts) <= MAX_PARTS
    assert sample.rows() == numbers(0, 20 * MAX_PARTS)

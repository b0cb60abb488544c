"""The newest rows of a sink as people see them."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from sbon_node.connectors.formats import frames
from sbon_node.connectors.sinks.newest import NewestRows
from sbon_protocol.api.delivery import SAMPLE_COLUMNS, SAMPLE_ROWS, SAMPLE_TEXT


def test_the_newest_rows_are_those_of_the_last_table_with_rows() -> None:
    newest = NewestRows()
    assert newest.sample() is None
    newest.saw(b"", pa.table({"n": [1]}))
    newest.saw(b"", pa.table({"n": range(100)}))
    newest.saw(b"", pa.table({"n": pa.array([], pa.int64())}))
    newest.saw(b"")
    found = newest.sample()
    assert found is not None
    assert (found.columns, [row[0] for row in found.rows]) == (("n",), [str(n) for n in range(100 - SAMPLE_ROWS, 100)])
    newest.saw(b"", pa.table({"n": [7]}))
    again = newest.sample()
    assert again is not None
    assert again.rows == (("7",),)
    newest.saw_values(("n",), [(8,), (None,)])
    last = newest.sample()
    assert last is not None
    assert last.rows == (("8",), (None,))


def test_a_small_frame_is_unpacked_when_somebody_asks_and_one_that_cannot_be_is_passed_over() -> None:
    newest = NewestRows()
    newest.saw(frames.encode(pa.record_batch({"n": pa.array(range(100))})))
    found = newest.sample()
    assert found is not None
    assert [row[0] for row in found.rows] == [str(n) for n in range(100 - SAMPLE_ROWS, 100)]
    broken = NewestRows()
    broken.saw(b"none of ours")
    assert broken.sample() is None


def test_values_are_texts_cut_where_they_are_long() -> None:
    newest = NewestRows()
    at = datetime(2026, 3, 2, 9, 0, 1, tzinfo=UTC)
    late = pa.array([2**62], pa.timestamp("us", "UTC"))
    values = {"ts": pa.array([at]), "text": pa.array(["x" * 1000]), "none": pa.array([None], pa.int64()), "late": late}
    newest.saw(b"", pa.table({**values, **{f"c{i}": pa.array([i]) for i in range(100)}}))
    found = newest.sample()
    assert found is not None
    assert len(found.columns) == len(found.rows[0]) == SAMPLE_COLUMNS
    ts, text, none, far = found.rows[0][:4]
    assert (ts, none) == ("2026-03-02T09:00:01Z", None)
    assert text == "x" * (SAMPLE_TEXT - 1) + "…"
    assert far


def test_only_a_copy_of_the_few_rows_is_kept() -> None:
    before = pa.total_allocated_bytes()
    newest = NewestRows()
    newest.saw(b"", pa.table({"text": ["x" * 1000] * 10_000}))
    assert pa.total_allocated_bytes() - before < 1_000_000

"""Frames: what is cut comes back, and nothing that a peer may send does harm."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbon_node.connectors.formats import frames
from sbon_node.model.frames import MAX_FRAME_BYTES

ROWS = pa.RecordBatch.from_pydict({"n": list(range(1000)), "text": [f"{i}" * (i % 50) for i in range(1000)]})
MANY, FEW = frames.encode(ROWS), frames.encode(ROWS.slice(0, 40))


def test_cut_rows_come_back_in_order_and_of_the_size_aimed_at() -> None:
    cuts = list(frames.cut(ROWS, aim_bytes=4096))
    assert pa.concat_tables(frames.decode(c.payload, ROWS.schema) for c in cuts).equals(pa.table(ROWS))
    assert [c.start for c in cuts] == [sum(c.rows for c in cuts[:i]) for i in range(len(cuts))]
    assert len(cuts) > 5
    assert all(frames.decode(c.payload).nbytes <= 2 * 4096 for c in cuts)


def test_rows_over_the_limit_come_without_payload() -> None:
    rows = pa.RecordBatch.from_pydict({"text": ["a", "b" * 3000, "c", "d" * 2000, "e" * 2100]})
    found = [(c.start, c.rows, bool(c.payload)) for c in frames.cut(rows, max_row_bytes=2048)]
    assert [start for start, _, good in found if not good] == frames.oversized(rows, 2048) == [1, 4]
    assert sum(count for _, count, good in found if good) == 3


def test_no_rows_are_no_bytes() -> None:
    assert frames.encode(ROWS.slice(0, 0)) == b""
    assert list(frames.cut(ROWS.slice(0, 0))) == []
    assert frames.decode(b"", ROWS.schema).num_rows == 0
    with pytest.raises(frames.BadPayloadError):
        frames.decode(b"")


def test_other_columns_are_refused() -> None:
    for schema in (pa.schema([("n", pa.int64())]), pa.schema([("n", pa.int32()), ("text", pa.string())])):
        with pytest.raises(frames.BadPayloadError):
            frames.decode(MANY, schema)


def test_two_batches_are_no_frame() -> None:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, ROWS.schema) as writer:
        writer.write_batch(ROWS)
        writer.write_batch(ROWS)
    with pytest.raises(frames.BadPayloadError):
        frames.decode(out.getvalue().to_pybytes())


def test_few_rows_are_not_drowned_in_their_schema() -> None:
    row = pa.RecordBatch.from_pydict({f"column_{i}": [i] for i in range(20)})
    stream = row.schema.serialize().size + row.serialize().size
    assert len(frames.encode(row)) < stream / 4
    assert frames.decode(frames.encode(row), row.schema).equals(pa.table(row))


def test_a_frame_that_would_fill_the_memory_is_refused() -> None:
    zeros = bytes(2**26)
    bombs = [pa.compress(zeros, "zstd", asbytes=True), pa.compress(MANY + zeros, "zstd", asbytes=True)]
    assert max(len(bomb) for bomb in bombs) < MAX_FRAME_BYTES
    for bomb in bombs:
        with pytest.raises(frames.BadPayloadError, match="compressed as a whole"):
            frames.decode(bomb)


def damaged(good: bytes) -> st.SearchStrategy[bytes]:
    return st.one_of(
        st.tuples(st.integers(0, len(good)), st.binary(min_size=1, max_size=8)).map(
            lambda x: good[: x[0]] + x[1] + good[x[0] + len(x[1]) :]
        ),
        st.integers(0, len(good)).map(lambda n: good[:n]),
    )


@settings(max_examples=600, deadline=None)
@given(st.one_of(st.binary(max_size=300), damaged(MANY), damaged(FEW)))
def test_damaged_payloads_are_refused_or_rows(payload: bytes) -> None:
    try:
        found = frames.decode(payload, ROWS.schema)
    except frames.BadPayloadError:
        return
    assert found.schema.equals(ROWS.schema)
    found.to_pylist()

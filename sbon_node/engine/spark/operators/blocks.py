"""Blocks of rows: how an interval join of large batches keeps its rows, and finds their pairs. Arrow alone.

Spark's state has a record for each row of a stream join, which costs more than all else that a join does. A block is one record
with the rows of a frame, in the order of their times, that lie within a span of time. Two blocks are joined by the equalities and
the interval at once: the partners of a row are a range of the other block's rows, sorted by key and time.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sbon_node.engine.spark.operators.watermarks import MARK, conform

Longs = npt.NDArray[np.int64]

PART, FIRST, LAST, BLOCK = "sbon part", "sbon first", "sbon last", "sbon block"
"""Columns of blocks, beside the time of the first row, which has a watermark. All blocks are in one part, since Spark's stream
joins need an equality."""
PAIRS_OF_A_BATCH = 65_536
"""Pairs in an Arrow batch of the result."""
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


class Block(msgspec.Struct, frozen=True):
    """Rows of one side as an Arrow stream, with the times of the first and the last; microseconds since 1970."""

    first_us: int
    last_us: int
    rows: bytes


class BlockedJoin(msgspec.Struct, frozen=True, kw_only=True):
    """An inner join of two views in blocks: ``keys`` are equal, and ``least_us <= left time - right time <= most_us``.

    ``views``, ``times`` and the columns of a key are those of the left and of the right side. Rows of a block lie within
    ``span_us``.
    """

    views: tuple[int, int]
    times: tuple[str, str]
    keys: tuple[tuple[str, str], ...]
    least_us: int
    most_us: int
    span_us: int


def blocks(rows: pa.RecordBatch, time: str, span_us: int) -> Iterator[Block]:
    """Yield blocks of all rows that have a time: a row without one has no partner."""
    if rows.column(time).null_count:
        rows = rows.filter(rows.column(time).is_valid())
    times = _times(rows, time)
    if len(times) > 1 and (np.diff(times) < 0).any():
        order = np.argsort(times, kind="stable")
        rows, times = rows.take(pa.array(order)), times[order]
    first = 0
    while first < len(times):
        end = int(np.searchsorted(times, times[first] + span_us, side="right"))
        yield Block(int(times[first]), int(times[end - 1]), _packed(rows.slice(first, end - first)))
        first = end


def as_records(some: Sequence[Block], schema: pa.Schema, time: str) -> pa.RecordBatch:
    """Return blocks as rows of ``schema``, whose column ``time`` is the time of a block's first row; none is a marker."""
    first_us = pa.array([block.first_us for block in some], pa.int64())
    columns = {
        time: first_us.cast(pa.timestamp("us", "UTC")),
        PART: pa.repeat(pa.scalar(0, pa.int64()), len(some)),
        FIRST: first_us,
        LAST: pa.array([block.last_us for block in some], pa.int64()),
        BLOCK: pa.array([block.rows for block in some], pa.binary()),
        MARK: pa.repeat(pa.scalar(False), len(some)),
    }
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


def unpacked(block: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(block) as reader:
        return reader.read_next_batch()


def _packed(rows: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema, options=_LZ4) as writer:
        writer.write_batch(rows)
    packed: bytes = out.getvalue().to_pybytes()
    return packed


def _times(rows: pa.RecordBatch, time: str) -> Longs:
    times: Longs = rows.column(time).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return times


class PairFinder:
    """Joins blocks; ``schemas`` are those of the rows of each side in the result, structs ``in0`` and ``in1``."""

    def __init__(self, join: BlockedJoin, schemas: tuple[pa.Schema, pa.Schema]) -> None:
        self._join, self._schemas = join, schemas
        self._newest: list[tuple[pa.Buffer, pa.RecordBatch] | None] = [None, None]

    def joined(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of each row of ``batches``, a block of the left and one of the right side."""
        for batch in batches:
            for left, right in zip(*batch.columns, strict=True):
                yield from self.pairs(self._rows(0, left.as_buffer()), self._rows(1, right.as_buffer()))

    def _rows(self, side: int, block: pa.Buffer) -> pa.RecordBatch:
        """Return a block's rows. One block of a side comes with several of the other side in a row."""
        newest = self._newest[side]
        if newest is None or not newest[0].equals(block):
            newest = self._newest[side] = (block, conform(unpacked(block), self._schemas[side]))
        return newest[1]

    def pairs(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield all pairs of two blocks' rows."""
        left, right = self._within_reach(left, right)
        if not left.num_rows or not right.num_rows:
            return
        for left_at, right_at in self._places(left, right):
            chosen = left.take(pa.array(left_at)), right.take(pa.array(right_at))
            sides = [pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema)) for rows in chosen]
            yield pa.RecordBatch.from_arrays(sides, ["in0", "in1"])

    def _within_reach(self, left: pa.RecordBatch, right: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the rows of each block that are within the interval of any row of the other."""
        join, (left_us, right_us) = self._join, self._times(left, right)
        if not len(left_us) or not len(right_us):
            return left.slice(0, 0), right.slice(0, 0)
        since = np.searchsorted(left_us, right_us[0] + join.least_us), np.searchsorted(right_us, left_us[0] - join.most_us)
        upto = (
            np.searchsorted(left_us, right_us[-1] + join.most_us, side="right"),
            np.searchsorted(right_us, left_us[-1] - join.least_us, side="right"),
        )
        sides = [rows.slice(int(a), max(0, int(b - a))) for rows, a, b in zip((left, right), since, upto, strict=True)]
        return sides[0], sides[1]

    def _times(self, left: pa.RecordBatch, right: pa.RecordBatch) -> tuple[Longs, Longs]:
        return _times(left, self._join.times[0]), _times(right, self._join.times[1])

    def _places(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Iterator[tuple[Longs, Longs]]:
        """Yield the places of both rows of each pair, :data:`PAIRS_OF_A_BATCH` at a time.

        The right rows are sorted by key and time, each as one number: its key's, then its place in the order of time.
        """
        join, (left_us, right_us) = self._join, self._times(left, right)
        places = len(right_us) + 1
        left_key, right_key = _numbered([(left.column(a), right.column(b)) for a, b in join.keys])
        known = np.flatnonzero(right_key >= 0)
        order = known[np.argsort(right_key[known], kind="stable")]
        sorted_ = right_key[order] * places + order
        probes = np.flatnonzero(left_key >= 0)
        key = left_key[probes] * places
        since = np.searchsorted(sorted_, key + np.searchsorted(right_us, left_us[probes] - join.most_us))
        upto = np.searchsorted(sorted_, key + np.searchsorted(right_us, left_us[probes] - join.least_us, side="right"))
        found = np.flatnonzero(upto > since)
        probes, since, counts = probes[found], since[found], (upto - since)[found]
        ends = np.cumsum(counts)
        for number in range(0, int(ends[-1]) if len(ends) else 0, PAIRS_OF_A_BATCH):
            pair = np.arange(number, min(number + PAIRS_OF_A_BATCH, int(ends[-1])))
            probe = np.searchsorted(ends, pair, side="right")
            yield probes[probe], order[since[probe] + pair - (ends - counts)[probe]]


def _numbered(keys: Sequence[tuple[pa.Array, pa.Array]]) -> tuple[Longs, Longs]:
    """Return a number for each row's keys, the same for equal keys on both sides; -1 if one of them is NULL."""
    rows = len(keys[0][0])
    numbers = np.zeros(rows + len(keys[0][1]), np.int64)
    is_null = np.zeros(len(numbers), bool)
    for number, pair in enumerate(keys):
        codes: Any = pa.concat_arrays(pair).dictionary_encode().indices
        is_null |= codes.is_null().to_numpy(zero_copy_only=False)
        column = pc.fill_null(codes, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        # both factors are below the number of rows of two blocks, so that the product is below 2^63
        numbers = column if not number else np.unique(numbers * (len(numbers) + 1) + column, return_inverse=True)[1]
    numbers = np.where(is_null, -1, numbers)
    return numbers[:rows], numbers[rows:]

"""An even sample of the rows that have passed, bounded in rows and bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sbon_node.model.samples import MAX_SAMPLE_ROWS

MAX_SAMPLE_BYTES = 256 * 1024
MAX_PARTS = 64
"""Batches that are kept before they are joined."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class RowSample:
    """Each of the rows added with probability 1/n, by a hash of its number; n doubles whenever the kept rows exceed their bounds.

    A row that is kept for 2 n is kept for n too. A hash, and not every n-th row, since streams often have periods. With
    ``max_rows`` 0 rows are only counted.
    """

    def __init__(self, max_rows: int = MAX_SAMPLE_ROWS, max_bytes: int = MAX_SAMPLE_BYTES) -> None:
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._every = 1
        self._parts: list[pa.RecordBatch] = []
        self._numbers: list[npt.NDArray[np.uint64]] = []
        self._kept = self._kept_bytes = 0
        self.seen = 0
        """Rows added so far."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the next rows. Keeps copies, so that no batch stays in memory for a few of its rows."""
        if not self._max_rows:
            self.seen += rows.num_rows
            return
        numbers = np.arange(self.seen, self.seen + rows.num_rows, dtype=np.uint64)
        self.seen += rows.num_rows
        while self._kept + rows.num_rows // self._every > 2 * self._max_rows:
            self._thin()
        chosen = np.flatnonzero(self._is_kept(numbers))
        if not len(chosen):
            return
        part = rows.take(pa.array(chosen))
        self._parts.append(part)
        self._numbers.append(numbers[chosen])
        self._kept, self._kept_bytes = self._kept + part.num_rows, self._kept_bytes + part.nbytes
        if len(self._parts) > MAX_PARTS:
            self._join()
        while self._kept > self._max_rows or (self._kept_bytes > self._max_bytes and self._kept > 1):
            self._thin()

    def rows(self) -> pa.RecordBatch | None:
        """Return the kept rows in order; None before the first."""
        self._join()
        return self._parts[0] if self._parts else None

    def _join(self) -> None:
        if len(self._parts) > 1:
            self._parts, self._numbers = [pa.concat_batches(self._parts)], [np.concatenate(self._numbers)]

    def _thin(self) -> None:
        """Keep about every other row."""
        self._every *= 2
        self._join()
        if not self._parts:
            return
        (rows,), (numbers,) = self._parts, self._numbers
        chosen = np.flatnonzero(self._is_kept(numbers))
        rows = rows.take(pa.array(chosen, pa.int64()))
        self._parts, self._numbers = [rows], [numbers[chosen]]
        self._kept, self._kept_bytes = rows.num_rows, rows.nbytes

    def _is_kept(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Return whether the hash of each number is a multiple of n, a power of two (SplitMix64's finalizer)."""
        mixed = (numbers + _GOLDEN) * _GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        kept: npt.NDArray[np.bool_] = (mixed ^ (mixed >> np.uint64(31))) & np.uint64(self._every - 1) == 0
        return kept

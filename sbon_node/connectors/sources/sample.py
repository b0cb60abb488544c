"""Samples of the rows that have passed, and of the beginning of a finite source."""

from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog

from sbon_node.base.clock import Clock
from sbon_node.connectors.formats import frames
from sbon_node.connectors.interface import Chunk, Measured, Source
from sbon_node.model.frames import MAX_ROW_BYTES
from sbon_node.model.samples import MAX_SAMPLE_ROWS
from sbon_protocol.api.catalogue import MAX_ROWS_S, SourceDeclaration
from sbon_protocol.errors import SbonError

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


log = structlog.get_logger()

MAX_ROWS = 4096
MAX_CHUNKS = 64
TIMED_ROWS = 1000
"""Fewest rows from which a reading speed is measured; opening takes most of the time of fewer."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Figures of the first chunks of a finite source; None where they are unknown.

    ``rows_s`` is the source's own pace, ``read_rows_s`` the speed at which this node reads and packs its rows otherwise.
    ``rows`` is the expected number of all rows. ``unpaced`` means that it has many rows without a pace.
    """

    sample: RowSample = field(default_factory=RowSample)
    row_bytes: float | None = None
    rows_s: float | None = None
    read_rows_s: float | None = None
    rows: float | None = None
    unpaced: bool = False


async def read_beginning(source: Source, clock: Clock, name: str, sample_rows: int = MAX_SAMPLE_ROWS) -> Beginning | None:
    """Read the first chunks of a finite source, and keep at most ``sample_rows`` rows.

    None if nothing can be read; read errors appear when the source runs.
    """
    chunks: list[Chunk] = []
    begun, share, at_end = clock.now(), None, False
    try:
        await source.open(None)
        while len(chunks) < MAX_CHUNKS and sum(chunk.rows.num_rows for chunk in chunks) < MAX_ROWS:
            chunk = await source.read()
            if chunk is None:
                at_end = True
                break
            if chunk.rows.num_rows:
                chunks.append(chunk)
        share = 1.0 if at_end else source.share if isinstance(source, Measured) else None
    except SbonError as error:
        log.info("source-not-sampled", source=name, reason=str(error))
        return None
    finally:
        await source.close()
    rows, row_bytes, paced = sum(chunk.rows.num_rows for chunk in chunks), _row_bytes(chunks), _is_paced(chunks)
    elapsed_s = clock.now() - begun
    sample = RowSample(sample_rows)
    for chunk in chunks:
        sample.add(chunk.rows)
    return Beginning(
        sample=sample,
        row_bytes=row_bytes,
        rows_s=_pace(chunks),
        read_rows_s=min(rows / elapsed_s, MAX_ROWS_S) if elapsed_s > 0 and rows >= TIMED_ROWS and not paced else None,
        rows=rows / share if share else None,
        unpaced=rows >= MAX_ROWS and not paced,
    )


def with_beginning(declaration: SourceDeclaration, beginning: Beginning | None) -> SourceDeclaration:
    """Complete the declaration of a finite source; what is declared stays."""
    if beginning is None:
        return declaration
    row_bytes = beginning.row_bytes if declaration.row_bytes is None else declaration.row_bytes
    rows_s = beginning.rows_s if declaration.rows_s is None else declaration.rows_s
    sampled = (row_bytes, rows_s) != (declaration.row_bytes, declaration.rows_s)
    unpaced = rows_s is None and beginning.unpaced
    return msgspec.structs.replace(declaration, row_bytes=row_bytes, rows_s=rows_s, sampled=sampled, unpaced=unpaced)


def _is_paced(chunks: list[Chunk]) -> bool:
    """Return whether any of the rows has a time at which it is due."""
    return any(chunk.due_s is not None for chunk in chunks)


def _row_bytes(chunks: list[Chunk]) -> float | None:
    """Return bytes per row in frames as the runner cuts them. A paced source makes a frame of each chunk, however small."""
    batches = [chunk.rows for chunk in chunks]
    together = batches if _is_paced(chunks) or not batches else [pa.concat_batches(batches)]
    cuts = [frame for rows in together for frame in frames.cut(rows) if frame.payload]
    if not cuts:
        return None
    return min(max(sum(len(frame.payload) for frame in cuts) / sum(frame.rows for frame in cuts), 1.0), float(MAX_ROW_BYTES))


def _pace(chunks: list[Chunk]) -> float | None:
    """Return rows per second between the first and last chunk's time; None for unpaced sources."""
    if len(chunks) < 2 or chunks[0].due_s is None or chunks[-1].due_s is None:
        return None
    seconds = chunks[-1].due_s - chunks[0].due_s
    rows = sum(chunk.rows.num_rows for chunk in chunks[1:])
    return min(max(rows / seconds, 1e-6), MAX_ROWS_S) if seconds > 0 else None

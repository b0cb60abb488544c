"""Input and output of the engine's benchmark: rows in frames as a source makes them, and their arrival times."""

import numpy as np
import pyarrow as pa

from sbon_node.connectors.formats.frames import encode
from sbon_node.model.frames import FrameDraft
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.api.columns import Column, Schema
from sbon_protocol.errors import SbonError

SCHEMA = (Column("k", "bigint"), Column("ts", "timestamp"), Column("v", "double"), Column("s", "string"))

ROWS_OF_A_FRAME = 6000
"""Rows in about 256 KB, the target size of sources."""
_WORDS = 5000
_FIRST_US = 1_356_998_400_000_000


class Rows:
    """Seeded rows in frames. Random values compress no better than sensors' values."""

    def __init__(self, seed: int, count: int, rows_of_a_frame: int = ROWS_OF_A_FRAME) -> None:
        rng = np.random.default_rng(seed)
        words = pa.array([f"sensor {number:x}" for number in rng.integers(0, 2**40, _WORDS)])
        self.drafts: list[FrameDraft] = []
        self.passing: list[int] = []
        """Number of rows of each frame whose ``v`` is greater than a half."""
        for first in range(0, count, rows_of_a_frame):
            keys = np.arange(first, min(first + rows_of_a_frame, count))
            values = rng.random(len(keys))
            values[0] = 1.0  # the arrival of a frame without output could not be seen
            texts = words.take(pa.array(rng.integers(0, _WORDS, len(keys))))
            self.drafts.append(frame(SCHEMA, keys, {"k": pa.array(keys, pa.int64()), "v": pa.array(values), "s": texts}))
            self.passing.append(int((values > 0.5).sum()))


def frame(schema: Schema, at_ms: np.ndarray[tuple[int], np.dtype[np.int64]], columns: dict[str, pa.Array]) -> FrameDraft:
    """Return the frame of rows at ascending milliseconds; its watermark is the last, as for a source without delay."""
    times = pa.array(_FIRST_US + 1000 * at_ms).cast(pa.timestamp("us", tz="UTC"))
    arrays = [times if column.name == "ts" else columns[column.name] for column in schema]
    batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in schema])
    return FrameDraft(payload=encode(batch), rows=len(at_ms), watermark_ms=_FIRST_US // 1000 + int(at_ms[-1]))


class Outputs:
    """Output rows of an operator, with their times (monotonic seconds)."""

    def __init__(self) -> None:
        self.rows = 0
        self._history: list[tuple[int, float]] = []
        self._news = Signal()
        self._failure = ""

    def add(self, rows: int, at_s: float) -> None:
        if rows:
            self.rows += rows
            self._history.append((self.rows, at_s))
            self._news.notify()

    def fail(self, reason: str) -> None:
        """Record that no more rows will come."""
        self._failure = reason
        self._news.notify()

    async def wait(self, rows: int) -> float:
        """Wait for so many rows in all; return the time. Raise :class:`SbonError` ``engine-failed`` if they never come."""
        while self.rows < rows:
            if self._failure:
                raise SbonError("engine-failed", f"{self.rows:,} of {rows:,} rows came out, then: {self._failure}")
            await self._news.wait()
        return next(at_s for total, at_s in self._history if total >= rows)

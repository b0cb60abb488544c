"""Late rows, and rows without a usable event time, are the source's business (docs/design.md, section 7).

Times are whole milliseconds since 1970 (UTC), finer ones are rounded down, so that with greatest time G and delay d a row is late
if its time is at most G - d - 1 ms, the watermark is G - d, and no row that follows is earlier than the watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sbon_node.errors import SbonError
from sbon_node.query.schema import type_of
from sbon_node.streams.frame import NO_WATERMARK_MS

LAST_MS = 253_402_300_799_999
"""The end of the year 9999: a later time is a mistake that would hold the watermark there for ever."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """What becomes of a batch's rows: ``kept`` row numbers, ``late`` ones counted, and those ``refused`` with the reason."""

    kept: npt.NDArray[np.int64]
    late: int
    refused: tuple[tuple[int, str], ...]
    greatest_ms: int | None


class EventTime:
    """The rule for one source: ``column`` of the stream, its ``delay_ms``, and the greatest time seen so far."""

    def __init__(self, column: str, delay_ms: int, greatest_ms: int | None = None) -> None:
        self.column = column
        self.delay_ms = delay_ms
        self.greatest_ms = greatest_ms

    @property
    def watermark_ms(self) -> int:
        """No row that follows is earlier."""
        return self.watermark_of(self.greatest_ms)

    def watermark_of(self, greatest_ms: int | None) -> int:
        return NO_WATERMARK_MS if greatest_ms is None else greatest_ms - self.delay_ms

    def sort(self, rows: pa.RecordBatch) -> Sorted:
        """Decides on each row in order; moves nothing until :meth:`advance`."""
        times, null = milliseconds(rows.column(self.column))
        usable = ~null & (times >= 0) & (times <= LAST_MS)
        before = self.greatest_ms if self.greatest_ms is not None else -1
        reached = np.maximum.accumulate(np.where(usable, times, -1)) if len(times) else times
        reached = np.maximum(reached, before)
        # What counts for a row is the greatest before it; its own time cannot make itself late.
        late = usable & (times <= reached - self.delay_ms - 1)
        greatest = int(reached[-1]) if len(reached) and reached[-1] >= 0 else self.greatest_ms
        refused = tuple((int(i), self._why(bool(null[i]), int(times[i]))) for i in np.flatnonzero(~usable))
        return Sorted(np.flatnonzero(usable & ~late), int(late.sum()), refused, greatest)

    def advance(self, found: Sorted) -> None:
        self.greatest_ms = found.greatest_ms

    def _why(self, null: bool, time_ms: int) -> str:
        if null:
            return f"{self.column} is NULL"
        return f"{self.column} is {'before 1970' if time_ms < 0 else 'after the year 9999'}"


def milliseconds(column: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Times of a timestamp or date column, rounded down, and which of them are NULL."""
    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms"))
        kind = column.type
    if not pa.types.is_timestamp(kind):
        raise SbonError(
            "bad-event-time", f"an event time is a timestamp, not {type_of(kind)}", hint="declare the column as timestamp"
        )
    null = column.is_null().to_numpy(zero_copy_only=False)
    counts = pc.fill_null(column.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    if kind.unit == "s":
        return counts * 1000, null
    return counts // {"ms": 1, "us": 1000, "ns": 1_000_000}[kind.unit], null

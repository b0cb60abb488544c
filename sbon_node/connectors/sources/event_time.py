"""Late rows, and rows without a usable event time, at the source (docs/design.md, section 7).

Times are whole milliseconds since 1970 (UTC), rounded down. With greatest time G and delay d a row is late if its time is at most
G - d - 1 ms, the watermark is G - d, and no row that follows is earlier than the watermark.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sbon_node.model.frames import NO_WATERMARK_MS
from sbon_node.model.schema import type_of
from sbon_protocol.errors import SbonError

FIRST_MS = -62_135_596_800_000
"""Beginning of the year 1, the first that SQL and Python represent."""
LAST_MS = 253_402_300_799_999
"""End of the year 9999; a later time would hold the watermark for ever."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """Outcome of a batch: ``kept`` row numbers, ``late`` count, ``refused`` rows with reasons."""

    kept: npt.NDArray[np.int64]
    late: int
    refused: tuple[tuple[int, str], ...]
    greatest_ms: int | None


class EventTime:
    """Event-time rule of a source: the stream's ``column``, its ``delay_ms``, and the greatest time until now."""

    def __init__(self, column: str, delay_ms: int, greatest_ms: int | None = None) -> None:
        self.column = column
        self.delay_ms = delay_ms
        self.greatest_ms = greatest_ms

    @property
    def watermark_ms(self) -> int:
        """Return the watermark: no row that follows is earlier."""
        return self.watermark_of(self.greatest_ms)

    def watermark_of(self, greatest_ms: int | None) -> int:
        return NO_WATERMARK_MS if greatest_ms is None else greatest_ms - self.delay_ms

    def sort(self, rows: pa.RecordBatch) -> Sorted:
        """Sort rows into kept, late and refused, in order; only :meth:`advance` changes the state."""
        times, null = milliseconds(rows.column(self.column))
        usable = ~null & (times >= FIRST_MS) & (times <= LAST_MS)
        before = self.greatest_ms if self.greatest_ms is not None else NO_WATERMARK_MS
        reached = np.maximum.accumulate(np.where(usable, times, NO_WATERMARK_MS)) if len(times) else times
        reached = np.maximum(reached, before)
        # A row is compared with the greatest time before it; its own time cannot make it late.
        late = usable & (times <= reached - self.delay_ms - 1)
        greatest = int(reached[-1]) if len(reached) and reached[-1] >= FIRST_MS else self.greatest_ms
        refused = tuple((int(i), self._why(bool(null[i]), int(times[i]))) for i in np.flatnonzero(~usable))
        return Sorted(np.flatnonzero(usable & ~late), int(late.sum()), refused, greatest)

    def trusted(self, rows: pa.RecordBatch, watermark_ms: int) -> Sorted:
        """Keep all rows, and go on to a watermark that is known to hold after them."""
        known = watermark_ms > NO_WATERMARK_MS
        return Sorted(np.arange(rows.num_rows), 0, (), watermark_ms + self.delay_ms if known else self.greatest_ms)

    def advance(self, rows: Sorted) -> None:
        self.greatest_ms = rows.greatest_ms

    def _why(self, null: bool, time_ms: int) -> str:
        if null:
            return f"{self.column} is NULL"
        return f"{self.column} is {'before the year 1' if time_ms < FIRST_MS else 'after the year 9999'}"


def milliseconds(column: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return a timestamp or date column's times, rounded down, and its NULL mask."""
    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms"))
        kind = column.type
    if not pa.types.is_timestamp(kind):
        message = f"an event time is a timestamp, not {type_of(kind)}"
        raise SbonError("bad-event-time", message, hint="declare the column as timestamp")
    null = column.is_null().to_numpy(zero_copy_only=False)
    counts = pc.fill_null(column.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    if kind.unit == "s":
        return counts * 1000, null
    return counts // {"ms": 1, "us": 1000, "ns": 1_000_000}[kind.unit], null

"""Measurements of sources and operators that a plan can use (docs/design.md, section 6).

For an operator these are its selectivity and its output row size: both hold at any replay speed of its sources, and for windows,
whose rates follow event time. For a source these are rows and bytes a second, if it has a pace.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_node.model.frames import MAX_ROW_BYTES
from sbon_node.model.samples import StreamSample
from sbon_protocol.api.bounded import Counted, PerSecond
from sbon_protocol.api.catalogue import MAX_ROWS_S

LEAST_ROWS = 100
"""Fewest input rows of a usable measurement."""
MOST_SELECTIVITY = 1e6
"""Largest credible number of rows out for one row in."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Measurement of an operator; ``bytes_out`` are payload bytes.

    ``estimated`` is the selectivity that its plan expected without measurements, None if unknown.
    """

    rows_in: Counted
    rows_out: Counted
    bytes_out: Counted
    estimated: PerSecond | None = None

    @property
    def selectivity(self) -> float | None:
        """Return rows out per row in; None before the first row."""
        return self.rows_out / self.rows_in if self.rows_in else None

    @property
    def ratio(self) -> float | None:
        """Return estimated over measured rows out; None before a hundred rows, or if no estimate is known."""
        if self.estimated is None or self.rows_in < LEAST_ROWS:
            return None
        return max(self.estimated * self.rows_in, 1.0) / max(self.rows_out, 1)

    @property
    def row_bytes(self) -> float | None:
        """Return bytes per output row; None before the first output row."""
        return self.bytes_out / self.rows_out if self.rows_out else None

    def is_usable(self, *, has_state: bool) -> bool:
        """Return whether a plan may use it: enough rows went in, and a stateful operator has output."""
        return self.rows_in >= LEAST_ROWS and (self.rows_out > 0 or not has_state)

    def is_credible(self) -> bool:
        """Return whether such numbers and sizes of rows are possible; a check of peers' reports."""
        return self.rows_out <= MOST_SELECTIVITY * self.rows_in and self.bytes_out <= MAX_ROW_BYTES * self.rows_out


class SourcePace(msgspec.Struct, frozen=True, kw_only=True):
    """Pace of a source. ``rows_s`` is None if it is as fast as its readers, ``row_bytes`` before its first row."""

    rows_s: Annotated[float, Meta(gt=0, le=MAX_ROWS_S)] | None = None
    row_bytes: Annotated[float, Meta(gt=0, le=MAX_ROW_BYTES)] | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements: operators by signature, sources by id, and samples by source id."""

    operators: Mapping[str, Measurement] = {}
    sources: Mapping[str, SourcePace] = {}
    samples: Mapping[str, StreamSample] = {}


Recall = Callable[[Mapping[str, str], Sequence[str], Mapping[str, Sequence[str]]], Awaitable[Measured]]
"""Returns the measurements of sources (node by id) and of operator signatures, and samples of columns (by source id)."""


async def nothing_measured(
    sources: Mapping[str, str], signatures: Sequence[str], columns: Mapping[str, Sequence[str]]
) -> Measured:
    return Measured()

"""What sources and operators were seen to do, as far as a plan can use it (docs/design.md, section 6).

Of an operator it is how many rows come out for one that goes in, and how large they are: both hold at whatever speed its sources
are replayed, and for windows, whose rates follow event time. Of a source it is rows and bytes a second, where it has a pace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_node.engine.interface import Counted
from sbon_node.query.catalog import MAX_ROW_BYTES, MAX_ROWS_S

LEAST_ROWS = 100
"""Fewer rows in say too little."""
MOST_SELECTIVITY = 1e6
"""Rows out for one in; whoever claims more is not believed."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Of one operator; ``bytes_out`` are of payload."""

    rows_in: Counted
    rows_out: Counted
    bytes_out: Counted

    @property
    def selectivity(self) -> float | None:
        """Rows out per row in; None before the first row."""
        return self.rows_out / self.rows_in if self.rows_in else None

    @property
    def row_bytes(self) -> float | None:
        """Bytes of a row that comes out; None before the first one."""
        return self.bytes_out / self.rows_out if self.rows_out else None

    def is_telling(self, *, has_state: bool) -> bool:
        """Whether a plan may rely on it: enough has gone in, and something has come out where state may still hold all of it."""
        return self.rows_in >= LEAST_ROWS and (self.rows_out > 0 or not has_state)

    def is_credible(self) -> bool:
        """Whether rows of such numbers and sizes are possible; what peers say is checked by this."""
        return self.rows_out <= MOST_SELECTIVITY * self.rows_in and self.bytes_out <= MAX_ROW_BYTES * self.rows_out


class SourcePace(msgspec.Struct, frozen=True, kw_only=True):
    """Of one source: ``rows_s`` is None where it comes as fast as it is taken, ``row_bytes`` before its first row."""

    rows_s: Annotated[float, Meta(gt=0, le=MAX_ROWS_S)] | None = None
    row_bytes: Annotated[float, Meta(gt=0, le=MAX_ROW_BYTES)] | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Operators by signature, sources by id."""

    operators: Mapping[str, Measurement] = {}
    sources: Mapping[str, SourcePace] = {}


Recall = Callable[[Mapping[str, str], Sequence[str]], Awaitable[Measured]]
"""The nodes of sources by their ids, and signatures, to what is known of them."""


async def nothing_measured(sources: Mapping[str, str], signatures: Sequence[str]) -> Measured:
    return Measured()

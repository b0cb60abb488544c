"""Samples of sources' rows, from which a plan estimates rates, selectivities and groups (docs/design.md, section 6)."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_protocol.api.bounded import Counted
from sbon_protocol.api.catalogue import MAX_ROWS_S

MAX_SAMPLE_ROWS = 1000
"""Most rows of a sample, as kept and as sent."""
MAX_SAMPLED_SOURCES = 256
MAX_TEXT = 128
"""Most characters of a text in a sample; longer ones are cut."""

Value = None | bool | int | float | str
"""A value of a sample: a timestamp in microseconds and a date in days since 1970, a decimal as a float."""


class StreamSample(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a source, taken evenly from the first ``seen`` ones; ``columns`` hold equally many values each.

    ``rows`` is the expected number of all rows, None if the source has no end. ``read_rows_s`` is the speed at which its node
    reads a source without a pace, None if it has a pace or none was measured.
    """

    columns: Mapping[str, tuple[Value, ...]] = {}
    seen: Counted = 0
    rows: Annotated[float, Meta(ge=0, le=1e15)] | None = None
    read_rows_s: Annotated[float, Meta(gt=0, le=MAX_ROWS_S)] | None = None

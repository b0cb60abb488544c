"""Numbers with bounds, as peers and the HTTP API carry them."""

from typing import Annotated

from msgspec import Meta

MAX_COUNT = 2**62

Counted = Annotated[int, Meta(ge=0, le=MAX_COUNT)]

MOST_PER_SECOND = 1e15

PerSecond = Annotated[float, Meta(ge=0, le=MOST_PER_SECOND)]

EventTimeMs = Annotated[int, Meta(ge=-(2**53), le=2**53)]
"""Milliseconds since 1970 (UTC), within the range that JSON carries exactly."""

WallMs = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
"""Milliseconds since 1970 (UTC) by some node's clock, before the year 10000."""

MAX_EPOCH_LEAP = 2**20
"""Largest credible step between two epochs of a component, as different nodes know them.

No component changes hosts so often between two contacts. A forged greater epoch would fence the true host.
"""

MAX_REASON = 500
"""Longest reason of a failure in a message or a record; characters."""

Share = Annotated[float, Meta(ge=0, le=1)]

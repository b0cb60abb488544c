"""Numbers with bounds, as peers and the HTTP API carry them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Counted = Annotated[int, Meta(ge=0, le=2**62)]


PerSecond = Annotated[float, Meta(ge=0, le=1e15)]


EventTimeMs = Annotated[int, Meta(ge=-(2**53), le=2**53)]
"""Milliseconds since 1970 (UTC), within the range that JSON carries exactly."""


WallMs = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
"""Milliseconds since 1970 (UTC) by some node's clock, before the year 10000."""


Share = Annotated[float, Meta(ge=0, le=1)]

"""What one message takes of a processor."""

from __future__ import annotations

import msgspec


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What one message takes of a processor of speed 1: the mean in milliseconds, and its squared coefficient of variation."""

    mean_ms: float = 0.0
    scv: float = 1.0

"""The service time of a message."""

from __future__ import annotations

import msgspec


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """Service time of a message on a processor of speed 1.

    ``mean_ms`` is its mean, ``scv`` its squared coefficient of variation.
    """

    mean_ms: float = 0.0
    scv: float = 1.0

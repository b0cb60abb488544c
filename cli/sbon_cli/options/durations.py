"""Durations as flags accept them."""

from __future__ import annotations

import re

import click

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_of(milliseconds: int) -> str:
    """Return the shortest form of a duration that flags accept: ``500ms``, ``90s``, ``1h``."""
    unit = next((unit for unit in ("d", "h", "m", "s") if milliseconds and milliseconds % _UNITS_MS[unit] == 0), "ms")
    return f"{milliseconds // _UNITS_MS[unit]}{unit}"


def milliseconds_of(duration: str, flag: str) -> int:
    """Convert ``500ms``, ``10s``, ``5m``, ``1h``, ``1d``; raise a usage error that names the flag."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*(ms|s|m|min|h|d)\s*", duration, re.ASCII)
    if not match:
        raise click.UsageError(f"{flag}: {duration!r} is not a duration: write 500ms, 10s, 5m, 1h or 1d")
    return round(float(match[1]) * _UNITS_MS[match[2]])

"""Readiness from a node's refusal. Pure."""

from __future__ import annotations

from sbon_protocol.errors import SbonError

from .model import Readiness, Reason

UNREADY = frozenset({"starting", "stopping", "low-disk", "data-dir", "not-stored", "engine-failed"})
"""Codes of reasons that make a node unready."""


def unready(refusal: SbonError) -> Readiness:
    """Return the refusal of /readyz: its details are all reasons, the worst first."""
    worst = Reason(code=refusal.code, weight="unready", message=refusal.message, hint=refusal.hint)
    others = tuple(
        Reason(code=code, weight="unready" if code in UNREADY else "impaired", message=message)
        for code, _, message in (line.partition(": ") for line in refusal.details[1:])
    )
    return Readiness(ready=False, reasons=(worst, *others))

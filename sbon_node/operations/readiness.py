"""Whether a node can do its work now, and every reason why it can not, or only partly. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from sbon_node.errors import SbonError

MIN_FREE_BYTES = 64 * 1024 * 1024
"""With less room on its disk a node is not ready: an operator's next batch may be the one that finds none."""
MIN_FREE_INODES = 1000

UNREADY = ("starting", "stopping", "low-disk", "data-dir", "engine-failed")
"""Codes of what makes a node unready."""

Weight = Literal["unready", "impaired"]


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """``unready``: it cannot do its work. ``impaired``: it can, though not all of it, or not for long."""

    code: str
    weight: Weight
    message: str
    hint: str = ""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """``reasons``, the worst first."""

    ready: bool
    reasons: tuple[Reason, ...] = ()


def unready(refusal: SbonError) -> Readiness:
    """What a refusal by /readyz says: its details are all reasons, the worst one first."""
    worst = Reason(code=refusal.code, weight="unready", message=refusal.message, hint=refusal.hint)
    others = tuple(
        Reason(code=code, weight="unready" if code in UNREADY else "impaired", message=message)
        for code, _, message in (line.partition(": ") for line in refusal.details[1:])
    )
    return Readiness(ready=False, reasons=(worst, *others))


class Condition(NamedTuple):
    """What counts. ``alone``: there are other members, or addresses to join, and none can be talked to."""

    engine: str
    free_bytes: int
    free_inodes: int
    alone: bool
    drained: bool
    failed: tuple[str, ...]
    """Operators and sources here that have failed."""
    waiting: tuple[str, ...]
    """Operators here that wait to be resumed, and for what."""


def readiness_of(condition: Condition) -> Readiness:
    """Other nodes that are away make nobody unready: a cluster that starts one node after another would never get going."""
    found = sorted(_reasons(condition), key=lambda reason: reason.weight != "unready")
    return Readiness(ready=not any(reason.weight == "unready" for reason in found), reasons=tuple(found))


def _reasons(condition: Condition) -> list[Reason]:
    """The worst first among those of equal weight."""
    found = []
    if condition.free_bytes < MIN_FREE_BYTES:
        room = f"{condition.free_bytes / 1e6:.0f} MB are left on the disk of the data directory"
        found.append(Reason(code="low-disk", weight="unready", message=room, hint="free some space: operators wait for it"))
    elif condition.free_inodes < MIN_FREE_INODES:
        room = f"{condition.free_inodes} inodes are left on the disk of the data directory"
        found.append(Reason(code="low-disk", weight="unready", message=room, hint="delete files nobody needs"))
    if condition.engine.startswith("failed"):
        reason = condition.engine.partition(": ")[2]
        hint = "see engine.log in the data directory, and: sbon doctor"
        found.append(Reason(code="engine-failed", weight="unready", message=f"the engine failed: {reason}", hint=hint))
    if condition.alone:
        hint = "see whether the others run, and: sbon doctor"
        found.append(Reason(code="alone", weight="impaired", message="no other member can be reached", hint=hint))
    if condition.failed:
        hint = "see: sbon query show, sbon stream show"
        found.append(Reason(code="parts-failed", weight="impaired", message="; ".join(condition.failed), hint=hint))
    if condition.waiting:
        found.append(Reason(code="operators-wait", weight="impaired", message="; ".join(condition.waiting)))
    if condition.drained:
        hint = "to end it for good: sbon leave"
        found.append(Reason(code="drained", weight="impaired", message="it takes no part in queries any more", hint=hint))
    return found

"""Readiness of a node, with every reason why it cannot work or works only partly. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from sbon_protocol.api.nodes import Readiness, Reason

MIN_FREE_BYTES = 64_000_000
"""Least free disk space of a ready node: with less, an operator's next batch may fail."""
MIN_FREE_INODES = 1000

ALONE = "alone"
"""Code of the reason of a node that reaches no other."""


class Condition(NamedTuple):
    """Conditions that decide; ``alone``: other members are known, or addresses to join, but none is reachable."""

    engine: str
    free_bytes: int
    free_inodes: int
    alone: bool
    drained: bool
    failed: tuple[str, ...]
    """Operators and sources here that have failed."""
    quarantined: tuple[str, ...]
    """Operators here that have killed the engine too often."""
    waiting: tuple[str, ...]
    """Operators here that wait to be resumed, for disk space or for their engine, with the reason."""
    unstored: str = ""
    """Why records cannot be stored."""


def readiness_of(condition: Condition) -> Readiness:
    """Return the readiness; absent nodes make no node unready, or a cluster that starts one by one would never be ready."""
    reasons = sorted(_reasons(condition), key=lambda reason: reason.weight != "unready")
    return Readiness(ready=not any(reason.weight == "unready" for reason in reasons), reasons=tuple(reasons))


def _reasons(condition: Condition) -> Iterator[Reason]:
    """Yield the reasons; among equal weights, the worst first."""
    if condition.free_bytes < MIN_FREE_BYTES:
        free, needed = f"{condition.free_bytes / 1e6:.0f}", f"{MIN_FREE_BYTES / 1e6:.0f}"
        room = f"{free} MB are left on the disk of the data directory, a node needs {needed}"
        yield Reason(code="low-disk", weight="unready", message=room, hint="free some space: operators wait for it")
    elif condition.free_inodes < MIN_FREE_INODES:
        room = f"{condition.free_inodes} inodes are left on the disk of the data directory, a node needs {MIN_FREE_INODES}"
        yield Reason(code="low-disk", weight="unready", message=room, hint="delete files that you do not need")
    if condition.unstored:
        message = f"records cannot be stored: {condition.unstored}"
        hint = "free some space, or see to the disk: what waits is stored by itself then, nothing acknowledged is lost"
        yield Reason(code="not-stored", weight="unready", message=message, hint=hint)
    if condition.engine.startswith("failed"):
        reason = condition.engine.partition(": ")[2]
        hint = "see engine.log in the data directory, and: sbon doctor"
        yield Reason(code="engine-failed", weight="unready", message=f"the engine failed: {reason}", hint=hint)
    if condition.alone:
        hint = "see whether the others run, and: sbon doctor"
        yield Reason(code=ALONE, weight="impaired", message="no other member can be reached", hint=hint)
    if condition.failed:
        hint = "see: sbon query show, sbon stream show"
        yield Reason(code="parts-failed", weight="impaired", message="; ".join(condition.failed), hint=hint)
    if condition.quarantined:
        hint = "stop their queries, or raise engine.heap_mb and start the node again, which tries them anew"
        message = "; ".join(condition.quarantined)
        yield Reason(code="operators-quarantined", weight="impaired", message=message, hint=hint)
    if condition.waiting:
        hint = "remove the cause; they continue by themselves"
        yield Reason(code="operators-wait", weight="impaired", message="; ".join(condition.waiting), hint=hint)
    if condition.drained:
        hint = "to end it for good: sbon leave"
        yield Reason(code="drained", weight="impaired", message="it takes no part in queries any more", hint=hint)

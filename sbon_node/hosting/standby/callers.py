"""Checks of the callers of a node that keeps backups, of operators and of sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from sbon_node.net.peers import Caller
from sbon_protocol.errors import SbonError


class Stored(Protocol):
    """A backup as it is stored: its ``host`` with name and instance, and the epoch before which calls are refused."""

    @property
    def host(self) -> str: ...

    @property
    def expected(self) -> tuple[str, str]: ...

    @property
    def sealed(self) -> int: ...


class KeptBackup(Protocol):
    @property
    def stored(self) -> Stored: ...


K = TypeVar("K", bound=KeptBackup)


def kept_for(known: Mapping[str, K], backed: str, caller: Caller, me: str) -> K:
    """Return the backup of what the caller hosts; raise :class:`SbonError` ``backup-unknown`` or ``fenced``."""
    kept = known.get(backed)
    if kept is None:
        raise SbonError("backup-unknown", f"{me} keeps no backup of it", where=backed)
    if (caller.node, caller.instance) != kept.stored.expected:
        raise SbonError("fenced", f"{kept.stored.host} hosts it", where=backed)
    return kept


def check_epoch(stored: Stored, epoch: int, backed: str, me: str) -> None:
    """Raise :class:`SbonError` ``fenced`` for an epoch that is over."""
    if epoch < stored.sealed:
        raise SbonError("fenced", f"epoch {epoch} is over: {me} has heard of epoch {stored.sealed}", where=backed)

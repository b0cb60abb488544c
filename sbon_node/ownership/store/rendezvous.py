"""Choice of a register's acceptors by rendezvous hashing (Thaler and Ravishankar, IEEE/ACM ToN 1998). Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from sbon_node.ownership.consensus.states import Acceptor

ACCEPTORS = 3
"""Acceptors of a register: two of them agree, so that any one may be lost."""


def ranked(key: str, acceptors: Iterable[Acceptor]) -> list[Acceptor]:
    """Return the acceptors in the register's own order, which a member that joins or leaves does not change for the others."""
    return sorted(acceptors, key=lambda one: (_weight(key, one.node), one), reverse=True)


def chosen(key: str, acceptors: Iterable[Acceptor], first: Sequence[Acceptor] = ()) -> tuple[Acceptor, ...]:
    """Return the acceptors of a new register: three, ``first`` and then the highest ranked; one, if there are fewer.

    Two acceptors would both be needed for each change, so that the loss of either would block the register.
    """
    order = tuple(dict.fromkeys((*first, *ranked(key, acceptors))))
    return order[:ACCEPTORS] if len(order) >= ACCEPTORS else order[:1]


def _weight(key: str, node: str) -> bytes:
    return hashlib.blake2b(f"{key}\0{node}".encode(), digest_size=8).digest()

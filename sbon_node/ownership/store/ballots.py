"""The ballots of this node as a proposer of registers."""

from __future__ import annotations

import msgspec

from sbon_node.context import Context
from sbon_node.ownership.consensus.states import Ballot
from sbon_node.ownership.store.acceptor_store import AcceptorStore
from sbon_protocol.api.bounded import MAX_COUNT
from sbon_protocol.errors import SbonError

LIFE_BITS = 24
"""Low bits of a ballot's counter: the number of this node's life, so that no two lives use the same ballot."""
KEPT = 4096
"""Registers of which a greater number than this node's own is remembered."""


class Lives(msgspec.Struct, frozen=True):
    """The number of lives of this node as a proposer: its starts, and the times that it forgot its numbers."""

    count: int = 0


class Ballots:
    """Ballots that this node has not used for the same register in any life.

    A number that was learnt from one register is used for that register alone: whoever claims the greatest of all for one
    harms no other.
    """

    def __init__(self, context: Context, store: AcceptorStore) -> None:
        self._context, self._store = context, store
        self._number = 0
        self._learnt: dict[str, int] = {}
        self._begin_life()

    def __len__(self) -> int:
        """Return the number of registers of which a greater number than this node's own is remembered."""
        return len(self._learnt)

    def learn(self, key: str, ballot: Ballot) -> None:
        """Let the next ballots for the register be greater than ``ballot``."""
        number = ballot.counter >> LIFE_BITS
        if number <= max(self._number, self._learnt.get(key, 0)):
            return
        if key not in self._learnt and len(self._learnt) >= KEPT:
            # The numbers that are forgotten come again, in ballots of another life.
            self._begin_life()
            self._learnt.clear()
        self._learnt[key] = number

    def next(self, key: str) -> Ballot:
        """Return a ballot for the register, greater than all that were learnt of it; raise ``ballot-exhausted``."""
        number = max(self._number, self._learnt.get(key, 0)) + 1
        counter = number << LIFE_BITS | self._life
        if counter > MAX_COUNT:
            raise SbonError("ballot-exhausted", f"no ballot is greater than the one that was promised for {key}", where=key)
        if key in self._learnt:
            self._learnt[key] = number
        else:
            self._number = number
        me = self._store.me
        return Ballot(counter, me.node, me.instance)

    def _begin_life(self) -> None:
        lives = self._context.store.get("proposer", "self", Lives) or Lives()
        self._life = lives.count + 1
        self._context.store.put("proposer", "self", Lives(self._life), sync=True)

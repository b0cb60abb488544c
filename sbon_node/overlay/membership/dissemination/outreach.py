"""Targets of gossip datagrams, and partners and times of table comparisons. Pure."""

from __future__ import annotations

import random
from collections import deque

from sbon_node.overlay.membership.detector.instructions import Instruction, Send
from sbon_node.overlay.membership.detector.probes import state_update_of
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.membership.table import Table
from sbon_protocol.messages import Digest

MAX_REMEMBERED_DEAD = 256
LOST_SHARE = 0.3
"""Share of reconciliations that are tried with a member thought dead or away."""


class Outreach:
    """One node's choice of gossip targets and reconciliation partners."""

    def __init__(self, table: Table, settings: MembershipSettings, rng: random.Random) -> None:
        self._table, self._settings, self._rng = table, settings, rng
        self._dead: deque[tuple[float, str]] = deque(maxlen=MAX_REMEMBERED_DEAD)
        self.next_sync: float | None = None

    def died(self, name: str, now: float) -> None:
        """Keep sending gossip for a while to a member that has just died."""
        self._dead.append((now, name))

    def gossip(self, now: float) -> list[Instruction]:
        """Send gossip to random members; those who died lately count as living, since a living one will object."""
        while self._dead and now - self._dead[0][0] > self._settings.gossip_to_dead_s:
            self._dead.popleft()
        names = self._table.there.sample(self._rng, self._settings.gossip_fanout)
        out: list[Instruction] = []
        for name in names:
            dead = len(self._dead)
            if dead and self._rng.random() * (len(self._table.there) + dead) < dead:
                name = self._dead[self._rng.randrange(dead)][1]
            if (row := self._table.get(name)) is not None and row.member.state != "left":
                out.append(Send(row.member.address, None, first=state_update_of(row)))
        return out

    def reconcile(self, now: float) -> list[Instruction]:
        """Open a reconciliation if one is due."""
        mean_s = self._settings.sync_interval_s
        if self.next_sync is None:
            self.next_sync = now + mean_s * self._rng.random()
        if now < self.next_sync:
            return []
        self.next_sync = now + mean_s * self._rng.uniform(0.5, 1.5)
        alive, lost = self._table.there, self._table.lost
        with_lost = len(lost) > 0 and (not len(alive) or self._rng.random() < LOST_SHARE)
        out: list[Instruction] = []
        for name in (lost if with_lost else alive).sample(self._rng, 1):
            row = self._table.get(name)
            assert row is not None
            digest = Digest(self._table.own.name, self._table.fingerprints.digest())
            # A living node thought dead may not know this node either: it receives both records.
            carries = (self._table.own,) if with_lost else ()
            out.append(Send(row.member.address, digest, first=state_update_of(row), carries=carries))
        return out

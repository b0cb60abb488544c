"""The membership table: what is rumoured of every node, and which rumour wins. Pure.

- A rumour of a greater incarnation wins. Within one incarnation the graver state wins: alive < suspect < away < dead < left. Only
  the node itself raises its incarnation: that is how it refutes, returns and restarts. Coordinates win by their own version.
- A name belongs to the instance (data directory) that has it until it is dead or has left. A node that is away will come back, so
  its name is not free. The next instance outbids the incarnation of the last one.
- The dead and those who left stay as tombstones for a time, lest late rumours revive them; one never heard of before is not
  taken in.
"""

from __future__ import annotations

import random
from typing import Literal

import msgspec

from sbon_protocol.messages import Member, MemberState

GRAVITY: dict[MemberState, int] = {"alive": 0, "suspect": 1, "away": 2, "dead": 3, "left": 4}
GONE: frozenset[MemberState] = frozenset({"dead", "left"})
REACHABLE: frozenset[MemberState] = frozenset({"alive", "suspect"})
MAX_INCARNATION = 2**53
"""Rumours beyond it are refused, so that nobody can be made to outbid what the wire cannot carry."""

Change = Literal["joined", "suspected", "died", "went-away", "returned", "left", "updated", ""]

_BECAME: dict[MemberState, Change] = {"suspect": "suspected", "dead": "died", "away": "went-away", "left": "left"}


class Row(msgspec.Struct):
    """One member, and since when it is in its state (seconds of the local clock)."""

    member: Member
    since: float


class Table:
    """Every other node this one has heard of, and itself; bounded."""

    def __init__(self, own: Member, most: int) -> None:
        self.own = own
        self._rows: dict[str, Row] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> list[Row]:
        """Others, by name."""
        return [self._rows[name] for name in sorted(self._rows)]

    def get(self, name: str) -> Row | None:
        return self._rows.get(name)

    def names(self, states: frozenset[MemberState] = REACHABLE) -> list[str]:
        return [row.member.name for row in self.rows() if row.member.state in states]

    def everyone(self) -> list[Member]:
        return [self.own, *(row.member for row in self.rows())]

    def some(self, rng: random.Random, most: int) -> list[Member]:
        """A random few of those who are not gone, and this node itself first."""
        there = [row.member for row in self._rows.values() if row.member.state not in GONE]
        return [self.own, *rng.sample(there, min(most, len(there)))]

    def living(self) -> int:
        """How many can be talked to, this node included."""
        return 1 + sum(row.member.state in REACHABLE for row in self._rows.values())

    def conflicts(self, rumour: Member) -> bool:
        """Whether the rumour is of another node under the name of one that still has it."""
        known = self._known(rumour.name)
        if known is None or known.state in GONE or rumour.state in GONE:
            return False
        return self._others(known, rumour)

    def hear(self, rumour: Member, now: float) -> Change:
        """Takes a rumour about another node; returns what it changed, or nothing. Conflicting ones change nothing."""
        row = self._rows.get(rumour.name)
        if rumour.incarnation > MAX_INCARNATION:
            return ""
        if row is None:
            return self._first(rumour, now)
        known = row.member
        if known.state not in GONE and self._others(known, rumour):
            return ""
        if (rumour.incarnation, GRAVITY[rumour.state]) <= (known.incarnation, GRAVITY[known.state]):
            self.place(rumour)
            return ""
        return self._replace(row, rumour, now)

    def place(self, rumour: Member) -> None:
        """Takes the rumour's coordinate, if it is newer."""
        row = self._rows.get(rumour.name)
        if row is None or rumour.coordinate is None or rumour.incarnation < row.member.incarnation:
            return
        if row.member.coordinate is None or rumour.coordinate_version > row.member.coordinate_version:
            row.member = msgspec.structs.replace(
                row.member, coordinate=rumour.coordinate, coordinate_version=rumour.coordinate_version
            )

    def mark(self, name: str, state: MemberState, incarnation: int, now: float) -> Change:
        """This node's own finding about another one, if it still is of that incarnation."""
        row = self._rows.get(name)
        if row is None or row.member.incarnation != incarnation or GRAVITY[state] <= GRAVITY[row.member.state]:
            return ""
        return self._replace(row, msgspec.structs.replace(row.member, state=state), now)

    def refute(self, rumour: Member) -> bool:
        """A rumour about this node itself that is not of its present life: it outbids it. Returns whether it did.

        That is one that says anything but alive, or that another address, or more moves of the coordinate than this life has
        made, show to come from an earlier life (or from the dead owner of the name before).
        """
        own = self.own
        if own.state != "alive" or rumour.incarnation < own.incarnation or rumour.incarnation >= MAX_INCARNATION:
            return False
        present = rumour.state == "alive" and rumour.address == own.address and not self._others(own, rumour)
        if present and rumour.incarnation == own.incarnation and rumour.coordinate_version <= own.coordinate_version:
            return False
        self.own = msgspec.structs.replace(own, incarnation=rumour.incarnation + 1)
        return True

    def expire(self, now: float, tombstone_s: float) -> list[str]:
        """Forgets those who are gone for long; returns their names."""
        old = [n for n, row in self._rows.items() if row.member.state in GONE and now - row.since > tombstone_s]
        for name in old:
            del self._rows[name]
        return sorted(old)

    @staticmethod
    def _others(known: Member, rumour: Member) -> bool:
        return bool(known.instance and rumour.instance and known.instance != rumour.instance)

    def _known(self, name: str) -> Member | None:
        if name == self.own.name:
            return self.own
        row = self._rows.get(name)
        return row.member if row else None

    def _first(self, rumour: Member, now: float) -> Change:
        if rumour.state in GONE or not self._room():
            return ""
        self._rows[rumour.name] = Row(rumour, now)
        return "joined" if rumour.state in REACHABLE else "updated"

    def _room(self) -> bool:
        """Tombstones make room for the living, the oldest one first."""
        if len(self._rows) < self._most:
            return True
        gone = [(row.since, name) for name, row in self._rows.items() if row.member.state in GONE]
        if not gone:
            return False
        del self._rows[min(gone)[1]]
        return True

    def _replace(self, row: Row, rumour: Member, now: float) -> Change:
        before = row.member
        same_life = before.incarnation == rumour.incarnation
        if rumour.coordinate is None or (same_life and before.coordinate_version > rumour.coordinate_version):
            version = before.coordinate_version if same_life else 0
            rumour = msgspec.structs.replace(rumour, coordinate=before.coordinate, coordinate_version=version)
        row.member = rumour
        if rumour.state == before.state:
            return "updated"
        row.since = now
        if rumour.state in REACHABLE and before.state not in REACHABLE:
            return "returned"
        return "updated" if rumour.state == "alive" else _BECAME[rumour.state]

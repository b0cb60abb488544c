"""The membership table: what is rumoured of every node, and which rumour wins. Pure.

- A rumour of a greater incarnation wins. Within one incarnation the graver state wins: alive < suspect < away < dead < left. Only
  the node itself raises its incarnation: that is how it refutes, returns and restarts. Coordinates win by their own version.
- A name belongs to the instance (data directory) that has it until it is dead or has left. A node that is away will come back, so
  its name is not free. The next instance outbids the incarnation of the last one.
- The dead and those who left stay as tombstones for a time, lest late rumours revive them; one never heard of before is not
  taken in.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from sbon_node.membership.fingerprints import Fingerprints
from sbon_node.membership.roster import Roster
from sbon_protocol.messages import Coordinate, Finding, Member, MemberState, Place

GRAVITY: dict[MemberState, int] = {"alive": 0, "suspect": 1, "away": 2, "dead": 3, "left": 4}
GONE: frozenset[MemberState] = frozenset({"dead", "left"})
REACHABLE: frozenset[MemberState] = frozenset({"alive", "suspect"})
LOST: frozenset[MemberState] = frozenset({"dead", "away"})
MAX_INCARNATION = 2**53
"""Rumours beyond it are refused, so that nobody can be made to outbid what the wire cannot carry."""

Change = Literal["joined", "suspected", "died", "went-away", "returned", "left", "updated", ""]

_BECAME: dict[MemberState, Change] = {"suspect": "suspected", "dead": "died", "away": "went-away", "left": "left"}


class Row(msgspec.Struct):
    """One member, since when it is in its state, and when its coordinate was last heard (seconds of the local clock)."""

    member: Member
    since: float
    placed: float


class Table:
    """Every other node this one has heard of, and itself; bounded.

    ``fingerprints`` stand for all who are not gone; ``there`` holds the names that can be talked to, ``lost`` those that are dead
    or away, both without this node's own.
    """

    def __init__(self, own: Member, most: int) -> None:
        self._own = own
        self._rows: dict[str, Row] = {}
        self._most = most
        self.there, self.lost, self._gone = Roster(), Roster(), Roster()
        self.fingerprints = Fingerprints()
        self.fingerprints.put(own)

    @property
    def own(self) -> Member:
        return self._own

    @own.setter
    def own(self, member: Member) -> None:
        self._own = member
        self.fingerprints.put(member)

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> list[Row]:
        """Others, by name."""
        return [self._rows[name] for name in sorted(self._rows)]

    def get(self, name: str) -> Row | None:
        return self._rows.get(name)

    def member(self, name: str) -> Member | None:
        """Of this node itself as well."""
        if name == self._own.name:
            return self._own
        row = self._rows.get(name)
        return row.member if row else None

    def names(self, states: frozenset[MemberState] = REACHABLE) -> list[str]:
        if states == REACHABLE:
            return sorted(self.there.names())
        return [row.member.name for row in self.rows() if row.member.state in states]

    def everyone(self) -> list[Member]:
        return [self._own, *(row.member for row in self.rows())]

    def living(self) -> int:
        """How many can be talked to, this node included."""
        return 1 + len(self.there)

    def conflicts(self, rumour: Member) -> bool:
        """Whether the rumour is of another node under the name of one that still has it."""
        known = self.member(rumour.name)
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
            if rumour.coordinate is not None:
                self.place(rumour.name, rumour.incarnation, rumour.coordinate, rumour.coordinate_version, now)
            return ""
        return self._replace(row, rumour, now)

    def find(self, finding: Finding, now: float) -> Change:
        """Takes a finding about another node, if it is of its present or a later incarnation and graver than what is known."""
        row = self._rows.get(finding.name)
        if row is None or finding.incarnation > MAX_INCARNATION:
            return ""
        known = row.member
        if (finding.incarnation, GRAVITY[finding.state]) <= (known.incarnation, GRAVITY[known.state]):
            return ""
        return self._replace(row, replace(known, state=finding.state, incarnation=finding.incarnation), now)

    def place(
        self, name: str, incarnation: int, coordinate: Coordinate, version: int, now: float, *, direct: bool = False
    ) -> bool:
        """Takes a coordinate, if it is newer; returns whether its version is. ``direct`` comes from the member itself: it is
        taken between two versions too."""
        row = self._rows.get(name)
        if row is None or (incarnation != row.member.incarnation and not (direct and incarnation > row.member.incarnation)):
            return False
        known = row.member.coordinate_version if row.member.coordinate is not None else -1
        if version > known:
            self._put(row, replace(row.member, coordinate=coordinate, coordinate_version=version))
            row.placed = now
            return True
        if direct and version == known:
            row.member, row.placed = replace(row.member, coordinate=coordinate), now
        return False

    def outdated(self, place: Place) -> bool:
        """Whether nothing in it is news."""
        row = self._rows.get(place.name)
        return row is None or (row.member.coordinate is not None and place.coordinate_version <= row.member.coordinate_version)

    def mark(self, name: str, state: MemberState, incarnation: int, now: float) -> Change:
        """This node's own finding about another one, if it still is of that incarnation."""
        row = self._rows.get(name)
        if row is None or row.member.incarnation != incarnation:
            return ""
        return self.find(Finding(name, incarnation, state), now)

    def refute(self, rumour: Member | Finding) -> bool:
        """A rumour about this node itself that is not of its present life: it outbids it. Returns whether it did.

        That is one that says anything but alive, or that another address, or more moves of the coordinate than this life has
        made, show to come from an earlier life (or from the dead owner of the name before).
        """
        own = self._own
        if own.state != "alive" or rumour.incarnation < own.incarnation or rumour.incarnation >= MAX_INCARNATION:
            return False
        if isinstance(rumour, Member) and rumour.state == "alive" and rumour.incarnation == own.incarnation:
            present = rumour.address == own.address and not self._others(own, rumour)
            if present and rumour.coordinate_version <= own.coordinate_version:
                return False
        self.own = replace(own, incarnation=rumour.incarnation + 1)
        return True

    def expire(self, now: float, tombstone_s: float) -> list[str]:
        """Forgets those who are gone for long; returns their names."""
        old = [name for name in self._gone.names() if now - self._rows[name].since > tombstone_s]
        for name in old:
            self._drop(name)
        return sorted(old)

    @staticmethod
    def _others(known: Member, rumour: Member) -> bool:
        return bool(known.instance and rumour.instance and known.instance != rumour.instance)

    def _first(self, rumour: Member, now: float) -> Change:
        if rumour.state in GONE or not self._room():
            return ""
        self._rows[rumour.name] = row = Row(rumour, now, now)
        self.fingerprints.put(rumour)
        self._list(row.member)
        return "joined" if rumour.state in REACHABLE else "updated"

    def _room(self) -> bool:
        """Tombstones make room for the living, the oldest one first."""
        if len(self._rows) < self._most:
            return True
        gone = [(self._rows[name].since, name) for name in self._gone.names()]
        if not gone:
            return False
        self._drop(min(gone)[1])
        return True

    def _drop(self, name: str) -> None:
        del self._rows[name]
        self.fingerprints.drop(name)
        self.there.discard(name)
        self.lost.discard(name)
        self._gone.discard(name)

    def _put(self, row: Row, member: Member) -> None:
        row.member = member
        self.fingerprints.put(member)

    def _list(self, member: Member) -> None:
        for roster, states in ((self.there, REACHABLE), (self.lost, LOST), (self._gone, GONE)):
            if member.state in states:
                roster.add(member.name)
            else:
                roster.discard(member.name)

    def _replace(self, row: Row, rumour: Member, now: float) -> Change:
        before = row.member
        same_life = before.incarnation == rumour.incarnation
        if rumour.coordinate is None or (same_life and before.coordinate_version > rumour.coordinate_version):
            version = before.coordinate_version if same_life else 0
            rumour = replace(rumour, coordinate=before.coordinate, coordinate_version=version)
        elif rumour.coordinate is not before.coordinate:
            row.placed = now
        self._put(row, rumour)
        if rumour.state == before.state:
            return "updated"
        row.since = now
        self._list(rumour)
        if rumour.state in REACHABLE and before.state not in REACHABLE:
            return "returned"
        return "updated" if rumour.state == "alive" else _BECAME[rumour.state]

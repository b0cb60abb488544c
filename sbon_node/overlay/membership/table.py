"""The membership table: every node's state, and the rules by which rumours win. Pure.

- A rumour of a greater incarnation wins. Within one incarnation the graver state wins: alive < suspect < away < dead < left. Only
  the node itself raises its incarnation: that is how it refutes, returns and restarts. Coordinates win by their own version.
- A name belongs to its instance (data directory) until that has left. The name of a lost node changes hands where its next
  instance is started with ``--replace``, and joins; rumours of it win once the last instance is dead. The next instance outbids
  the incarnation of the last.
- A rumour that leaps more than a bound above the known incarnation, or above the member's own answer, is not believed. A member
  climbs by as much with each such rumour of itself, and others believe its answer to a ping: so both sides of a long
  partition agree in the end, and no single rumour takes a name out of its owner's reach.
- Members that died or left stay as tombstones for a time, so that late rumours cannot revive them. The table takes in no
  unknown node that is dead or has left.
"""

import random
from functools import lru_cache
from hashlib import blake2b
from ipaddress import ip_address
from typing import Literal

import msgspec
from msgspec.structs import replace

from sbon_protocol.messages import Coordinate, CoordinateUpdate, Endpoint, Member, MemberState, Rumour, StateUpdate

GRAVITY: dict[MemberState, int] = {"alive": 0, "suspect": 1, "away": 2, "dead": 3, "left": 4}
GONE: frozenset[MemberState] = frozenset({"dead", "left"})
REACHABLE: frozenset[MemberState] = frozenset({"alive", "suspect"})
LOST: frozenset[MemberState] = frozenset({"dead", "away"})
MAX_INCARNATION = 2**53
"""Greatest incarnation accepted in a rumour, so that no node must outbid a number that the wire cannot carry."""

Change = Literal["joined", "suspected", "died", "went-away", "returned", "left", "updated", ""]

_BECAME: dict[MemberState, Change] = {"suspect": "suspected", "dead": "died", "away": "went-away", "left": "left"}


class Row(msgspec.Struct):
    """One member, the time of its state, and the time its coordinate was last heard (seconds of the local clock).

    ``own_incarnation`` is the greatest incarnation in the member's own answers, ``seen`` the source of its last direct answer.
    ``predecessor`` is the instance that had the name before, if this node knew it.
    """

    member: Member
    since: float
    coordinate_at: float
    own_incarnation: int = 0
    seen: Endpoint | None = None
    predecessor: str = ""


class Table:
    """This node and every other node it has heard of; bounded.

    ``fingerprints`` cover all who are not gone; ``there`` holds the names of reachable members, ``lost`` those dead or away,
    both without this node's own.
    """

    def __init__(self, own: Member, most: int, *, max_leap: int = 1024, most_at_an_address: int = 64) -> None:
        self._own = own
        self._rows: dict[str, Row] = {}
        self._most, self._leap, self._most_at_an_address = most, max_leap, most_at_an_address
        self._hosts: dict[str, int] = {}
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
        """Return the rows of other nodes, by name."""
        return [self._rows[name] for name in sorted(self._rows)]

    def get(self, name: str) -> Row | None:
        return self._rows.get(name)

    def member(self, name: str) -> Member | None:
        """Return a member's record, this node's own included."""
        if name == self._own.name:
            return self._own
        row = self._rows.get(name)
        return row.member if row else None

    def everyone(self) -> list[Member]:
        return [self._own, *(row.member for row in self.rows())]

    def living(self) -> int:
        """The number of reachable members, this node included."""
        return 1 + len(self.there)

    def conflicts(self, rumour: Member) -> bool:
        """Return whether the rumour describes another node under a name that is still taken."""
        known = self.member(rumour.name)
        if known is None or known.state in GONE or rumour.state in GONE:
            return False
        return known.instance != rumour.instance

    def leaps(self, rumour: Rumour) -> bool:
        """Return whether a rumour about another node is too far above the known state to be believed."""
        row = self._rows.get(rumour.name)
        if row is None:
            return False
        known = row.member
        if rumour.incarnation > max(known.incarnation, row.own_incarnation) + self._leap:
            return True
        version = 0 if isinstance(rumour, StateUpdate) else rumour.coordinate_version
        return rumour.incarnation == known.incarnation and version > known.coordinate_version + self._leap

    def proven(self, rumour: Member) -> bool:
        """Return whether the rumour's node has answered this node, at that address, and is reachable."""
        row = self._rows.get(rumour.name)
        if row is None or row.member.state not in REACHABLE:
            return False
        return (row.member.address, row.member.instance) == (rumour.address, rumour.instance)

    def news(self, rumour: Member | StateUpdate) -> bool:
        """Return whether it wins over the known state."""
        row = self._rows.get(rumour.name)
        if row is None:
            return True
        return (rumour.incarnation, GRAVITY[rumour.state]) > (row.member.incarnation, GRAVITY[row.member.state])

    def crowded(self, member: Member) -> bool:
        """Return whether its address has the most other members allowed; the dead and those who left do not count."""
        row = self._rows.get(member.name)
        is_counted = row is not None and row.member.state not in GONE and row.member.address.host == member.address.host
        return self._hosts.get(member.address.host, 0) - is_counted >= self._most_at_an_address

    def is_from(self, name: str, sender: Endpoint) -> bool:
        """Return whether a datagram's sender is this member's address, as announced or as last seen."""
        row = self._rows.get(name)
        return row is not None and (row.member.address == sender or row.seen == sender)

    def seen_itself(self, name: str, incarnation: int, seen: Endpoint | None = None) -> None:
        """Record the incarnation in a member's answer to this node."""
        row = self._rows.get(name)
        if row is not None and incarnation <= MAX_INCARNATION:
            row.own_incarnation, row.seen = max(row.own_incarnation, incarnation), seen or row.seen

    @staticmethod
    def by_name(address: Endpoint) -> bool:
        """Return whether a node is announced by a host name, which never equals a sender's address."""
        return not _is_ip(address.host)

    def hear(self, rumour: Member, now: float) -> Change:
        """Take a rumour about another node; return the change, if any. Conflicting rumours change nothing."""
        row = self._rows.get(rumour.name)
        if rumour.incarnation > MAX_INCARNATION:
            return ""
        if row is None:
            return self._first(rumour, now)
        known = row.member
        if known.state not in GONE and known.instance != rumour.instance:
            return ""
        if (rumour.incarnation, GRAVITY[rumour.state]) <= (known.incarnation, GRAVITY[known.state]):
            if rumour.coordinate is not None:
                self.coordinate_update(rumour.name, rumour.incarnation, rumour.coordinate, rumour.coordinate_version, now)
            return ""
        return self._replace(row, rumour, now)

    def find(self, state_update: StateUpdate, now: float) -> Change:
        """Take a state update of another node, if its incarnation is current or later and it is graver than the known state."""
        row = self._rows.get(state_update.name)
        if row is None or state_update.incarnation > MAX_INCARNATION:
            return ""
        known = row.member
        if (state_update.incarnation, GRAVITY[state_update.state]) <= (known.incarnation, GRAVITY[known.state]):
            return ""
        return self._replace(row, replace(known, state=state_update.state, incarnation=state_update.incarnation), now)

    def coordinate_update(
        self, name: str, incarnation: int, coordinate: Coordinate, version: int, now: float, *, direct: bool = False
    ) -> bool:
        """Take a newer coordinate; return whether its version is newer.

        A ``direct`` coordinate comes from the member itself, and is taken between two versions too.
        """
        row = self._rows.get(name)
        if row is None or (incarnation != row.member.incarnation and not (direct and incarnation > row.member.incarnation)):
            return False
        known = row.member.coordinate_version if row.member.coordinate is not None else -1
        if version > known:
            self._put(row, replace(row.member, coordinate=coordinate, coordinate_version=version))
            row.coordinate_at = now
            return True
        if direct and version == known:
            row.member, row.coordinate_at = replace(row.member, coordinate=coordinate), now
        return False

    def outdated(self, coordinate_update: CoordinateUpdate) -> bool:
        """Return whether nothing in it is news."""
        if coordinate_update.name == self._own.name:
            return coordinate_update.coordinate_version <= self._own.coordinate_version
        row = self._rows.get(coordinate_update.name)
        newest = row.member.coordinate_version if row is not None and row.member.coordinate is not None else -1
        return row is None or coordinate_update.coordinate_version <= newest

    def mark(self, name: str, state: MemberState, incarnation: int, now: float) -> Change:
        """Set the state of another node that still has this incarnation, by this node's own judgement."""
        row = self._rows.get(name)
        if row is None or row.member.incarnation != incarnation:
            return ""
        return self.find(StateUpdate(name, incarnation, state), now)

    def refute(self, rumour: Member | StateUpdate) -> bool:
        """Outbid a rumour about this node from an earlier life; return whether it did.

        Such a rumour has another state than alive, another address, or more moves of the coordinate than this life has made: it
        comes from an earlier life (or from the dead owner of the name before).
        """
        own = self._own
        if own.state != "alive" or rumour.incarnation < own.incarnation or rumour.incarnation > MAX_INCARNATION:
            return False
        if isinstance(rumour, Member) and rumour.state == "alive" and rumour.incarnation == own.incarnation:
            present = rumour.address == own.address and own.instance == rumour.instance
            if present and rumour.coordinate_version <= own.coordinate_version:
                return False
        self.own = replace(own, incarnation=min(rumour.incarnation, own.incarnation + self._leap, MAX_INCARNATION - 1) + 1)
        return True

    def refute_coordinate(self, incarnation: int, version: int) -> bool:
        """Outbid a version of this node's own coordinate that it has not published; return whether it did."""
        own = self._own
        if own.coordinate is None or incarnation != own.incarnation or version <= own.coordinate_version:
            return False
        self.own = replace(own, coordinate_version=min(version, own.coordinate_version + self._leap) + 1)
        return True

    def expire(self, now: float, tombstone_s: float) -> list[str]:
        """Delete nodes that are gone for long; return their names."""
        old = [name for name in self._gone.names() if now - self._rows[name].since > tombstone_s]
        for name in old:
            self._drop(name)
        return sorted(old)

    def _first(self, rumour: Member, now: float) -> Change:
        if rumour.state in GONE or not self._room():
            return ""
        self._rows[rumour.name] = row = Row(rumour, now, now)
        self._count(rumour, 1)
        self.fingerprints.put(rumour)
        self._list(row.member)
        return "joined" if rumour.state in REACHABLE else "updated"

    def _room(self) -> bool:
        """Return whether there is room; tombstones make room for the living, the oldest first."""
        if len(self._rows) < self._most:
            return True
        tombstones = [(self._rows[name].since, name) for name in self._gone.names()]
        if tombstones:
            self._drop(min(tombstones)[1])
        return bool(tombstones)

    def _drop(self, name: str) -> None:
        self._count(self._rows.pop(name).member, -1)
        self.fingerprints.drop(name)
        for roster in (self.there, self.lost, self._gone):
            roster.discard(name)

    def _count(self, member: Member, by: int) -> None:
        host = member.address.host
        if member.state not in GONE:
            self._hosts[host] = self._hosts.get(host, 0) + by
            if not self._hosts[host]:
                del self._hosts[host]

    def _put(self, row: Row, member: Member) -> None:
        self._count(row.member, -1)
        self._count(member, 1)
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
            row.coordinate_at = now
        self._put(row, rumour)
        if before.instance != rumour.instance:
            row.predecessor = before.instance
        if rumour.state == before.state:
            return "updated"
        row.since = now
        self._list(rumour)
        if rumour.state in REACHABLE and before.state not in REACHABLE:
            return "returned"
        return "updated" if rumour.state == "alive" else _BECAME[rumour.state]


@lru_cache(maxsize=4096)
def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


# -- A changing set of names with random draws in constant time; seed and history determine the draws. Pure -----------


class Roster:
    def __init__(self) -> None:
        self._names: list[str] = []
        self._at: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._at

    def names(self) -> list[str]:
        """Return the names in no meaningful order."""
        return list(self._names)

    def add(self, name: str) -> None:
        if name not in self._at:
            self._at[name] = len(self._names)
            self._names.append(name)

    def discard(self, name: str) -> None:
        at = self._at.pop(name, None)
        if at is None:
            return
        last = self._names.pop()
        if last != name:
            self._names[at] = last
            self._at[last] = at

    def sample(self, rng: random.Random, most: int) -> list[str]:
        """Return at most ``most`` different names, drawn at random."""
        if most >= len(self._names):
            return list(self._names)
        names: dict[str, None] = {}
        while len(names) < most:
            names[self._names[int(rng.random() * len(self._names))]] = None
        return list(names)


MOST_BUCKETS = 256
BUCKET_MEMBERS = 8
"""Members in a bucket, at most, as long as there are fewer than 2,048."""


def bucket_of(name: str) -> int:
    """Return the bucket of a name among the greatest number of buckets."""
    return blake2b(name.encode(), digest_size=4).digest()[0]


class Fingerprints:
    """Fingerprints of a membership table, to find the buckets that differ between two tables.

    Updates are made entry by entry. An entry is a member that is not gone; a suspect counts as alive. Its bucket is the first
    byte of the BLAKE2b digest (4 bytes) of its name; a bucket's fingerprint is the exclusive or of the digests of its entries'
    ``name|incarnation|state|coordinate version``. With fewer buckets, a power of two, bucket i unites those whose number is i
    modulo that power. Tombstones are left out: a node that joined later has none, and needs none.

    Changes are noted, and computed on demand: most entries change more often than that.
    """

    def __init__(self) -> None:
        self._buckets = [0] * MOST_BUCKETS
        self._names: list[dict[str, None]] = [{} for _ in range(MOST_BUCKETS)]
        self._at: dict[str, int] = {}
        self._entries: dict[str, int] = {}
        self._changed: dict[str, Member] = {}
        self._folded: dict[int, bytes] = {}

    def put(self, member: Member) -> None:
        """Note that an entry of the table, a tombstone perhaps, is new or has changed."""
        if member.name not in self._at:
            at = self._at[member.name] = bucket_of(member.name)
            self._names[at][member.name] = None
        self._changed[member.name] = member

    def drop(self, name: str) -> None:
        self._changed.pop(name, None)
        at = self._at.pop(name)
        del self._names[at][name]
        self._buckets[at] ^= self._entries.pop(name, 0)
        self._folded.clear()

    def _reckon(self) -> None:
        for name, member in self._changed.items():
            before = self._entries.pop(name, 0)
            entry = 0
            if member.state not in ("dead", "left"):
                self._entries[name] = entry = _digest(member)
            if entry != before:
                self._buckets[self._at[name]] ^= before ^ entry
                self._folded.clear()
        self._changed.clear()

    def names(self, bucket: int, of: int) -> list[str]:
        """Return the names of all entries, tombstones included, in one of ``of`` buckets."""
        return [name for at in range(bucket, MOST_BUCKETS, of) for name in self._names[at]]

    def fold(self, of: int) -> bytes:
        """Return ``of`` fingerprints, a power of two, of 4 bytes each, big-endian."""
        self._reckon()
        if of not in self._folded:
            folded = self._buckets
            while len(folded) > of:
                half = len(folded) // 2
                folded = [a ^ b for a, b in zip(folded[:half], folded[half:], strict=True)]
            self._folded[of] = b"".join([value.to_bytes(4, "big") for value in folded])
        return self._folded[of]

    def digest(self) -> bytes:
        """Return fingerprints of as many buckets as suit the number of entries."""
        self._reckon()
        of = 1
        while of < MOST_BUCKETS and of * BUCKET_MEMBERS < len(self._entries):
            of *= 2
        return self.fold(of)

    def differing(self, other: bytes) -> list[int]:
        """Return the buckets that differ from these fingerprints, whose number must be a power of two up to 256."""
        own = self.fold(len(other) // 4)
        if own == other:
            return []
        return [at // 4 for at in range(0, len(other), 4) if own[at : at + 4] != other[at : at + 4]]


def well_formed(fingerprints: bytes) -> bool:
    """Return whether they have a valid number of buckets."""
    of, rest = divmod(len(fingerprints), 4)
    return rest == 0 and 1 <= of <= MOST_BUCKETS and of & (of - 1) == 0


def _digest(member: Member) -> int:
    state = "alive" if member.state == "suspect" else member.state
    entry = f"{member.name}|{member.incarnation}|{state}|{member.coordinate_version}"
    return int.from_bytes(blake2b(entry.encode(), digest_size=4).digest(), "big")

"""Gossip's targets, and the messages by which two tables come to agree: digest, summary, want, wanted members. Pure.

Everything travels in datagrams, cut to their size: the digest shows the buckets that differ, the summary lists one side's
entries in some of them, and only newer entries travel whole. The rest waits for one of the next rounds, which begin at a random
bucket.

If one side lists a member as dead and the other as alive, the death is not believed: after a partition that would kill all
members once more. The member is *doubted*: the node that sees the contradiction pings it, with the state update; the member
refutes, or proves silent.
"""

import random
from collections import deque
from itertools import accumulate

import msgspec

from sbon_node.overlay.membership.detector.instructions import Instruction, Send
from sbon_node.overlay.membership.detector.probes import state_update_of
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.membership.table import GONE, GRAVITY, MAX_INCARNATION, Table, well_formed
from sbon_protocol.messages import CoordinateUpdate, Digest, Known, Member, Rumour, StateUpdate, Summary, Want

SUMMARY_BYTES = 900
"""Bytes of lines in a summary, and of names in a want; the datagram's head and a state update come on top."""
MAX_LINES = 128
MAX_OFFERED = 64
"""Members sent in answer to one message of a reconciliation."""
_ENCODER = msgspec.msgpack.Encoder()


class Compared(msgspec.Struct):
    """Result of a comparison: members to ask for, to send, and to doubt."""

    wanted: list[str] = []
    offered: list[Rumour] = []
    doubted: list[StateUpdate] = []
    own_version: int | None = None
    """A version of this node's own coordinate that it has not published."""


def summarise(table: Table, digest: Digest, rng: random.Random) -> Summary | None:
    """Return the answer to a digest; None if the tables agree, or the digest cannot be read."""
    if not well_formed(digest.fingerprints):
        return None
    differing = table.fingerprints.differing(digest.fingerprints)
    if not differing:
        return None
    start = rng.randrange(len(differing))
    buckets = len(digest.fingerprints) // 4
    full: list[int] = []
    lines: list[Known] = []
    size = 0
    for bucket in differing[start:] + differing[:start]:
        members = [member for name in table.fingerprints.names(bucket, buckets) if (member := table.member(name))]
        for line in [Known(one.name, one.incarnation, one.state, one.coordinate_version) for one in members]:
            size += len(_ENCODER.encode(line))
            if size > SUMMARY_BYTES or len(lines) == MAX_LINES:
                return Summary(table.own.name, buckets, tuple(full), tuple(lines))
            lines.append(line)
        full.append(bucket)
        size += 3
    return Summary(table.own.name, buckets, tuple(full), tuple(lines))


def compare(table: Table, summary: Summary) -> Compared:
    """Compare the table with a summary."""
    out = Compared()
    named: dict[str, None] = {}
    for line in summary.known:
        named[line.name] = None
        _compare_line(table, line, out)
    if summary.buckets & (summary.buckets - 1) == 0:
        for bucket in summary.whole:
            for name in table.fingerprints.names(bucket % summary.buckets, summary.buckets):
                member = table.member(name)
                if name not in named and member is not None and member.state not in GONE:
                    out.offered.append(member)
    del out.offered[MAX_OFFERED:]
    return out


def serve(table: Table, want: Want) -> list[Rumour]:
    """Return the members asked for."""
    members = [member for name in want.names[:MAX_OFFERED] if (member := table.member(name)) is not None]
    return [member for member in members if member.state != "dead"]


def want(source: str, names: list[str]) -> Want:
    """Return a want with as many of the names as a datagram takes."""
    sizes = accumulate(len(name) + 2 for name in names[:MAX_OFFERED])
    return Want(source, tuple(name for name, size in zip(names, sizes, strict=False) if size <= SUMMARY_BYTES))


def _compare_line(table: Table, line: Known, out: Compared) -> None:
    member = table.member(line.name)
    if line.incarnation > MAX_INCARNATION:
        return
    if member is None:
        if line.state not in GONE:
            out.wanted.append(line.name)
        return
    if line.name == table.own.name:
        if (line.incarnation, line.state) != (member.incarnation, member.state):
            out.doubted.append(StateUpdate(line.name, line.incarnation, line.state))
            out.offered.append(member)
        elif line.coordinate_version > member.coordinate_version:
            out.own_version = line.coordinate_version
        return
    if line.state in GONE and member.state in GONE:
        return
    if "dead" in (line.state, member.state):
        _compare_death(member, line, out)
        return
    remote, local = (line.incarnation, GRAVITY[line.state]), (member.incarnation, GRAVITY[member.state])
    if remote > local:
        out.wanted.append(line.name)
    elif remote < local:
        out.offered.append(member)
    elif line.coordinate_version > member.coordinate_version:
        out.wanted.append(line.name)
    elif line.coordinate_version < member.coordinate_version and member.coordinate is not None:
        out.offered.append(CoordinateUpdate(member.name, member.incarnation, member.coordinate, member.coordinate_version))


def _compare_death(member: Member, line: Known, out: Compared) -> None:
    """Compare a member that one side holds for dead: a greater incarnation is a later life; otherwise the member is asked."""
    dead, other = (line, member) if line.state == "dead" else (member, line)
    if other.state == "left" or other.incarnation > dead.incarnation:
        if other is line:
            out.wanted.append(line.name)
        else:
            out.offered.append(member)
    else:
        out.doubted.append(StateUpdate(line.name, dead.incarnation, "dead"))


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

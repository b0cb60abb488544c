"""Messages by which two tables come to agree: digest, summary, want, and the wanted members. Pure.

Everything travels in datagrams, cut to their size: the digest shows the buckets that differ, the summary lists one side's
entries in some of them, and only newer entries travel whole. The rest waits for one of the next rounds, which begin at a random
bucket.

If one side lists a member as dead and the other as alive, the death is not believed: after a partition that would kill all
members once more. The member is *doubted*: the node that sees the contradiction pings it, with the state update; the member
refutes, or proves silent.
"""

from __future__ import annotations

import random

import msgspec

from sbon_node.overlay.membership.dissemination.fingerprints import well_formed
from sbon_node.overlay.membership.table import GONE, GRAVITY, MAX_INCARNATION, Table
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
        members = [_line(member) for name in table.fingerprints.names(bucket, buckets) if (member := table.member(name))]
        for line in members:
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
    size, count = 0, 0
    for name in names[:MAX_OFFERED]:
        size += len(name) + 2
        if size > SUMMARY_BYTES:
            break
        count += 1
    return Want(source, tuple(names[:count]))


def _line(member: Member) -> Known:
    return Known(member.name, member.incarnation, member.state, member.coordinate_version)


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
    """Compare a member that one side holds for dead.

    A greater incarnation is a later life and credible; otherwise the member is asked.
    """
    dead, other = (line, member) if line.state == "dead" else (member, line)
    if other.state == "left" or other.incarnation > dead.incarnation:
        if other is line:
            out.wanted.append(line.name)
        else:
            out.offered.append(member)
    else:
        out.doubted.append(StateUpdate(line.name, dead.incarnation, "dead"))

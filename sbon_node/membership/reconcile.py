"""What two tables tell each other so that they agree: digest, summary, want, and what was wanted. Pure.

Everything travels in datagrams, cut to their size: the first digest finds the buckets that differ, the summary lists what one
side has in some of them, and only entries that are newer travel whole. What does not fit has its turn in one of the next rounds,
which begin at a random bucket.

A member that one side holds for dead and the other for alive is not believed dead: after a partition that would kill everybody
once more. It is *doubted*: whoever meets the contradiction pings it, with the finding, and it objects, or is found silent.
"""

from __future__ import annotations

import random

import msgspec

from sbon_node.membership.fingerprints import well_formed
from sbon_node.membership.table import GONE, GRAVITY, MAX_INCARNATION, Table
from sbon_protocol.messages import Digest, Finding, Known, Member, Place, Rumour, Summary, Want

SUMMARY_BYTES = 900
"""Of lines in a summary, and of names in a want; the datagram's head and a finding come on top."""
MAX_LINES = 128
MAX_OFFERED = 64
"""Members sent in answer to one message of a reconciliation."""
_ENCODER = msgspec.msgpack.Encoder()


class Compared(msgspec.Struct):
    """What to ask for, what to send, and whom to doubt."""

    wanted: list[str] = []
    offered: list[Rumour] = []
    doubted: list[Finding] = []


def summarise(table: Table, digest: Digest, rng: random.Random) -> Summary | None:
    """The answer to a digest; None where it says what this table says, or nothing that can be read."""
    if not well_formed(digest.fingerprints):
        return None
    differing = table.fingerprints.differing(digest.fingerprints)
    if not differing:
        return None
    start = rng.randrange(len(differing))
    buckets = len(digest.fingerprints) // 4
    whole: list[int] = []
    lines: list[Known] = []
    size = 0
    for bucket in differing[start:] + differing[:start]:
        found = [_line(member) for name in table.fingerprints.names(bucket, buckets) if (member := table.member(name))]
        for line in found:
            size += len(_ENCODER.encode(line))
            if size > SUMMARY_BYTES or len(lines) == MAX_LINES:
                return Summary(table.own.name, buckets, tuple(whole), tuple(lines))
            lines.append(line)
        whole.append(bucket)
        size += 3
    return Summary(table.own.name, buckets, tuple(whole), tuple(lines))


def compare(table: Table, summary: Summary) -> Compared:
    """What a summary calls for."""
    out = Compared()
    told: dict[str, None] = {}
    for line in summary.known:
        told[line.name] = None
        _compare_line(table, line, out)
    if summary.buckets & (summary.buckets - 1) == 0:
        for bucket in summary.whole:
            for name in table.fingerprints.names(bucket % summary.buckets, summary.buckets):
                member = table.member(name)
                if name not in told and member is not None and member.state not in GONE:
                    out.offered.append(member)
    del out.offered[MAX_OFFERED:]
    return out


def serve(table: Table, want: Want) -> list[Rumour]:
    """The members asked for."""
    found = [member for name in want.names[:MAX_OFFERED] if (member := table.member(name)) is not None]
    return [member for member in found if member.state != "dead"]


def want(source: str, names: list[str]) -> Want:
    """As many of the names as a datagram takes."""
    size, taken = 0, 0
    for name in names[:MAX_OFFERED]:
        size += len(name) + 2
        if size > SUMMARY_BYTES:
            break
        taken += 1
    return Want(source, tuple(names[:taken]))


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
            out.doubted.append(Finding(line.name, line.incarnation, line.state))
            out.offered.append(member)
        return
    if line.state in GONE and member.state in GONE:
        return
    if "dead" in (line.state, member.state):
        _compare_death(member, line, out)
        return
    theirs, ours = (line.incarnation, GRAVITY[line.state]), (member.incarnation, GRAVITY[member.state])
    if theirs > ours:
        out.wanted.append(line.name)
    elif theirs < ours:
        out.offered.append(member)
    elif line.coordinate_version > member.coordinate_version:
        out.wanted.append(line.name)
    elif line.coordinate_version < member.coordinate_version and member.coordinate is not None:
        out.offered.append(Place(member.name, member.incarnation, member.coordinate, member.coordinate_version))


def _compare_death(member: Member, line: Known, out: Compared) -> None:
    """One side holds the member for dead. The greater incarnation is the later life and may be believed; else it is asked."""
    dead, other = (line, member) if line.state == "dead" else (member, line)
    if other.state == "left" or other.incarnation > dead.incarnation:
        if other is line:
            out.wanted.append(line.name)
        else:
            out.offered.append(member)
    else:
        out.doubted.append(Finding(line.name, dead.incarnation, "dead"))

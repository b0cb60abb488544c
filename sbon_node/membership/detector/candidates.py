"""Candidates: nodes that are rumoured and have not answered this node yet. Pure.

Only a node that answers a ping becomes a member.

A ping to an address that has not answered carries no rumours, is no longer than the rumour that causes it, and is sent once for
each arrival of the rumour; where this node asked for a table, it is repeated. A silent candidate is asked over TCP once, and
forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from sbon_node.membership.detector.instructions import Call, Instruction, Measured, Refused, Send
from sbon_node.membership.settings import MembershipSettings
from sbon_node.membership.table import Table
from sbon_protocol.datagram import MAX_DATAGRAM_BYTES
from sbon_protocol.messages import Ack, Endpoint, Member, Ping

MAX_UNDER_WAY = 128
"""Pings to candidates that wait for an answer; the other candidates wait for their turn."""
MAX_CALLS = 8
"""Candidates asked over TCP at once."""
TRIES = 3
"""Pings to a candidate that an exchange over TCP has named."""
ANSWER_BYTES = 6
"""Largest excess of an Ack over its Ping, less the instance it names and the pinging node's name."""

Key = tuple[str, Endpoint, str]


class _Candidate(msgspec.Struct):
    """One candidate.

    ``sequence`` is 0 until its turn comes; ``tries`` are left; ``called`` is the time since which it is asked over TCP.
    """

    member: Member
    measured: bool
    tries: int
    sequence: int = 0
    sent_at: float = -math.inf
    called_at: float | None = None


class Admitted(msgspec.Struct, frozen=True):
    """An admitted member, the incarnation it states, and its ping if that was a measurement."""

    member: Member
    incarnation: int
    measured: Measured | None


class Candidates:
    """One node's candidates; at most as many as the table may hold, the oldest are dropped first."""

    def __init__(self, table: Table, settings: MembershipSettings, number: Callable[[], int]) -> None:
        self._table, self._settings, self._number = table, settings, number
        self._of: dict[Key, _Candidate] = {}
        self._pinged: dict[int, Key] = {}
        self._waiting: dict[Key, None] = {}
        self._called: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._of)

    def asked_for(self) -> int:
        """The number of candidates named by an exchange that have yet to answer or to time out."""
        return sum(1 for candidate in self._of.values() if candidate.tries > 0)

    def offer(self, member: Member, now: float, *, asked: bool = False, measured: bool = False) -> list[Instruction]:
        """Add a rumoured node.

        ``asked``: this node has asked for the table that names it. ``measured``: use the answer as a measurement.
        """
        key = _key(member)
        known = self._of.get(key)
        if known is not None:
            if member.incarnation > known.member.incarnation:
                known.member = member
            if known.called_at is None and known.sequence and now - known.sent_at >= self._settings.probe_timeout_s:
                return self._ping(key, known, now)
            return []
        if self._table.crowded(member):
            return [Refused("address-full", member.name)]
        if len(self._of) >= self._settings.max_members:
            self._forget(next(iter(self._of)))
        self._of[key] = _Candidate(member, measured, TRIES if asked else 1)
        self._waiting[key] = None
        return self._next(now)

    def answered(self, ack: Ack, sender: Endpoint) -> Admitted | None:
        """Return the member this answer admits, or None.

        The answer must come from the rumoured instance, at its address, in the rumoured incarnation or a later one.
        """
        key = self._pinged.get(ack.sequence)
        candidate = self._of.get(key) if key is not None else None
        if key is None or candidate is None or ack.source != candidate.member.name:
            return None
        if sender != candidate.member.address and not self._table.by_name(candidate.member.address):
            return None
        self._forget(key)
        if ack.instance != candidate.member.instance or ack.incarnation < candidate.member.incarnation:
            return None
        measured = Measured(ack.source, ack.sequence) if candidate.measured else None
        return Admitted(candidate.member, ack.incarnation, measured)

    def settle(self, member: Member) -> None:
        """Remove a candidate that has become known."""
        self._forget(_key(member))

    def tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for key in list(self._called):
            if now - (self._of[key].called_at or 0.0) >= self._settings.stand_still_s:
                self._forget(key)
        for key in list(self._pinged.values()):
            candidate = self._of[key]
            if now - candidate.sent_at < self._settings.probe_timeout_s:
                continue
            if candidate.tries > 0:
                out += self._ping(key, candidate, now)
            elif len(self._called) < MAX_CALLS:
                candidate.called_at = now
                self._called[key] = None
                del self._pinged[candidate.sequence]
                out.append(Call(candidate.member, candidate.sequence))
            else:
                self._forget(key)
        return out + self._next(now)

    def due_at(self) -> float:
        times = (self._of[key].sent_at for key in self._pinged.values())
        return min(times, default=math.inf) + self._settings.probe_timeout_s

    def pause(self, lag_s: float) -> None:
        """Extend the time limits by ``lag_s``: answers may be waiting in the socket."""
        for candidate in self._of.values():
            candidate.sent_at += lag_s

    def _next(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        while self._waiting and len(self._pinged) < MAX_UNDER_WAY:
            key = next(iter(self._waiting))
            out += self._ping(key, self._of[key], now)
        return out

    def _ping(self, key: Key, candidate: _Candidate, now: float) -> list[Instruction]:
        self._waiting.pop(key, None)
        self._pinged.pop(candidate.sequence, None)
        candidate.sequence, candidate.sent_at, candidate.tries = self._number(), now, candidate.tries - 1
        self._pinged[candidate.sequence] = key
        padding = bytes(max(0, len(candidate.member.instance) + ANSWER_BYTES - len(self._table.own.name)))
        ping = Ping(candidate.sequence, self._table.own.name, candidate.member.name, identify=True, padding=padding)
        return [Send(candidate.member.address, ping, timed=candidate.measured, most=MAX_DATAGRAM_BYTES)]

    def _forget(self, key: Key) -> None:
        candidate = self._of.pop(key, None)
        if candidate is not None:
            self._pinged.pop(candidate.sequence, None)
            self._waiting.pop(key, None)
            self._called.pop(key, None)


def _key(member: Member) -> Key:
    return member.name, member.address, member.instance

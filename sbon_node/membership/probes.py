"""Probes of one node and the pings it relays for others (SWIM, section 3.1; nacks: Lifeguard, section IV-A). Pure.

A probe is a ping; without an answer in ``probe_timeout_s`` a few others are asked to ping, the member is asked over TCP, and at
the end of ``indirect_timeout_s`` the probe has failed. TCP is asked as early as that because nothing is lost there: the time from
then on is what a live node may stand still, however many datagrams are lost before. An asked helper that has had no answer itself
after 0.8 probe timeouts says so, and hands on an answer that comes later all the same: so much is never lost of what a node says
that stood still. The two timeouts stretch with the prober's awareness score; the helper's do not.
"""

from __future__ import annotations

import math
import random
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

import msgspec

from sbon_node.membership.awareness import Awareness
from sbon_node.membership.instructions import Call, Instruction, Measured, Send
from sbon_node.membership.settings import MembershipSettings
from sbon_node.membership.table import GONE, Row, Table
from sbon_protocol.messages import Ack, Endpoint, Finding, Nack, Ping, PingRequest

MAX_RELAYED = 1024
MAX_FAILED = 256
"""Probes that failed and may be answered yet."""
MAX_PROBES = 128
"""Probes out of turn under way at once; those in turn are few by themselves."""
NACK_SHARE = 0.8
"""Of the probe timeout, after which a helper says that it had no answer."""


class Failed(NamedTuple):
    """A probe nobody answered; ``nacks`` names the helpers that have pinged the member as well, and had no answer either."""

    name: str
    incarnation: int
    nacks: tuple[str, ...]


class _Probe(msgspec.Struct):
    """``step_at`` is when its next step is due: ask others and call, then fail."""

    name: str
    incarnation: int
    step_at: float
    stretch: int
    asked: list[str] = []
    asked_at: float | None = None
    """When others have been asked, and TCP."""
    nacks: dict[str, bool] = {}
    """Of those who said that they had no answer: whether they had the time to look."""


class _Relay(msgspec.Struct):
    """A ping of ``target`` on somebody's behalf; ``deadline`` is when a nack is due, and then when nobody waits any more."""

    asker: Endpoint
    target: str
    sequence: int
    deadline: float
    nacked: bool = False


class Probes:
    def __init__(self, table: Table, settings: MembershipSettings, awareness: Awareness, rng: random.Random) -> None:
        self._table, self._settings, self._awareness, self._rng = table, settings, awareness, rng
        self._sequence = 0
        self._order: list[str] = []
        self._probes: dict[int, _Probe] = {}
        self._relays: dict[int, _Relay] = {}
        self._unanswered: dict[int, str] = {}
        self._measuring: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._probes)

    def due_at(self) -> float:
        due = math.inf
        for probe in self._probes.values():
            due = min(due, probe.step_at)
        for relay in self._relays.values():
            due = min(due, relay.deadline)
        return due

    def pause(self, lag_s: float) -> None:
        """Answers may be waiting in the socket: every time limit starts over from where it stood."""
        for probe in self._probes.values():
            probe.step_at += lag_s
            if probe.asked_at is not None:
                probe.asked_at += lag_s
        for relay in self._relays.values():
            relay.deadline += lag_s

    # -- sending ------------------------------------------------------------------------------------------------------

    def begin(self, name: str, now: float, first: Finding | None = None) -> list[Instruction]:
        """Probes a member; ``first`` is what it is told of itself, by default that it is suspected, where it is."""
        row = self._table.get(name)
        if row is None:
            return []
        stretch = self._awareness.stretch
        ping = self.ping(row, first)
        step_at = now + self._settings.probe_timeout_s * stretch
        self._probes[self._sequence] = _Probe(name, row.member.incarnation, step_at, stretch)
        return [msgspec.structs.replace(ping, timed=True)]

    def ping(self, row: Row, first: Finding | None = None) -> Send:
        """A ping on its own, which is nobody's failure if it is not answered."""
        own, member = self._table.own, row.member
        self._sequence += 1
        message = Ping(self._sequence, own.name, member.name, own.coordinate, own.coordinate_version)
        return Send(member.address, message, first=first or finding_of(row))

    def measure(self, name: str) -> tuple[int, Send] | None:
        """A ping that only measures, with its sequence: whether it is answered says nothing of the member, nor of this node.

        Call :meth:`measured` when its answer has come, or is not waited for any more.
        """
        row = self._table.get(name)
        if row is None:
            return None
        ping = self.ping(row)
        self._measuring[self._sequence] = name
        return self._sequence, msgspec.structs.replace(ping, timed=True)

    def measured(self, sequence: int) -> None:
        self._measuring.pop(sequence, None)

    def next_in_turn(self, now: float) -> list[Instruction]:
        """In a random order that is made anew after each round (SWIM, section 4.3: time-bounded completeness)."""
        under_way = {probe.name for probe in self._probes.values()}
        for _ in range(2):
            while self._order:
                name = self._order.pop()
                if name in self._table.there and name not in under_way:
                    return self.begin(name, now)
            self._order = self._table.there.names()
            self._rng.shuffle(self._order)
        return []

    def relay(self, request: PingRequest, sender: Endpoint, now: float) -> Send:
        """Pings only where this node itself knows the target to be: nobody makes it send to strangers. One that has no answer yet
        makes room for one that is due."""
        row = self._table.get(request.target)
        if row is None or row.member.state in GONE or not self._makes_room():
            return Send(sender, Nack(request.sequence, self._table.own.name))
        ping = self.ping(row)
        deadline = now + NACK_SHARE * self._settings.probe_timeout_s
        self._relays[self._sequence] = _Relay(sender, request.target, request.sequence, deadline)
        return ping

    def _makes_room(self) -> bool:
        """For one more relay, in place of a late one where there is no other; whether there is any."""
        if len(self._relays) < MAX_RELAYED:
            return True
        late = next((sequence for sequence, relay in self._relays.items() if relay.nacked), None)
        if late is not None:
            del self._relays[late]
        return late is not None

    # -- time passes --------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> tuple[list[Instruction], list[Failed]]:
        out: list[Instruction] = []
        failed: list[Failed] = []
        for sequence, probe in [(s, p) for s, p in self._probes.items() if now >= p.step_at]:
            if probe.asked_at is not None:
                del self._probes[sequence]
                failed.append(self._given_up(sequence, probe))
                continue
            probe.asked_at, probe.step_at = now, now + self._settings.indirect_timeout_s * probe.stretch
            out += self._ask_others(sequence, probe)
            if (row := self._table.get(probe.name)) is not None:
                out.append(Call(row.member, sequence))
        for sequence, relay in [(s, r) for s, r in self._relays.items() if now >= r.deadline]:
            if relay.nacked:
                del self._relays[sequence]
                continue
            relay.nacked, relay.deadline = True, now + self._settings.stand_still_s
            out.append(Send(relay.asker, Nack(relay.sequence, self._table.own.name)))
        return out, failed

    def _ask_others(self, sequence: int, probe: _Probe) -> list[Instruction]:
        row = self._table.get(probe.name)
        if row is None:
            return []
        drawn = self._table.there.sample(self._rng, self._settings.indirect_probes + 1)
        rows = [self._table.get(name) for name in drawn if name != probe.name]
        helpers = [one.member for one in rows if one is not None and one.member.state == "alive"][
            : self._settings.indirect_probes
        ]
        probe.asked = [helper.name for helper in helpers]
        request = PingRequest(sequence, self._table.own.name, probe.name, row.member.address)
        return [Send(helper.address, request) for helper in helpers]

    def _given_up(self, sequence: int, probe: _Probe) -> Failed:
        if len(self._unanswered) >= MAX_FAILED:
            del self._unanswered[next(iter(self._unanswered))]
        self._unanswered[sequence] = probe.name
        silent = len(probe.asked) - len(probe.nacks)
        self._awareness.worsened(silent if probe.asked else 1)
        return Failed(probe.name, probe.incarnation, tuple(name for name, looked in probe.nacks.items() if looked))

    # -- something arrived --------------------------------------------------------------------------------------------

    def acked(self, ack: Ack, sender: Endpoint) -> list[Instruction]:
        """What an answer calls for; :meth:`reached` takes note of it."""
        relay = self._relays.get(ack.sequence)
        if relay is not None and relay.target == ack.source:
            del self._relays[ack.sequence]
            return [Send(relay.asker, Ack(relay.sequence, ack.source, ack.coordinate, ack.coordinate_version))]
        row = self._table.get(ack.source)
        probe = self._probes.get(ack.sequence)
        if row is None or ack.source not in (self._measuring.get(ack.sequence), probe.name if probe else None):
            return []
        # A relayed answer says that the member lives, not how far away it is. Of one that is announced by a name no sender is
        # known to be it; but as long as nobody was asked, nobody has relayed.
        relayed = probe is not None and bool(probe.asked)
        direct = sender == row.member.address or (not relayed and not _is_address(row.member.address.host))
        return [Measured(ack.source, ack.sequence)] if direct else []

    def reached(self, name: str, sequence: int) -> bool:
        """A probe has been answered, in whatever way; whether there was one, under way or failed, that nothing had answered."""
        if self._unanswered.get(sequence) == name:
            del self._unanswered[sequence]
            return True
        probe = self._probes.get(sequence)
        if probe is None or probe.name != name:
            return False
        del self._probes[sequence]
        self._awareness.succeeded()
        return True

    def nacked(self, nack: Nack, now: float) -> None:
        """Who says so sooner than a look takes has not looked: it does not know the member, or has too much to do."""
        probe = self._probes.get(nack.sequence)
        if probe is not None and probe.asked_at is not None and nack.source in probe.asked:
            looked = now - probe.asked_at >= NACK_SHARE * self._settings.probe_timeout_s
            probe.nacks[nack.source] = probe.nacks.get(nack.source, looked)

    def forget(self, name: str) -> None:
        self._probes = {s: p for s, p in self._probes.items() if p.name != name}
        self._unanswered = {s: n for s, n in self._unanswered.items() if n != name}


@lru_cache(maxsize=4096)
def _is_address(host: str) -> bool:
    """Whether a host is given by its IP address, and not by a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def finding_of(row: Row) -> Finding | None:
    """What a member should hear first from whoever talks to it: that it is taken for suspect or dead."""
    member = row.member
    return Finding(member.name, member.incarnation, member.state) if member.state in ("suspect", "dead") else None

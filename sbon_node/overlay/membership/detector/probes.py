"""Probes of one node and the pings it relays for others (SWIM, section 3.1; nacks: Lifeguard, section IV-A). Pure.

A probe is a ping. Without an answer in ``probe_timeout_s`` the node asks a few helpers to ping, asks the member over TCP, and
at the end of ``indirect_timeout_s`` the probe has failed. TCP starts as early as that because it loses nothing: the remaining
time is the longest that a live node may pause, however many datagrams were lost before. A helper that has no answer itself
after 0.8 probe timeouts says so, and still passes on a later answer, so that no answer of a node that paused is lost. The two
timeouts stretch with the prober's awareness score; the helper's do not.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

import msgspec

from sbon_node.overlay.membership.detector.instructions import Call, Instruction, Measured, Send
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.membership.table import GONE, Row, Table
from sbon_protocol.messages import Ack, Endpoint, Nack, Ping, PingRequest, StateUpdate

MAX_RELAYED = 1024
MAX_FAILED = 256
"""Failed probes that may still be answered."""
MAX_PROBES = 128
"""Probes out of turn under way at once; probes in turn are few by themselves."""
NACK_SHARE = 0.8
"""Share of the probe timeout after which a helper sends a nack."""


class Failed(NamedTuple):
    """An unanswered probe; ``nacks`` names the helpers that have pinged the member as well, without an answer."""

    name: str
    incarnation: int
    nacks: tuple[str, ...]


class _Probe(msgspec.Struct):
    """A probe under way; ``step_at`` is when its next step is due: ask helpers and TCP, then fail."""

    name: str
    incarnation: int
    step_at: float
    stretch: int
    asked: list[str] = []
    asked_at: float | None = None
    """When helpers and TCP were asked."""
    nacks: dict[str, bool] = {}
    """The helpers that sent nacks, and whether each took the time to ping."""


class _Relay(msgspec.Struct):
    """A ping of ``target`` for another node; ``deadline`` is first when a nack is due, then when the relay ends."""

    asker: Endpoint
    target: str
    sequence: int
    deadline: float
    nacked: bool = False


class Probes:
    def __init__(self, table: Table, settings: MembershipSettings, awareness: Awareness, rng: random.Random) -> None:
        self._table, self._settings, self._awareness, self._rng = table, settings, awareness, rng
        self._sequence = 0
        self._numbers = random.Random(rng.getrandbits(64))
        self._order: list[str] = []
        self._probes: dict[int, _Probe] = {}
        self._relays: dict[int, _Relay] = {}
        self._unanswered: dict[int, str] = {}
        self._measuring: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._probes)

    def due_at(self) -> float:
        due = [probe.step_at for probe in self._probes.values()] + [relay.deadline for relay in self._relays.values()]
        return min(due, default=math.inf)

    def pause(self, lag_s: float) -> None:
        """Extend every time limit by ``lag_s``: answers may be waiting in the socket."""
        for probe in self._probes.values():
            probe.step_at += lag_s
            if probe.asked_at is not None:
                probe.asked_at += lag_s
        for relay in self._relays.values():
            relay.deadline += lag_s

    # -- sending ------------------------------------------------------------------------------------------------------

    def probe(self, name: str, now: float, first: StateUpdate | None = None) -> list[Instruction]:
        """Probe a member; ``first`` is the update it receives about itself, by default its suspicion, if any."""
        row = self._table.get(name)
        if row is None:
            return []
        stretch = self._awareness.stretch
        ping = self.ping(row, first)
        step_at = now + self._settings.probe_timeout_s * stretch
        self._probes[self._sequence] = _Probe(name, row.member.incarnation, step_at, stretch)
        return [msgspec.structs.replace(ping, timed=True)]

    def ping(self, row: Row, first: StateUpdate | None = None) -> Send:
        """Return a single ping; a missing answer is no failure."""
        own, member = self._table.own, row.member
        self._sequence = self.number()
        message = Ping(self._sequence, own.name, member.name, own.coordinate, own.coordinate_version)
        return Send(member.address, message, first=first or state_update_of(row))

    def number(self) -> int:
        """Return a random number for the next ping, so that only its receiver can answer it."""
        while True:
            number = self._numbers.getrandbits(31) + 1
            if number not in self._probes and number not in self._relays and number not in self._measuring:
                return number

    def probing(self, name: str) -> bool:
        """Return whether a probe of the member is under way."""
        return any(probe.name == name for probe in self._probes.values())

    def expects(self, ack: Ack) -> bool:
        """Return whether it answers a ping of this node's."""
        probe = self._probes.get(ack.sequence)
        names = self._measuring.get(ack.sequence), self._unanswered.get(ack.sequence), probe.name if probe else None
        return ack.source in names

    def measure(self, name: str) -> tuple[int, Send] | None:
        """Return a ping that only measures, and its sequence; call :meth:`measured` once it is answered, or waited for."""
        row = self._table.get(name)
        if row is None:
            return None
        ping = self.ping(row)
        self._measuring[self._sequence] = name
        return self._sequence, msgspec.structs.replace(ping, timed=True)

    def measured(self, sequence: int) -> None:
        self._measuring.pop(sequence, None)

    def next_in_turn(self, now: float) -> list[Instruction]:
        """Probe the next member, in a random order renewed after each round (SWIM, section 4.3: time-bounded completeness)."""
        under_way = {probe.name for probe in self._probes.values()}
        for _ in range(2):
            while self._order:
                name = self._order.pop()
                if name in self._table.there and name not in under_way:
                    return self.probe(name, now)
            self._order = self._table.there.names()
            self._rng.shuffle(self._order)
        return []

    def relay(self, request: PingRequest, sender: Endpoint, now: float) -> Send:
        """Ping the target of a request if this node knows it at that address, so that it pings no stranger.

        Under another address it may know another instance, whose answer must not keep a lost one alive. A relay that has sent
        its nack makes room for a new one.
        """
        row = self._table.get(request.target)
        known = row is not None and row.member.state not in GONE and row.member.address == request.address
        if row is None or not known or not self._makes_room():
            return Send(sender, Nack(request.sequence, self._table.own.name))
        ping = self.ping(row)
        deadline = now + NACK_SHARE * self._settings.probe_timeout_s
        self._relays[self._sequence] = _Relay(sender, request.target, request.sequence, deadline)
        return ping

    def _makes_room(self) -> bool:
        """Drop a late relay if there is no room for one more; return whether there is room."""
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
        members = [self._table.member(name) for name in drawn if name != probe.name]
        alive = [member for member in members if member is not None and member.state == "alive"]
        helpers = alive[: self._settings.indirect_probes]
        probe.asked = [helper.name for helper in helpers]
        request = PingRequest(sequence, self._table.own.name, probe.name, row.member.address)
        return [Send(helper.address, request) for helper in helpers]

    def _given_up(self, sequence: int, probe: _Probe) -> Failed:
        if len(self._unanswered) >= MAX_FAILED:
            del self._unanswered[next(iter(self._unanswered))]
        self._unanswered[sequence] = probe.name
        unanswered = len(probe.asked) - len(probe.nacks)
        self._awareness.worsened(unanswered if probe.asked else 1)
        return Failed(probe.name, probe.incarnation, tuple(name for name, looked in probe.nacks.items() if looked))

    # -- something arrived --------------------------------------------------------------------------------------------

    def acked(self, ack: Ack, sender: Endpoint) -> list[Instruction]:
        """Return the instructions for an answer; :meth:`reached` records it."""
        relay = self._relays.get(ack.sequence)
        if relay is not None and relay.target == ack.source:
            del self._relays[ack.sequence]
            return [Send(relay.asker, msgspec.structs.replace(ack, sequence=relay.sequence))]
        row = self._table.get(ack.source)
        probe = self._probes.get(ack.sequence)
        if row is None or ack.source not in (self._measuring.get(ack.sequence), probe.name if probe else None):
            return []
        # A relayed answer shows that the member lives, but not its latency. A member announced by host name cannot be
        # recognised by the sender's address; but before any helper was asked, no answer can be relayed.
        relayed = probe is not None and bool(probe.asked)
        direct = sender == row.member.address or (not relayed and self._table.by_name(row.member.address))
        return [Measured(ack.source, ack.sequence, ack.wall_us)] if direct else []

    def reached(self, name: str, sequence: int) -> bool:
        """Record an answer to a probe; return whether it is the first to an open or failed probe."""
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
        """Record a nack.

        A helper that sends it earlier than a ping takes has not pinged: it is overloaded, or does not know the member.
        """
        probe = self._probes.get(nack.sequence)
        if probe is not None and probe.asked_at is not None and nack.source in probe.asked:
            looked = now - probe.asked_at >= NACK_SHARE * self._settings.probe_timeout_s
            probe.nacks[nack.source] = probe.nacks.get(nack.source, looked)

    def forget(self, name: str) -> None:
        self._probes = {s: p for s, p in self._probes.items() if p.name != name}
        self._unanswered = {s: n for s, n in self._unanswered.items() if n != name}


def state_update_of(row: Row) -> StateUpdate | None:
    """Return the update that a suspected or dead member should hear first about itself."""
    member = row.member
    return StateUpdate(member.name, member.incarnation, member.state) if member.state in ("suspect", "dead") else None


class Awareness:
    """Score of this node's own health (Lifeguard, section IV-A: local health multiplier), from 0 (well) to ``most``.

    A successful probe improves it. It worsens with: asked helpers that send nothing at all (not even a nack), a failed probe with
    no helper to ask, a suspicion of itself that the node has to refute, and a pause of its own process. Timeouts are multiplied
    by :attr:`stretch`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.score = 0

    @property
    def stretch(self) -> int:
        return self.score + 1

    def succeeded(self) -> None:
        self.score = max(0, self.score - 1)

    def worsened(self, by: int = 1) -> None:
        self.score = min(self._most, self.score + by)

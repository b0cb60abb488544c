"""SWIM's failure detector (Das, Gupta, Motivala, DSN 2002) with Lifeguard (Dadgar, Phillips, Currey, DSN 2018). Pure.

Each protocol period probes one member. A member without any answer is suspected, and dead unless it refutes in time
(section 4.2). Related modules: probes and this node's own health (:mod:`probes`), confirmations (:mod:`suspicion`), rumours
(:mod:`gossip`), and the regular comparison of tables (:mod:`reconcile`).

Departure: rumours also travel alone. On probes only, refutations came too late in 50 of 200 runs of eight nodes; so in none.
"""

import math
import random
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from sbon_node.overlay.membership.detector.instructions import Call, Disputed, Happened, Instruction, Measured, Refused, Send
from sbon_node.overlay.membership.detector.probes import MAX_PROBES, Awareness, Failed, Probes, state_update_of
from sbon_node.overlay.membership.detector.suspicion import Suspicions
from sbon_node.overlay.membership.dissemination import reconcile
from sbon_node.overlay.membership.dissemination.gossip import GossipQueue
from sbon_node.overlay.membership.dissemination.reconcile import Outreach
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.membership.table import GONE, REACHABLE, Change, Table
from sbon_protocol.datagram import MAX_DATAGRAM_BYTES
from sbon_protocol.messages import (
    Ack,
    Coordinate,
    CoordinateUpdate,
    Digest,
    Endpoint,
    Gossip,
    Member,
    Nack,
    Ping,
    PingRequest,
    Rumour,
    StateUpdate,
    Summary,
    Want,
)

MAX_TICK_S = 0.5
"""Call :meth:`Swim.tick` at least this often."""
MAX_LAG_S = 0.5
"""Largest lateness of a tick. A later tick means that this process stood still, and no member is suspected for it."""
EXPIRE_S = 10.0
MAX_FRESH_PINGS = 16
"""New members of one exchange that are measured at once; the others wait for their turn."""


class Swim:
    """One node's failure detector over its table and its rumours."""

    def __init__(self, table: Table, gossip: GossipQueue, settings: MembershipSettings, rng: random.Random) -> None:
        self.table, self.gossip = table, gossip
        self.awareness = Awareness(settings.awareness_max)
        self._settings, self._rng = settings, rng
        self._suspicions = Suspicions(settings)
        self._probes = Probes(table, settings, self.awareness, rng)
        self.candidates = Candidates(table, settings, self._probes.number)
        self._ticked: float | None = None
        self._put_off = False
        self._next_probe = self._next_gossip = self._next_expiry = 0.0
        self._outreach = Outreach(table, settings, rng)

    # -- time passes --------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Instruction]:
        """Return the due instructions; call when :meth:`due_in` says, or earlier, as when :meth:`gossip_due`."""
        if self._ticked is None:
            # Nodes that start together must not probe and gossip in step for ever.
            self._next_probe = now + self._settings.probe_interval_s * self._rng.random()
            self._next_gossip = now + self._settings.gossip_interval_s * self._rng.random()
            self._ticked = now
        lag_s = now - self._ticked - MAX_TICK_S
        self._ticked = now
        if lag_s > MAX_LAG_S:
            self._probes.pause(lag_s)
            self._suspicions.pause(lag_s)
            self.candidates.pause(lag_s)
            self.awareness.worsened()
        out, failed = self._probes.tick(now)
        for failed_member in failed:
            out += self._failed(failed_member, now)
        out += self.candidates.tick(now)
        out += self._watch_suspects(now)
        if now >= self._next_probe:
            self._next_probe = now + self._settings.probe_interval_s * self.awareness.stretch
            self._put_off = False
            out += self._probes.next_in_turn(now)
        if now >= self._next_gossip and len(self.gossip):
            self._next_gossip = now + self._settings.gossip_interval_s
            out += self._outreach.gossip(now)
        out += self._outreach.reconcile(now)
        if now >= self._next_expiry:
            self._next_expiry = now + EXPIRE_S
            for name in self.table.expire(now, self._settings.tombstone_s):
                self.gossip.forget(name)
        return out

    def gossip_due(self, now: float) -> bool:
        """Return whether rumours that have just come should be sent on at once."""
        return len(self.gossip) > 0 and now >= self._next_gossip

    def due_in(self, now: float) -> float:
        """Return the seconds until the next tick has something to do, at most :data:`MAX_TICK_S`."""
        due = min(self._next_probe, self._probes.due_at(), self.candidates.due_at())
        due = min(due, self._suspicions.due_at(self.table.living()))
        if len(self.gossip):
            due = min(due, self._next_gossip)
        return min(MAX_TICK_S, max(0.0, due - now))

    def ping(self, name: str, now: float) -> list[Instruction]:
        """Probe a member now, out of turn, to measure its latency; do nothing if too many probes are under way.

        The probe is like those in turn, so it replaces one: it delays the next by an interval, but each only once.
        """
        if len(self._probes) >= MAX_PROBES:
            return []
        if not self._put_off:
            self._put_off = True
            self._next_probe = now + self._settings.probe_interval_s * self.awareness.stretch
        return self._probes.probe(name, now)

    def measure(self, name: str) -> tuple[int, Send] | None:
        """See :meth:`sbon_node.overlay.membership.detector.probes.Probes.measure`."""
        return self._probes.measure(name)

    def measured(self, sequence: int) -> None:
        """End the wait for that ping's answer."""
        self._probes.measured(sequence)

    def reached(self, name: str, sequence: int, now: float) -> bool:
        """Record an answer, direct, through a helper or over TCP, in time or late; return whether it was the first."""
        first = self._probes.reached(name, sequence)
        if first:
            self._suspicions.answered(name, now)
        return first

    def _failed(self, failed: Failed, now: float) -> list[Instruction]:
        """Handle a failed probe: this node becomes a witness, and helpers without an answer confirm the suspicion."""
        row = self.table.get(failed.name)
        if row is None or row.member.state not in ("alive", "suspect") or row.member.incarnation != failed.incarnation:
            return []
        known = self._suspicions.witnessed(failed.name)
        change = self.table.mark(failed.name, "suspect", failed.incarnation, now)
        self._suspicions.begin(failed.name, failed.incarnation, now, failed.nacks, witness=True)
        state_update = StateUpdate(failed.name, failed.incarnation, "suspect", self.table.own.name)
        if change:
            self.gossip.spread(state_update)
            return [Happened(change, failed.name)]
        if not known:
            self.gossip.piggyback(state_update)
        return []

    def _watch_suspects(self, now: float) -> list[Instruction]:
        if not len(self._suspicions):
            return []
        out: list[Instruction] = []
        for name, incarnation in self._suspicions.expired(self.table.living(), now):
            if self._suspicions.witnessed(name):
                self._suspicions.end(name)
                out += self._changed(name, self.table.mark(name, "dead", incarnation, now), now)
            elif len(self._probes) < MAX_PROBES:
                # Neither its refutation nor its death has reached this node, which probes it itself.
                self._suspicions.renew(name, now)
                out += self._probes.probe(name, now)
        for name in self._suspicions.insistent(now):
            if (row := self.table.get(name)) is not None:
                out.append(self._probes.ping(row))
        return out

    # -- something arrived --------------------------------------------------------------------------------------------

    def received(self, message: Gossip, sender: Endpoint, now: float, size: int = MAX_DATAGRAM_BYTES) -> list[Instruction]:
        """Handle a datagram of ``size`` bytes, its coordinate validated, from ``sender``, to which answers go."""
        match message:
            case Ack():
                return self._acked(message, sender, now)
            case Nack():
                self._probes.nacked(message, now)
                return []
        row = self.table.get(message.source)
        if row is None or not self.table.is_from(message.source, sender) or row.member.state == "left":
            return self._to_stranger(message, sender, size)
        own = self.table.own
        state_update = state_update_of(row)
        match message:
            case Ping():
                self._see(message.source, message.coordinate, message.coordinate_version, now, believed=False)
                if message.target != own.name:
                    return []
                ack = Ack(message.sequence, own.name, own.coordinate, own.coordinate_version, own.incarnation)
                if message.identify:
                    ack = replace(ack, instance=own.instance)
                first = own if own.name in self.gossip else state_update  # News of this node: suspecting nodes may await it.
                return [Send(sender, ack, first=first, carries=(state_update,) if state_update else ())]
            case PingRequest():
                return [self._probes.relay(message, sender, now)]
        return self._reconciled(message, sender, state_update, now)

    def _to_stranger(self, message: Gossip, sender: Endpoint, size: int) -> list[Instruction]:
        """Answer a stranger only with this node's identity, in no more bytes than came; it asks for a ping."""
        own = self.table.own
        if isinstance(message, Ping) and message.target == own.name:
            instance = own.instance if message.identify else ""
            return [Send(sender, Ack(message.sequence, own.name, None, 0, own.incarnation, instance), most=size)]
        if isinstance(message, PingRequest):
            return [Send(sender, Nack(message.sequence, own.name), most=size)]
        return []

    def _acked(self, ack: Ack, sender: Endpoint, now: float) -> list[Instruction]:
        admitted = self.candidates.answered(ack, sender)
        if admitted is not None:
            out = self._admit(admitted.member, admitted.incarnation, now, sender)
            return [*out, admitted.measured] if admitted.measured and self.table.is_from(ack.source, sender) else out
        self._see(ack.source, ack.coordinate, ack.coordinate_version, now, believed=self._probes.expects(ack))
        out = self._probes.acked(ack, sender)
        if any(isinstance(instruction, Measured) for instruction in out):
            self.table.seen_itself(ack.source, ack.incarnation, sender)
        self.reached(ack.source, ack.sequence, now)
        return out

    def _reconciled(
        self, message: Digest | Summary | Want, to: Endpoint, first: StateUpdate | None, now: float
    ) -> list[Instruction]:
        match message:
            case Digest():
                summary = reconcile.summarise(self.table, message, self._rng)
                return [] if summary is None and first is None else [Send(to, summary, first=first)]
            case Summary():
                compared = reconcile.compare(self.table, message)
                out: list[Instruction] = []
                if compared.wanted or compared.offered:
                    want = reconcile.want(self.table.own.name, compared.wanted) if compared.wanted else None
                    out.append(Send(to, want, first=first, carries=tuple(compared.offered)))
                if compared.own_version is not None:
                    out += self._outpublished(self.table.own.incarnation, compared.own_version)
                for doubted in compared.doubted:
                    if doubted.name == self.table.own.name:
                        out += self._heard_of_self(doubted)
                    elif len(self._probes) < MAX_PROBES:
                        out += self._probes.probe(doubted.name, now, doubted)
                return out
            case Want():
                members = reconcile.serve(self.table, message)
                return [Send(to, None, first=first, carries=tuple(members))] if members else []

    def take_rumours(self, rumours: tuple[Rumour, ...], now: float, *, asked: bool = False) -> list[Instruction]:
        """Handle rumours of a packet or an exchange; ``asked`` if this node has asked for another's table."""
        out: list[Instruction] = []
        own = self.table.own.name
        for number, rumour in enumerate(rumours):
            if isinstance(rumour, Member) and self.table.conflicts(rumour):
                out.append(Disputed(rumour.name, rumour.address))
            elif rumour.name == own:
                out += self._heard_of_self(rumour)
            elif self.table.leaps(rumour):
                out += self._leapt(rumour, now)
            elif isinstance(rumour, CoordinateUpdate):
                coordinate, version = rumour.coordinate, rumour.coordinate_version
                if self.table.coordinate_update(rumour.name, rumour.incarnation, coordinate, version, now):
                    self.gossip.piggyback(rumour)
            elif isinstance(rumour, StateUpdate):
                out += self._probe_result(rumour, now)
            elif rumour.state in REACHABLE and self.table.news(rumour) and not self.table.proven(rumour):
                measured = asked and number < MAX_FRESH_PINGS
                out += self.candidates.offer(rumour, now, asked=asked, measured=measured)
            elif asked or self.table.get(rumour.name) is not None:
                out += self._heard_of(rumour, now)
        return out

    def _heard_of(self, rumour: Member, now: float) -> list[Instruction]:
        before = self.table.get(rumour.name)
        moved = before is not None and before.member.address != rumour.address
        return self._changed(rumour.name, self.table.hear(rumour, now), now, moved=moved)

    def _leapt(self, rumour: Rumour, now: float) -> list[Instruction]:
        """Ask the member itself about a rumour that is not credible."""
        out: list[Instruction] = [Refused("rumour-leapt", rumour.name)]
        row = self.table.get(rumour.name)
        if row is not None and row.member.state in REACHABLE:
            if len(self._probes) < MAX_PROBES and not self._probes.probing(rumour.name):
                out += self._probes.probe(rumour.name, now)
        elif isinstance(rumour, Member) and rumour.state in REACHABLE:
            out += self.candidates.offer(rumour, now)
        return out

    def vouched(self, member: Member, now: float) -> list[Instruction]:
        """Handle a member's own record, received over TCP at its own address."""
        if member.name == self.table.own.name or self.table.conflicts(member):
            return self.take_rumours((member,), now)
        if member.state in REACHABLE and self.table.news(member) and not self.table.proven(member):
            return self._admit(member, member.incarnation, now)
        self.table.seen_itself(member.name, member.incarnation)
        return self.take_rumours((member,), now)

    def _admit(self, member: Member, incarnation: int, now: float, seen: Endpoint | None = None) -> list[Instruction]:
        """Admit a member that has answered this node with its incarnation."""
        self.candidates.settle(member)
        if self.table.conflicts(member):
            return [Disputed(member.name, member.address)]
        if self.table.crowded(member):
            return [Refused("address-full", member.name)]
        out = self._heard_of(member, now)
        if self.table.get(member.name) is None:
            return [Refused("members-full", member.name)]
        self.table.seen_itself(member.name, incarnation, seen)
        return out

    def take_members(self, members: tuple[Member, ...], now: float, *, asked: bool = True) -> list[Instruction]:
        """Handle a part of another's table; doubt and ask known members that it lists as dead."""
        rumours = tuple(m for m in members if m.state != "dead" or m.name == self.table.own.name)
        out = self.take_rumours(rumours, now, asked=asked)
        for member in members:
            row = self.table.get(member.name)
            if member.state == "dead" and row is not None and row.member.state not in GONE and len(self._probes) < MAX_PROBES:
                out += self._probes.probe(member.name, now, StateUpdate(member.name, member.incarnation, "dead"))
        return out

    def _heard_of_self(self, rumour: Rumour) -> list[Instruction]:
        if isinstance(rumour, CoordinateUpdate):
            return self._outpublished(rumour.incarnation, rumour.coordinate_version)
        if not self.table.refute(rumour):
            return []
        own = self.table.own
        self.gossip.spread(own)
        if rumour.state == "suspect":
            self.awareness.worsened()
        elsewhere = isinstance(rumour, Member) and rumour.state == "alive" and rumour.address != own.address
        return [Disputed(own.name, rumour.address)] if elsewhere and isinstance(rumour, Member) else []

    def _outpublished(self, incarnation: int, version: int) -> list[Instruction]:
        """Handle a version of this node's own coordinate that it has not published."""
        if not self.table.refute_coordinate(incarnation, version):
            return []
        own = self.table.own
        assert own.coordinate is not None
        self.gossip.piggyback(CoordinateUpdate(own.name, own.incarnation, own.coordinate, own.coordinate_version))
        return [Refused("coordinate-refuted", own.name)]

    def _probe_result(self, state_update: StateUpdate, now: float) -> list[Instruction]:
        known = self.table.get(state_update.name)
        if known is not None and state_update.state in REACHABLE and known.member.state not in REACHABLE:
            return []  # A returning member says so itself.
        change = self.table.find(state_update, now)
        out = self._changed(state_update.name, change, now, state_update)
        row = self.table.get(state_update.name)
        if state_update.state != "suspect" or row is None or row.member.state != "suspect":
            return out
        if state_update.by in (None, self.table.own.name):
            return out
        if self._suspicions.begin(state_update.name, state_update.incarnation, now, [str(state_update.by)]) and not change:
            self.gossip.piggyback(state_update)  # One of the first confirmations: others should know (Lifeguard, section IV-B).
        return out

    def _see(self, name: str, coordinate: Coordinate | None, version: int, now: float, *, believed: bool) -> None:
        """Take a member's coordinate; ``believed`` if the member has answered, so that any version is credible."""
        row = self.table.get(name)
        if row is None or coordinate is None:
            return
        incarnation = row.member.incarnation
        if not believed and self.table.leaps(CoordinateUpdate(name, incarnation, coordinate, version)):
            return
        if self.table.coordinate_update(name, incarnation, coordinate, version, now, direct=True):
            self.gossip.piggyback(CoordinateUpdate(name, incarnation, coordinate, version))

    def _changed(
        self, name: str, change: Change, now: float, state_update: StateUpdate | None = None, *, moved: bool = False
    ) -> list[Instruction]:
        row = self.table.get(name)
        if not change or row is None:
            return []
        member = row.member
        news = member if member.state == "alive" else StateUpdate(name, member.incarnation, member.state)
        self.gossip.spread(state_update or news)
        if member.state == "suspect":
            self._suspicions.begin(name, member.incarnation, now)
        else:
            self._suspicions.end(name)
        if member.state in GONE:
            self._probes.forget(name)
        if member.state == "dead":
            self._outreach.died(name, now)
        return [Happened(change, name, moved)]


# -- Candidates: nodes that are rumoured and have not answered this node yet. Pure ------------------------------------

# Only a node that answers a ping becomes a member.
#
# A ping to an address that has not answered carries no rumours, is no longer than the rumour that causes it, and is sent once for
# each arrival of the rumour; where this node asked for a table, it is repeated. A silent candidate is asked over TCP once, and
# forgotten.

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
    """``sequence`` is 0 until its turn comes; ``tries`` are left; ``called_at`` is the time since which it is asked over TCP."""

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
        """Add a rumoured node; ``asked`` if this node asked for the table with it, ``measured`` to measure by its answer."""
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

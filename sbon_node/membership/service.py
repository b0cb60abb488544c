"""Membership, running: the failure detector over datagrams, joining over TCP, and who is there for everybody else."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import msgspec
import structlog

from sbon_node.clock import Clock
from sbon_node.errors import SbonError
from sbon_node.membership.admission import Admission
from sbon_node.membership.announcements import Announcements
from sbon_node.membership.exchanges import Exchanges
from sbon_node.membership.gossip import GossipQueue
from sbon_node.membership.instructions import Call, Disputed, Happened, Instruction, Measured, Send
from sbon_node.membership.pings import Pinged, Pings
from sbon_node.membership.settings import MembershipSettings
from sbon_node.membership.swim import Swim
from sbon_node.membership.table import REACHABLE, Change, Table
from sbon_node.membership.views import MemberView, unknown_node
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Identity, Peers, PeerServer
from sbon_node.net.transport import Address, DatagramEndpoint, Transport
from sbon_node.space.coordinate import Coordinate, from_wire
from sbon_node.space.local import LocalCoordinate
from sbon_node.tasks import Tasks
from sbon_protocol import datagram, messages
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Endpoint, Finding, Member, MemberState, Packet, Ping, Place, Rumour, Traits

log = structlog.get_logger()

TICK_S = 0.1
CHOOSE_EVERY = 48
"""Measurements of neighbours between two looks at who should be one."""
SETTLING_SPEEDUP = 4
"""So much more often neighbours are measured while the coordinate is new."""
MIN_TICK_S = 0.01
MAX_DATAGRAMS = 8
"""That one answer of a reconciliation takes."""
MAX_STAMPS = 1024
MAX_FRESH_PINGS = 16
"""Members met for the first time in one exchange that are measured at once; the others have their turn."""
MAX_ANNOUNCED = 64
"""Members told directly that this node goes; gossip tells the others."""

Listener = Callable[[str, Change], None]
"""Is told (name, change) of another member: joined, suspected, died, went-away, returned, left, updated; returns quickly."""


class Membership:
    """This node's membership. Owns the UDP port; who wants to know of changes calls :meth:`listen`.

    ``incarnation`` must be greater at each start on the same data directory.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        advertise: Address,
        api: Address,
        bind: Address,
        transport: Transport,
        peers: Peers,
        server: PeerServer,
        clock: Clock,
        rng: random.Random,
        settings: MembershipSettings,
        space: LocalCoordinate,
        incarnation: int,
        counters: Counters,
    ) -> None:
        self._identity, self._bind, self._transport = identity, bind, transport
        self._clock, self._rng, self._settings, self._space, self._counters = clock, rng, settings, space, counters
        own = Member(
            name=identity.node,
            address=Endpoint(*advertise),
            api=Endpoint(*api),
            incarnation=incarnation,
            state="alive",
            coordinate=space.coordinate.to_wire(),
            instance=identity.instance,
            traits=Traits(settings.tag_words),
        )
        self._table = Table(own, settings.max_members)
        self._gossip = GossipQueue(settings.retransmit_margin, settings.place_factor)
        self._announcements = Announcements(settings)
        self._admission = Admission(self._table, space.dimensions, counters)
        self._swim = Swim(self._table, self._gossip, settings, rng)
        self._endpoint: DatagramEndpoint | None = None
        self._started = False
        self._stamps: dict[int, float] = {}
        self._lagged_at = -math.inf
        self._next_measurement = 0.0
        self._measurements = 0
        self._tasks = Tasks()
        self._listeners: list[Listener] = []
        self._pings = Pings(self._swim, clock, self._send)
        self._exchanges = Exchanges(identity, self._table, self._take, peers=peers, server=server, settings=settings)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises ``OSError`` where the UDP port is taken."""
        self._started = True
        self._endpoint = await self._transport.open_datagrams(self._bind, self._received)
        # Nodes that start together are not to measure in step.
        self._next_measurement = self._clock.now() + self._measuring_interval_s() * self._rng.random()
        self._tasks.start("membership", self._run())

    async def join(self, seeds: Sequence[Address]) -> int:
        """See :meth:`sbon_node.membership.exchanges.Exchanges.join`."""
        return await self._exchanges.join(seeds)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def leave(self) -> None:
        """Tells others that this node is gone for good; only a start with a greater incarnation brings it back."""
        await self._announce("left")

    async def go_away(self) -> None:
        """Tells others that this node will be back."""
        await self._announce("away")

    async def close(self) -> None:
        await self._tasks.close()
        if self._endpoint is not None:
            self._endpoint.close()

    # -- who is there -------------------------------------------------------------------------------------------------

    @property
    def own_name(self) -> str:
        return self._identity.node

    def members(self) -> list[MemberView]:
        """Everyone known, this node included, by name."""
        return [self._view(m) for m in sorted(self._table.everyone(), key=lambda m: m.name)]

    def get(self, name: str) -> MemberView | None:
        member = self._table.member(name)
        return None if member is None else self._view(member)

    def alive(self) -> list[str]:
        """Other members that can be talked to, by name; suspects are among them until they are dead."""
        return self._table.names(REACHABLE)

    def is_alive(self, name: str) -> bool:
        """Whether it is another member that can be talked to."""
        return name in self._table.there

    @property
    def health(self) -> int:
        """How ill this node itself seems to be (Lifeguard), 0 for well."""
        return self._swim.awareness.score

    @property
    def others_alive(self) -> int:
        """How many :meth:`alive` names."""
        return len(self._table.there)

    def address_of(self, name: str) -> Address:
        """Raises :class:`SbonError` ``unknown-node``, or ``node-away`` for one that is not there now."""
        member = self._table.member(name)
        if member is None:
            raise unknown_node(name, (known.name for known in self._table.everyone()))
        if member.state not in REACHABLE:
            raise SbonError("node-away", f"the node {name!r} is {member.state}", where="node")
        return Address(member.address.host, member.address.port)

    def coordinate_of(self, name: str) -> Coordinate | None:
        if name == self._identity.node:
            return self._space.coordinate
        claim = self._claim_of(name)
        return None if claim is None else from_wire(claim, self._space.dimensions)

    def coordinate_age_s(self, name: str) -> float | None:
        """Seconds since it was last heard where a member is, 0 for this node itself; None where it is not known."""
        if name == self._identity.node:
            return 0.0
        row = self._table.get(name)
        return None if row is None or self.coordinate_of(name) is None else self._clock.now() - row.placed

    def rtt_ms(self, name: str) -> float | None:
        """This node's own fresh, filtered measurement; 0 for itself."""
        return 0.0 if name == self._identity.node else self._space.rtt_ms(name, self._clock.now())

    async def ping(self, name: str, timeout_s: float) -> Pinged | None:
        """Measures the way to a member once, as its probes do, and tells nobody: neither the failure detector nor the coordinate.

        None where no answer comes in time.
        """
        return await self._pings.ping(name, timeout_s)

    def _claim_of(self, name: str) -> messages.Coordinate | None:
        member = self._table.member(name)
        return None if member is None else member.coordinate

    def _view(self, member: Member) -> MemberView:
        return MemberView(
            name=member.name,
            state=member.state,
            address=Address(member.address.host, member.address.port),
            api=Address(member.api.host, member.api.port),
            incarnation=member.incarnation,
            coordinate=self.coordinate_of(member.name),
            rtt_ms=self.rtt_ms(member.name),
            traits=member.traits or Traits({}),
        )

    # -- datagrams ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            now = self._clock.now()
            if now >= self._next_measurement:
                self._measure(now)  # before the tick: it takes the place of a probe that may be due as well
            self._follow(self._swim.tick(now))
            pause_s = max(MIN_TICK_S, min(self._swim.due_in(now), self._next_measurement - now))
            await self._clock.sleep(pause_s)
            if self._clock.now() - now > pause_s + self._space.max_lag_s:
                self._lagged_at = self._clock.now()

    def _measure(self, now: float) -> None:
        """The next neighbour's turn, where there are more members than the failure detector's probes soon come round to."""
        self._next_measurement = now + self._measuring_interval_s()
        if self._measurements % CHOOSE_EVERY == 0:
            self._space.choose_neighbours({name: self._claim_of(name) for name in self._table.there.names()})
        self._measurements += 1
        name = self._space.next_neighbour()
        if name is not None and (self._space.settling or len(self._table.there) > len(self._space.neighbours())):
            self._follow(self._swim.ping(name, now))

    def _measuring_interval_s(self) -> float:
        return self._space.probe_interval_s / (SETTLING_SPEEDUP if self._space.settling else 1)

    def _received(self, payload: bytes, sender: Address, stamp: float) -> None:
        try:
            packet = datagram.unpack(payload)
        except ProtocolError as error:
            self._counters.refuse("datagram-malformed", peer=str(sender), reason=str(error))
            return
        if packet.cluster != self._identity.cluster:
            self._counters.refuse("datagram-wrong-cluster", peer=str(sender), cluster=packet.cluster)
            return
        self._follow(self._heard(packet, sender), stamp)

    def _heard(self, packet: Packet, sender: Address) -> list[Instruction]:
        now = self._clock.now()
        rumours: tuple[Rumour, ...] = (*packet.members, *packet.findings, *packet.places)
        out = self._swim.heard(self._admission.rumours(rumours), now) if rumours else []
        if packet.message is not None:
            message = self._admission.message(packet.message, sender)
            out += self._swim.received(message, Endpoint(sender.host, sender.port), now)
        if self._swim.gossip_due(now):
            out += self._swim.tick(now)
        return out

    def _follow(self, instructions: Sequence[Instruction], stamp: float | None = None) -> None:
        """Does what the detector says; ``stamp`` is when the datagram that caused it arrived."""
        for instruction in instructions:
            match instruction:
                case Send():
                    self._send(instruction)
                case Call(member=member, sequence=sequence):
                    self._tasks.start(f"check {member.name}", self._check(member, sequence))
                case Happened():
                    self._happened(instruction)
                case Disputed(name=name, address=address):
                    self._counters.refuse("name-conflict", name=name, address=f"{address.host}:{address.port}")
                case Measured(name=name, sequence=sequence):
                    sent = self._stamps.pop(sequence, None)
                    if sent is not None and stamp is not None:
                        self._measured(name, sequence, sent, stamp)

    async def _check(self, member: Member, sequence: int) -> None:
        """Over TCP: whoever answers is not dead, only datagrams do not reach it. One that is suspected by then is asked once
        more, so that it learns of that and refutes it."""
        for _ in range(2):
            found = await self._exchanges.check(member)
            if found is None:
                return
            if self._swim.reached(member.name, sequence, self._clock.now()):
                self._counters.count("reached-by-tcp-only")
            self._take((found,))
            row = self._table.get(member.name)
            if row is None or row.member.state != "suspect":
                return
            member = row.member

    def _happened(self, happened: Happened) -> None:
        name, change = happened.name, happened.change
        log.info("member", member=name, change=change)
        if happened.moved or change in ("died", "left", "returned", "joined"):
            # What was measured was the way to an earlier life, perhaps elsewhere.
            self._space.forget(name)
        for listener in self._listeners:
            try:
                listener(name, change)
            except Exception:
                log.exception("listener-failed", member=name, change=change)

    def _send(self, send: Send) -> None:
        """In one datagram, unless it carries more than one holds: then in some, the first with the message."""
        if self._endpoint is None:
            return
        message, rest = send.message, send.carries
        head = () if send.first is None else (send.first,)
        for _ in range(MAX_DATAGRAMS):
            due = self._gossip.due()
            if head:
                due = [rumour for rumour in due if rumour is not head[0]]
            payload, taken = datagram.fill(self._identity.cluster, message, (*head, *rest, *due))
            stamp = self._endpoint.send(payload, Address(send.to.host, send.to.port))
            self._gossip.sent(due[: max(0, taken - len(head) - len(rest))], len(self._table) + 1)
            if send.timed and isinstance(message, Ping):
                self._stamps[message.sequence] = stamp
                while len(self._stamps) > MAX_STAMPS:
                    del self._stamps[next(iter(self._stamps))]
            rest = rest[max(0, taken - len(head)) :]
            if not rest:
                return
            message, head = None, ()

    def _measured(self, name: str, sequence: int, sent: float, stamp: float) -> None:
        """A ping's answer. What this process was late for meanwhile is no way's length; but better that than nothing."""
        now, rtt_ms = self._clock.now(), (stamp - sent) * 1000
        lagged = self._lagged_at >= sent or now - stamp > self._space.max_lag_s
        if self._pings.answered(sequence, Pinged(lagged, rtt_ms)):
            return
        if lagged and self._space.measured(name):
            self._counters.count("rtt-under-lag")
            return
        if not self._space.observe(name, rtt_ms, self._claim_of(name), now):
            self._counters.count("rtt-refused")
            return
        self.place_self()

    def place_self(self) -> None:
        """Carries this node's coordinate, as it is now, into what it tells others.

        Those it talks to get it as it is; all the others are told again when it has moved, which is a new version.
        """
        own, now = self._table.own, self._clock.now()
        coordinate = self._space.coordinate.to_wire()
        if coordinate == own.coordinate:
            return
        news = self._announcements.due(coordinate, now, self._table.living())
        version = own.coordinate_version + news
        self._table.own = own = msgspec.structs.replace(own, coordinate=coordinate, coordinate_version=version)
        if news:
            self._gossip.ride(Place(own.name, own.incarnation, coordinate, version))

    def describe(self, *, cores: float, memory_mb: float, bandwidth_bytes_s: float, version: str = "") -> None:
        """What this node says of itself from now on, beside the tags that are configured; ``version`` is its program's."""
        own = self._table.own
        traits = Traits(self._settings.tag_words, cores, memory_mb, bandwidth_bytes_s, version)
        if traits != own.traits:
            self._table.own = msgspec.structs.replace(own, traits=traits, incarnation=own.incarnation + self._started)
            if self._started:
                self._gossip.spread(self._table.own)

    def _take(self, members: tuple[Member, ...]) -> None:
        now = self._clock.now()
        fresh = [m.name for m in members if m.name != self._identity.node and self._table.get(m.name) is None]
        checked = tuple(m for m in self._admission.rumours(members) if isinstance(m, Member))
        self._follow(self._swim.told(checked, now))
        for name in fresh[:MAX_FRESH_PINGS]:
            self._follow(self._swim.ping(name, now))

    async def _announce(self, state: MemberState) -> None:
        own = msgspec.structs.replace(self._table.own, state=state)
        self._table.own = own
        told = self._table.there.sample(self._rng, MAX_ANNOUNCED)
        finding = Finding(own.name, own.incarnation, state)
        for _ in range(2):
            for name in told:
                row = self._table.get(name)
                if row is not None:
                    self._tell(row.member.address, finding)
            await self._clock.sleep(TICK_S)

    def _tell(self, to: Endpoint, rumour: Rumour) -> None:
        payload, _ = datagram.fill(self._identity.cluster, None, [rumour])
        if self._endpoint is not None:
            self._endpoint.send(payload, Address(to.host, to.port))

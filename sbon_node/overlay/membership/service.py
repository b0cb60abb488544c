"""The running membership service: failure detection over datagrams, joining over TCP, and the list of members."""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import structlog

from sbon_node.base.clock import Clock
from sbon_node.base.tasks import Tasks
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Caller, Expected, Identity, Peers, PeerServer
from sbon_node.net.transport import Address, DatagramEndpoint, NameUnresolvedError, Transport
from sbon_node.overlay.membership.clocks import PeerClocks
from sbon_node.overlay.membership.detector.instructions import Call, Disputed, Happened, Instruction, Measured, Refused, Send
from sbon_node.overlay.membership.detector.pings import Pinged, Pings, Stamps, with_wall_clock
from sbon_node.overlay.membership.detector.swim import Swim
from sbon_node.overlay.membership.dissemination.gossip import CoordinateThrottle, GossipQueue
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.membership.table import GONE, LOST, MAX_INCARNATION, REACHABLE, Row, Table
from sbon_node.overlay.membership.views import Listener, MemberView, unknown_node, view_of
from sbon_node.overlay.space.coordinate import Coordinate, checked
from sbon_node.overlay.space.local import LocalCoordinate
from sbon_protocol import datagram
from sbon_protocol.calls import CheckMember, Members, SyncMembers
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.messages import (
    Ack,
    CoordinateUpdate,
    Endpoint,
    Gossip,
    Member,
    MemberState,
    NodeMeta,
    Packet,
    Ping,
    Rumour,
    StateUpdate,
)

log = structlog.get_logger()

DatagramHandler = Callable[[Any, Address], None]
"""Takes a message that came in a datagram, and the address it came from; must not raise."""
TICK_S = 0.1
CHOOSE_EVERY = 48
"""Measurements of neighbours between two choices of neighbours."""
MIN_TICK_S = 0.01
MAX_DATAGRAMS = 8
"""Most datagrams for one answer of a reconciliation."""
MAX_ANNOUNCED = 64
"""Members that hear directly that this node leaves; gossip reaches the others."""


class Membership:
    """This node's membership. Owns the UDP port; :meth:`listen` registers listeners for changes.

    ``incarnation`` must be greater at each start on the same data directory. The pure parts are ``table``, ``gossip`` and
    ``space``.
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
        self._clock, self._rng, self._settings, self._counters = clock, rng, settings, counters
        self.space = space
        address, meta = Endpoint(*advertise), NodeMeta(settings.tag_words)
        own = Member(
            identity.node, address, Endpoint(*api), incarnation, "alive", space.coordinate, instance=identity.instance, meta=meta
        )
        at_an_address = settings.max_members_at_an_address
        self.table = Table(own, settings.max_members, max_leap=settings.max_leap, most_at_an_address=at_an_address)
        self.gossip = GossipQueue(settings.retransmit_margin, settings.coordinate_factor)
        self._coordinate_throttle = CoordinateThrottle(settings)
        self._validation = Validation(self.table, space.dimensions, counters)
        self._handlers: dict[type, DatagramHandler] = {}
        self._swim = Swim(self.table, self.gossip, settings, rng)
        self._endpoint: DatagramEndpoint | None = None
        self._started = False
        self._stamps = Stamps()
        self._lagged_at = -math.inf
        self._next_measurement = 0.0
        self._measurements = 0
        self._tasks = Tasks()
        self._listeners: list[Listener] = []
        self._pings = Pings(self._swim, clock, self._send)
        self.clocks = PeerClocks(identity.node, clock, self._pings.ping, settings)
        self._exchanges = Exchanges(identity, self.table, self, peers=peers, server=server, settings=settings, clock=clock)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the service; raises ``OSError`` where the UDP port is taken."""
        self._started = True
        self._endpoint = await self._transport.open_datagrams(self._bind, self._received)
        # Nodes that start together must not measure in step.
        self._next_measurement = self._clock.now() + self.space.measuring_interval_s * self._rng.random()
        self._tasks.start("membership", self._run())
        self._tasks.start("clocks", self.clocks.run())

    async def join(self, seeds: Sequence[Address]) -> int:
        """See :meth:`Exchanges.join`."""
        return await self._exchanges.join(seeds)

    def handle(self, kinds: Iterable[type], handler: DatagramHandler) -> None:
        """Register ``handler`` for messages of these kinds, which are not membership's own; without one they are dropped."""
        self._handlers |= dict.fromkeys(kinds, handler)

    def send(self, to: Address, message: Any) -> bool:
        """Send a message that is not membership's own; return whether the UDP port is open.

        Raises ``ValueError`` for a message that no datagram can hold.
        """
        if self._endpoint is None:
            return False
        payload, _ = datagram.fill(self._identity.cluster, message, ())
        self._endpoint.send(payload, to)
        return True

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def leave(self) -> None:
        """Announce that this node has left for good; only a start with a greater incarnation brings it back."""
        await self._announce("left")

    async def go_away(self) -> None:
        """Announce that this node is away and will be back; again that it has left, if it has."""
        await self._announce("left" if self.table.own.state == "left" else "away")

    async def close(self) -> None:
        await self._tasks.close()
        if self._endpoint is not None:
            self._endpoint.close()

    # -- members --------------------------------------------------------------------------------------------------------

    @property
    def own_name(self) -> str:
        return self._identity.node

    def members(self) -> list[MemberView]:
        """Return all known nodes, this one included, by name."""
        return [self._view(m) for m in sorted(self.table.everyone(), key=lambda m: m.name)]

    def get(self, name: str) -> MemberView | None:
        member = self.table.member(name)
        return None if member is None else self._view(member)

    def alive(self) -> list[str]:
        """Return the other reachable members by name; suspects count until they are dead."""
        return sorted(self.table.there.names())

    def is_alive(self, name: str) -> bool:
        """Return whether it is another reachable member."""
        return name in self.table.there

    @property
    def health(self) -> int:
        """Score of this node's own health (Lifeguard); 0 is healthy."""
        return self._swim.awareness.score

    @property
    def others_alive(self) -> int:
        """The number of names in :meth:`alive`."""
        return len(self.table.there)

    def address_of(self, name: str) -> Address:
        """Return a member's address; raises :class:`SbonError` ``unknown-node``, or ``node-away`` for an absent one."""
        member = self.table.member(name)
        if member is None:
            raise unknown_node(name, (known.name for known in self.table.everyone()))
        if member.state not in REACHABLE:
            raise SbonError("node-away", f"the node {name!r} is {member.state}", where="node")
        return Address(member.address.host, member.address.port)

    def expected(self, name: str) -> Expected:
        """Return the name and instance under which a member is to be reached; of an unknown one the name alone."""
        return Expected(name, member.instance if (member := self.table.member(name)) is not None else "")

    def coordinate_of(self, name: str) -> Coordinate | None:
        if name == self._identity.node:
            return self.space.coordinate
        row = self.table.get(name)
        return None if row is None else row.member.coordinate

    def coordinate_age_s(self, name: str) -> float | None:
        """Return the seconds since a member's coordinate was heard, 0 for this node; None for an unknown coordinate."""
        if name == self._identity.node:
            return 0.0
        row = self.table.get(name)
        return None if row is None or row.member.coordinate is None else self._clock.now() - row.coordinate_at

    def rtt_ms(self, name: str) -> float | None:
        """Return this node's own fresh, filtered measurement; 0 for itself."""
        return 0.0 if name == self._identity.node else self.space.rtt_ms(name, self._clock.now())

    async def ping(self, name: str, timeout_s: float) -> Pinged | None:
        """Ping a member once for its latency, beside failure detector and coordinate; None without an answer in time."""
        return await self._pings.ping(name, timeout_s)

    def _view(self, member: Member) -> MemberView:
        return view_of(member, self.coordinate_of(member.name), self.rtt_ms(member.name))

    # -- datagrams ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            now = self._clock.now()
            if now >= self._next_measurement:
                self._measure(now)  # Before the tick: it replaces a probe that may be due as well.
            self._follow(self._swim.tick(now))
            pause_s = max(MIN_TICK_S, min(self._swim.due_in(now), self._next_measurement - now))
            await self._clock.sleep(pause_s)
            if self._clock.now() - now > pause_s + self.space.max_lag_s:
                self._lagged_at = self._clock.now()

    def _measure(self, now: float) -> None:
        """Measure the next neighbour, if there are too many members for the failure detector's probes to visit soon."""
        self._next_measurement = now + self.space.measuring_interval_s
        if self._measurements % CHOOSE_EVERY == 0:
            self.space.choose_neighbours({name: self.coordinate_of(name) for name in self.table.there.names()})
        self._measurements += 1
        name = self.space.next_neighbour()
        if name is not None and (self.space.settling or len(self.table.there) > len(self.space.neighbours())):
            self._follow(self._swim.ping(name, now))

    def _received(self, payload: bytes, sender: Address, stamp: float) -> None:
        try:
            packet = datagram.unpack(payload)
        except ProtocolError as error:
            self._counters.refuse("datagram-malformed", peer=str(sender), reason=str(error))
            return
        if packet.cluster != self._identity.cluster:
            self._counters.refuse("datagram-wrong-cluster", peer=str(sender), cluster=packet.cluster)
            return
        self._follow(self._handle_packet(packet, sender, len(payload)), stamp)

    def _handle_packet(self, packet: Packet, sender: Address, size: int) -> list[Instruction]:
        now = self._clock.now()
        rumours: tuple[Rumour, ...] = (*packet.members, *packet.state_updates, *packet.coordinate_updates)
        out = self._swim.take_rumours(self._validation.rumours(rumours), now) if rumours else []
        if isinstance(packet.message, Gossip):
            message = self._validation.message(packet.message, sender)
            out += self._swim.received(message, Endpoint(sender.host, sender.port), now, size)
        elif (handler := self._handlers.get(type(packet.message))) is not None:
            handler(packet.message, sender)
        if self._swim.gossip_due(now):
            out += self._swim.tick(now)
        return out

    def _follow(self, instructions: Sequence[Instruction], stamp: float | None = None) -> None:
        """Carry out the detector's instructions; ``stamp`` is when the datagram that caused them arrived."""
        for instruction in instructions:
            match instruction:
                case Send():
                    self._send(instruction)
                case Call(member=member, sequence=sequence):
                    self._tasks.start(f"check {member.name}", self._check_member(member, sequence))
                case Happened():
                    self._happened(instruction)
                case Disputed(name=name, address=address):
                    self._counters.refuse("name-conflict", name=name, address=f"{address.host}:{address.port}")
                    if (row := self.table.get(name)) is not None and row.member.address == address:
                        self._tasks.start(f"succeed {name}", self._exchanges.succeed(row.member))
                case Refused(kind=kind, name=name):
                    self._counters.refuse(kind, name=name)
                case Measured(name=name, sequence=sequence, wall_us=wall_us):
                    sent_at = self._stamps.take(sequence)
                    if sent_at is not None and stamp is not None:
                        self.clocks.offsets.observe(name, sent_at, stamp, wall_us)
                        self._measured(name, sequence, sent_at, stamp)

    async def _check_member(self, member: Member, sequence: int) -> None:
        """Check a member over TCP: only datagrams may fail to reach it. A suspect is asked again, so that it refutes."""
        for _ in range(2):
            record = await self._exchanges.check_member(member)
            if record is None:
                return
            if self._swim.reached(member.name, sequence, self._clock.now()):
                self._counters.count("reached-by-tcp-only")
            self.vouch(record)
            if (row := self.table.get(member.name)) is None or row.member.state != "suspect":
                return
            member = row.member

    def _happened(self, happened: Happened) -> None:
        name, change = happened.name, happened.change
        log.info("member", member=name, change=change)
        if happened.moved or change in ("died", "left", "returned", "joined"):
            # The measurements belong to an earlier life, perhaps elsewhere.
            self.space.forget(name)
            self.clocks.offsets.forget(name)
        for listener in self._listeners:
            try:
                listener(name, change)
            except Exception:
                log.exception("listener-failed", member=name, change=change)

    def _send(self, send: Send) -> None:
        """Send one datagram, or several, the first with the message, if one cannot carry all."""
        if self._endpoint is None:
            return
        if send.most is not None:
            self._send_alone(self._endpoint, send, send.most)
            return
        message = with_wall_clock(send.message, self._identity.node, self._clock.wall_us())
        rest, head = send.carries, () if send.first is None else (send.first,)
        for _ in range(MAX_DATAGRAMS):
            due = self.gossip.due()
            if head:
                due = [rumour for rumour in due if rumour is not head[0]]
            payload, taken = datagram.fill(self._identity.cluster, message, (*head, *rest, *due))
            stamp = self._endpoint.send(payload, Address(send.to.host, send.to.port))
            self.gossip.sent(due[: max(0, taken - len(head) - len(rest))], len(self.table) + 1)
            self._stamps.put(send, stamp)
            rest = rest[max(0, taken - len(head)) :]
            if not rest:
                return
            message, head = None, ()

    def _send_alone(self, endpoint: DatagramEndpoint, send: Send, most: int) -> None:
        """Send to an address that is no member's."""
        try:
            payload, _ = datagram.fill(self._identity.cluster, send.message, (), most)
        except ValueError:
            self._counters.count("answer-longer-than-request")
            return
        self._stamps.put(send, endpoint.send(payload, Address(send.to.host, send.to.port)))

    def _measured(self, name: str, sequence: int, sent: float, stamp: float) -> None:
        """Handle a ping's answer. A time measured while this process was late is too long, but better than none."""
        now, rtt_ms = self._clock.now(), (stamp - sent) * 1000
        lagged = self._lagged_at >= sent or now - stamp > self.space.max_lag_s
        if self._pings.answered(sequence, Pinged(lagged, rtt_ms)):
            return
        if lagged and self.space.measured(name):
            self._counters.count("rtt-under-lag")
            return
        if not self.space.observe(name, rtt_ms, self.coordinate_of(name), now):
            self._counters.count("rtt-refused")
            return
        self.publish_coordinate()

    def publish_coordinate(self) -> None:
        """Copy this node's current coordinate into its own record.

        Direct messages carry it as it is; all other nodes receive it once it has moved far enough, as a new version.
        """
        own, now, coordinate = self.table.own, self._clock.now(), self.space.coordinate
        if coordinate == own.coordinate:
            return
        news = self._coordinate_throttle.due(coordinate, now, self.table.living())
        version = own.coordinate_version + news
        self.table.own = own = msgspec.structs.replace(own, coordinate=coordinate, coordinate_version=version)
        if news:
            self.gossip.piggyback(CoordinateUpdate(own.name, own.incarnation, coordinate, version))

    @property
    def own_meta(self) -> NodeMeta:
        """Return the metadata that this node tells all members of itself."""
        return self.table.own.meta or NodeMeta(self._settings.tag_words)

    def describe(self, meta: NodeMeta) -> None:
        """Take ``meta`` for this node's own, and spread it if it is new."""
        if meta != (own := self.table.own).meta:
            self.table.own = msgspec.structs.replace(own, meta=meta, incarnation=own.incarnation + self._started)
            if self._started:
                self.gossip.spread(self.table.own)

    def take_members(self, members: tuple[Member, ...], *, asked: bool) -> None:
        """Take records of another's table; ``asked`` if this node has asked for it."""
        checked = tuple(m for m in self._validation.rumours(members) if isinstance(m, Member))
        self._follow(self._swim.take_members(checked, self._clock.now(), asked=asked))

    def vouch(self, member: Member) -> None:
        """Take the own record of a member that was reached at its own address."""
        for rumour in self._validation.rumours((member,)):
            if isinstance(rumour, Member):
                self._follow(self._swim.vouched(rumour, self._clock.now()))

    def bury(self, member: Member) -> None:
        """Mark an instance as dead whose address another instance answers from."""
        dead = StateUpdate(member.name, member.incarnation, "dead")
        self._follow(self._swim.take_rumours((dead,), self._clock.now()))

    def unsettled(self) -> bool:
        """Return whether nodes named by an exchange have yet to answer."""
        return self._swim.candidates.asked_for() > 0

    async def _announce(self, state: MemberState) -> None:
        self.table.own = own = msgspec.structs.replace(self.table.own, state=state)
        names = self.table.there.sample(self._rng, MAX_ANNOUNCED)
        payload, _ = datagram.fill(self._identity.cluster, None, [StateUpdate(own.name, own.incarnation, state)])
        for _ in range(2):
            for row in filter(None, map(self.table.get, names)):
                if self._endpoint is not None:
                    self._endpoint.send(payload, Address(*msgspec.structs.astuple(row.member.address)))
            await self._clock.sleep(TICK_S)


class Validation:
    """One node's validation of messages and rumours, in a space of the given dimensions.

    All coordinates of other nodes pass here, before the table, the gossip and the space get them.
    """

    def __init__(self, table: Table, dimensions: int, counters: Counters) -> None:
        self._table, self._dimensions, self._counters = table, dimensions, counters

    def message(self, message: Gossip, sender: Address) -> Gossip:
        """Return the message, without a coordinate that is impossible or older than the known one."""
        if not isinstance(message, Ping | Ack) or message.coordinate is None:
            return message
        if checked(message.coordinate, self._dimensions) is not None:
            known = self._table.get(message.source)
            if known is None or message.coordinate_version >= known.member.coordinate_version:
                return message
            self._counters.count("coordinate-stale")
        else:
            self._counters.refuse("coordinate-refused", name=message.source, peer=str(sender))
        return msgspec.structs.replace(message, coordinate=None)

    def rumours(self, rumours: Iterable[Rumour]) -> tuple[Rumour, ...]:
        """Return the rumours that may be true and are news; an impossible coordinate is removed from its member."""
        admitted: list[Rumour] = []
        for rumour in rumours:
            if isinstance(rumour, CoordinateUpdate) and self._table.outdated(rumour):
                continue
            if rumour.incarnation > MAX_INCARNATION:
                self._counters.refuse("incarnation-refused", name=rumour.name)
                continue
            if isinstance(rumour, Member) and not rumour.instance:
                self._counters.refuse("name-conflict", name=rumour.name, reason="of no instance")
                continue
            coordinate = None if isinstance(rumour, StateUpdate) else rumour.coordinate
            if coordinate is not None and checked(coordinate, self._dimensions) is None:
                self._counters.refuse("coordinate-refused", name=rumour.name)
                if not isinstance(rumour, Member):
                    continue
                rumour = msgspec.structs.replace(rumour, coordinate=None)
            admitted.append(rumour)
        return tuple(admitted)


# -- Membership over TCP: joining, exchange of tables in parts, and checks of members that do not answer datagrams ----

PART_MEMBERS = 256
"""Members of a table in one answer: some 40 kB."""
MAX_PARTS, SETTLE_S = 128, 0.05


class Exchanges:
    """One node's exchanges; ``taker`` receives the records of other nodes."""

    def __init__(
        self,
        identity: Identity,
        table: Table,
        taker: Membership,
        *,
        peers: Peers,
        server: PeerServer,
        settings: MembershipSettings,
        clock: Clock,
    ) -> None:
        self._identity, self._table, self._taker = identity, table, taker
        self._peers, self._settings, self._clock = peers, settings, clock
        server.handle(SyncMembers, self._synced)
        server.handle(CheckMember, self._checked)

    async def join(self, seeds: Sequence[Address]) -> int:
        """Join through the first seed that answers; return how many members are reachable then, this one included.

        A seed that is this node itself is skipped, so that all nodes may have the same list; alone it founds a cluster. Raises
        :class:`SbonError`: ``join-failed`` with a line for each seed; or the refusal of a living seed (``name-taken``,
        ``wrong-cluster``, ``version``), which no other seed would change.
        """
        unreachable: list[SbonError] = []
        selves = 0
        for seed in seeds:
            try:
                if not await self._exchange(seed):
                    selves += 1
                    continue
            except SbonError as error:
                if error.code != "peer-unreachable":
                    raise
                unreachable.append(error)
            else:
                await self._settle()
                return self._table.living()
        if selves and not unreachable:
            return self._table.living()
        raise _join_failed(seeds, unreachable)

    async def _settle(self) -> None:
        """Wait up to two pings' time for answers of the nodes in the table; they become members by answering."""
        until = self._clock.now() + 2 * self._settings.probe_timeout_s
        while self._taker.unsettled() and self._clock.now() < until:
            await self._clock.sleep(SETTLE_S)

    async def check_member(self, member: Member, *, any_instance: bool = False) -> Member | None:
        """Return the member's own record over TCP; None without an answer, or if another node answers.

        Another instance of that name is another node, unless ``any_instance``.
        """
        address = Address(member.address.host, member.address.port)
        try:
            limit_s = self._settings.stand_still_s
            who = Expected(member.name, "" if any_instance else member.instance)
            reply: Members = await self._peers.call(address, CheckMember(member), timeout_s=limit_s, expected=who)
        except SbonError as error:
            log.debug("check-failed", member=member.name, reason=str(error))
            return None
        record = next((other for other in reply.members if other.name == member.name), None)
        return record if record is not None and record.address == member.address else None

    async def succeed(self, member: Member) -> None:
        """Replace a member by another instance that answers at its address, where the member itself can run no more."""
        record = await self.check_member(member, any_instance=True)
        if record is not None and record.instance != member.instance:
            self._taker.bury(member)
            self._taker.vouch(record)

    async def _exchange(self, address: Address) -> bool:
        """Send this node's record and fetch the other's table; False if the address is this node's own."""
        after = ""
        for _ in range(MAX_PARTS):
            call = SyncMembers(members=(self._table.own,), joining=True, after=after, replace=self._settings.replace)
            reply: Members = await self._peers.call(address, call)
            if not reply.members:
                break
            first = reply.members[0]
            if (first.name, first.instance) == (self._identity.node, self._identity.instance):
                return False
            if not self._peers.reached(address, first.name, first.instance):
                message = f"it says that it is {first.name}, and was reached as another"
                raise SbonError("peer-unreachable", message, where=str(address))
            if first.address == Endpoint(*address):
                self._taker.vouch(first)
            self._taker.take_members(reply.members, asked=True)
            last = reply.members[-1].name
            if not reply.more or last <= after:
                break
            after = last
        return True

    async def _check_name(self, own: Member, *, replace: bool) -> None:
        """Raise ``name-taken`` if the joining node's name belongs to another data directory.

        The word to ``replace`` it gives the name to the joining node, if the other one is dead or away, or if the joining node
        answers at its address. Queries count the other one as gone for good from then on.
        """
        known = self._table.member(own.name)
        if known is None or known.instance == own.instance or known.state == "left":
            return
        row = self._table.get(own.name)
        if row is None or not replace:
            raise self._name_taken(own, row)
        if known.state not in LOST:  # Unless this very instance answers there, so that the node there before is gone.
            there = await self.check_member(own) if known.address == own.address else None
            if there is None or there.instance != own.instance:
                raise self._name_taken(own, row)
        self._taker.bury(known)

    def _name_taken(self, own: Member, row: Row | None) -> SbonError:
        if row is None:  # The name is this node's own.
            hint = "choose another name"
            return SbonError("name-taken", f"the node that was asked to join is called {own.name!r}", where="name", hint=hint)
        known, seconds, dead_s = row.member, self._clock.now() - row.since, self._settings.declared_dead_s
        there = f"{known.state} for {seconds:.0f} s at {known.address.host}:{known.address.port}"
        if row.predecessor == own.instance:
            message = f"a node with another data directory has taken the name {own.name!r} over, {there}"
            hint = "to have the name back, stop that node and start this one with --replace; or choose another name"
            hint += " and an empty data directory"
        elif known.state in LOST:
            message = f"the name {own.name!r} belongs to a node with another data directory, {there}"
            hint = "start it on that data directory; if that is lost, with --replace, and queries count the old node as gone"
        else:
            message = f"another node is called {own.name!r}, {there}; if it has died, that is known in at most {dead_s:.0f} s"
            hint = "choose another name, use the data directory it had before, or have the other one leave"
        return SbonError("name-taken", message, where="name", hint=hint)

    async def _synced(self, call: SyncMembers, caller: Caller) -> Members:
        """Serve a part of the table. The first begins with this node and its record of the caller, which may have restarted."""
        own = next((m for m in call.members if m.name == caller.node), None)
        if call.joining and own is not None:
            await self._check_name(own, replace=call.replace)
        known = self._table.get(caller.node)
        self._taker.take_members(call.members, asked=False)
        first = (self._table.own, *(() if known is None else (known.member,))) if not call.after else (self._table.own,)
        rest = [row.member for row in self._table.rows() if row.member.name > call.after and row.member.state not in GONE]
        return Members(members=(*first, *rest[:PART_MEMBERS]), more=len(rest) > PART_MEMBERS)

    async def _checked(self, call: CheckMember, caller: Caller) -> Members:
        if call.member.name == self._identity.node:
            self._taker.take_members((call.member,), asked=False)
        return Members(members=(self._table.own,))


def _join_failed(seeds: Sequence[Address], unreachable: Sequence[SbonError]) -> SbonError:
    """Return the error of a join through seeds none of which answers: a name without an address is a slip, not an absent node."""
    message, hint = "no node answers", "is one running there?"
    if all(isinstance(error.__cause__, NameUnresolvedError) for error in unreachable):
        message = unreachable[0].message if len(unreachable) == 1 else "none of the names can be resolved"
        hint = unreachable[0].hint
    details = tuple(f"{error.where}: {error.message}" for error in unreachable)
    return SbonError("join-failed", message, where=", ".join(map(str, seeds)), hint=hint, details=details)

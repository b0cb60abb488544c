"""This node's cell in the network of ants: it takes ants from other nodes, and sends its own."""

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

import msgspec
import numpy as np
from msgspec.structs import astuple

from sbon_node.base.tasks import Tasks
from sbon_node.base.token_buckets import TokenBucket, TokenBuckets
from sbon_node.context import Context
from sbon_node.hosting.operators.room import Room
from sbon_node.net.counters import Counters
from sbon_node.net.transport import Address
from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.membership.table import REACHABLE
from sbon_node.papers.ants.algorithm.cell import Cell
from sbon_node.papers.ants.algorithm.scouting import EnforcementAnt, exceeds
from sbon_node.papers.ants.algorithm.terrain import LEAST_MS, drawn_neighbours, onward_weights, own_neighbours, ring_neighbours
from sbon_node.papers.ants.network.walk import Walk, WalkingAnt
from sbon_node.papers.ants.network.wire import are_whole, chain_of, needs_of, site_of, state_of
from sbon_node.papers.ants.settings import AntSettings
from sbon_node.placement.model.network_view import UNKNOWN_MS
from sbon_node.placement.model.queueing import Flow, Server
from sbon_protocol.api.operators import Needs
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Endpoint
from sbon_protocol.papers.ants import (
    Ant,
    CellState,
    EnforceAnt,
    EnforceReturn,
    RouteAnt,
    RouteReturn,
    ScoutAnt,
    ScoutReturn,
    WithdrawAnt,
)

ROUND_BITS = 62
MAX_SENDERS = 4096
MAX_BESIDE = 64
"""Queries without whose load a cell is kept between two looks."""
LOOK_S = 1.0
"""Age beyond which the cell looks at the node's queue and capacity again."""
TELL_PAUSE_S = 0.5
"""Least pause between two reports of a changed state to neighbours."""

Report = RouteReturn | ScoutReturn | EnforceReturn
OnReport = Callable[[Report], None]


class Round(NamedTuple):
    """A round of ants of this node: ``ends`` are the nodes from which it accepts reports."""

    ends: frozenset[str]
    on_report: OnReport


class AntService:
    """The cell of this node, with its rounds under way.

    The walk itself (:mod:`~sbon_node.papers.ants.network.walk`) is pure; this class gives it time, datagrams and the state of the
    node.
    """

    def __init__(self, context: Context, room: Room, settings: AntSettings) -> None:
        self._context, self._room = context, room
        self.rng = random.Random(repr(context.rng.getstate()))
        """A generator of its own: ants draw often, and others' draws do not depend on them."""
        self.settings = settings
        self.cell = Cell(
            context.name,
            {},
            self._weights,
            Server(),
            most_tables=settings.max_tables,
            forget_after=settings.forget_s,
            evaporation=settings.evaporation_s,
        )
        self.walk = Walk(self.cell, settings, self.rng, self.path_ms, context.counters.count, self._beside)
        self._cells_beside: dict[str, Cell] = {}
        self._enforcing = Enforcing(self.cell, settings.booked_s, room.reserve, room.release)
        self._buckets = TokenBuckets(
            each=lambda: TokenBucket(settings.burst_of_one, max(1.0, settings.ants_s / 2)),
            most=MAX_SENDERS,
            whole=TokenBucket(settings.burst, settings.ants_s),
        )
        self._rounds: dict[int, Round] = {}
        self._looked_at = self._refreshed_at = self._told_at = -math.inf
        self._tasks = Tasks()
        self.port = AntPort(context.membership, context.counters, self._received)

    def start(self) -> None:
        self._tasks.start("tell", self._tell())
        self._tasks.start("explore", self._explore())

    async def close(self) -> None:
        self.port.close()
        await self._tasks.close()

    # -- rounds of this node -------------------------------------------------------------------------------------------

    def open_round(self, ends: Sequence[str], on_report: OnReport) -> int:
        """Return the number of a new round, whose reports go to ``on_report`` until :meth:`end_round`."""
        number = self.rng.getrandbits(ROUND_BITS)
        self._rounds[number] = Round(frozenset(ends), on_report)
        return number

    def end_round(self, number: int) -> None:
        self._rounds.pop(number, None)

    def send(self, to: str, ant: Ant) -> None:
        """Send an ant of this node to the node where it begins, which may be this one."""
        if to == self._context.name:
            self._take_ant(ant)
        else:
            self.port.send(to, ant)

    def path_ms(self, source: str, other: str) -> float:
        """Return the one-way latency as far as known here."""
        known_ms = self._context.directory.estimate_rtt_ms(source, other).one_way_ms
        return UNKNOWN_MS if known_ms is None else known_ms

    def booked(self, query: str = "") -> list[Flow]:
        """Return the flows for which ants have reserved capacity here, without those of a query."""
        bookings = self._enforcing.bookings(self._context.clock.now())
        return [one.flow for one in bookings if not query or not any(o.startswith(f"{query}.") for o in one.needs)]

    # -- ants that come ------------------------------------------------------------------------------------------------

    def _received(self, ant: Ant) -> None:
        if self._buckets.take(ant.sender, 1, self._context.clock.now()) > 0.0:
            self._context.counters.count("ant-dropped")
        elif not self._leads_somewhere(ant):
            self._context.counters.count("ant-astray")
        else:
            self._take_ant(ant)

    def _leads_somewhere(self, ant: Ant) -> bool:
        """Return whether the destination is a member: invented ones would displace the pheromones of others."""
        match ant:
            case RouteAnt():
                destination = ant.destination
            case ScoutAnt():
                destination = ant.chain.destination
            case _:
                return True
        return destination == self._context.name or self._context.membership.get(destination) is not None

    def _take_ant(self, ant: Ant) -> None:
        now = self._context.clock.now()
        match ant:
            case CellState():
                self.walk.tell(ant.sender, ant.state, now)
            case EnforceAnt():
                self._look(now)
                self._follow(self._enforcing.enforce(ant, ant.sender, now))
                self._changed(now)
            case WithdrawAnt():
                self._follow(self._enforcing.withdraw(ant))
                self._changed(now)
            case EnforceReturn():
                self._report(ant, ant.sender)
            case RouteReturn() | ScoutReturn() if self._report(ant, ant.sender):
                pass
            case _:
                self._look(now)
                self._walk(ant, now)

    def _walk(self, ant: WalkingAnt, now: float) -> None:
        sent = self.walk.step(ant, ant.sender, now)
        if sent is None:
            return
        if sent.to != self._context.name:
            self.port.send(sent.to, sent.ant)
        elif isinstance(sent.ant, RouteReturn | ScoutReturn) and (begun := self._rounds.get(sent.ant.round)) is not None:
            begun.on_report(sent.ant)

    def _report(self, ant: Report, sender: str) -> bool:
        """Hand a report of an own round to its leader; return whether there is such a round."""
        begun = self._rounds.get(ant.round)
        if begun is None or sender not in begun.ends:
            return False
        begun.on_report(ant)
        return True

    def _follow(self, sent: Sequence[tuple[str, Ant]]) -> None:
        for to, ant in sent:
            self.send(to, ant)

    # -- the cell ------------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """Look at this node's queue and capacity, and at its neighbours, if that is due or one of these has died."""
        is_due = now - self._refreshed_at >= self.settings.refresh_s or not self.cell.neighbours
        if is_due or not all(map(self._context.membership.is_alive, self.cell.neighbours)):
            self._meet(now)
        if now - self._looked_at >= LOOK_S:
            self._serve(now)

    def _serve(self, now: float) -> None:
        self._looked_at = now
        self.cell.serve(*self._present(""))
        self._cells_beside.clear()
        self.walk.changed()

    def _present(self, query: str) -> tuple[Server, Needs]:
        return Server(speed=self._room.speed, flows=(*self._room.flows(query), *self.booked(query))), self._room.free(query)

    def _beside(self, query: str) -> Cell:
        """Return the cell without the load of a query, as of the last look."""
        if not query:
            return self.cell
        if query not in self._cells_beside:
            if len(self._cells_beside) >= MAX_BESIDE:
                self._cells_beside.clear()
            self._cells_beside[query] = Cell(self._context.name, {}, self._weights, *self._present(query))
        return self._cells_beside[query]

    def _meet(self, now: float) -> None:
        """Choose the neighbours: those to whom no third node is nearer than to this one, and this one than to it.

        The choice is by coordinates, of which others know the same. The ring adds two, and in a large cluster some are drawn.
        """
        self._refreshed_at = now
        own, directory = self._context.name, self._context.directory
        names = self._context.membership.alive()
        if not names:
            return self.cell.meet({})
        away_ms = directory.estimates_ms([own], names, measured=False)[0] / 2
        known = [name for name, ms in zip(names, away_ms.tolist(), strict=True) if math.isfinite(ms)]
        near = [number for number in np.argsort(away_ms, kind="stable").tolist() if math.isfinite(away_ms[number])]
        near = near[: self.settings.max_near]
        names, away_ms = [names[number] for number in near], np.maximum(away_ms[near], LEAST_MS)
        latency_ms = np.nan_to_num(directory.estimates_ms(names, names, measured=False) / 2, nan=UNKNOWN_MS)
        linked = np.flatnonzero(own_neighbours(away_ms, latency_ms))[: self.settings.max_neighbours]
        drawn = drawn_neighbours(own, known, self.settings.drawn_neighbours)[: self.settings.max_neighbours]
        chosen = list(dict.fromkeys([*(names[number] for number in linked.tolist()), *ring_neighbours(own, known), *drawn]))
        hops_ms = np.maximum(directory.estimates_ms([own], chosen)[0] / 2, LEAST_MS)
        self.cell.meet(dict(zip(chosen, hops_ms.tolist(), strict=True)))
        self.walk.changed()
        return None

    def _weights(self, name: str, destination: str) -> dict[str, float]:
        hops_ms = self.cell.neighbours
        nodes = [name, *hops_ms]
        left_ms = np.nan_to_num(self._context.directory.estimates_ms(nodes, [destination])[:, 0] / 2, nan=UNKNOWN_MS).tolist()
        return onward_weights(hops_ms, dict(zip(hops_ms, left_ms[1:], strict=True)), left_ms[0])

    def _changed(self, now: float) -> None:
        """Tell the neighbours soon that this node's state has changed."""
        self._serve(now)
        self._tasks.start("tell soon", self._tell_soon())

    async def _tell_soon(self) -> None:
        pause_s = self._told_at + TELL_PAUSE_S - self._context.clock.now()
        if pause_s > 0:
            await self._context.clock.sleep(pause_s)
        self._tell_all()

    async def _tell(self) -> None:
        """Tell the neighbours this node's state from time to time."""
        await self._context.clock.sleep(self.settings.tell_s * self.rng.random())
        while True:
            self._look(self._context.clock.now())
            self._tell_all()
            await self._context.clock.sleep(self.settings.tell_s)

    def _tell_all(self) -> None:
        self._told_at = self._context.clock.now()
        state = CellState(self._context.name, state_of(self.cell.load))
        for neighbour in self.cell.neighbours:
            self.port.send(neighbour, state)

    async def _explore(self) -> None:
        """Send a routing ant to a random member from time to time: pheromones are there before a query needs them."""
        context = self._context
        while True:
            await context.clock.sleep(self.settings.explore_s * (0.5 + self.rng.random()))
            for destination in context.membership.table.there.sample(self.rng, 1):
                round_ = self.rng.getrandbits(ROUND_BITS)
                self.send(context.name, RouteAnt(round_, 0, context.name, context.name, destination, (), 0.0, 0))


# -- Enforcement ants at one node: they reserve the tasks of a site, and undo it where a later site refuses -----------

MAX_BOOKINGS = 1024


class Booking(NamedTuple):
    """Operators of ``leader`` with reserved capacity here, and the flow through them; ``until`` it counts as traffic.

    The flow keeps no more cores busy than are reserved: an ant may claim any work.
    """

    leader: str
    needs: dict[str, Needs]
    flow: Flow
    until: float


class Sent(NamedTuple):
    """An ant on its way to the node ``to``."""

    to: str
    ant: EnforceAnt | EnforceReturn | WithdrawAnt


Reserve = Callable[[str, str, dict[str, Needs], float], None]
"""Reserves for a leader, on behalf of the node that the ant came from, operators for some seconds; raises ``SbonError``."""
Release = Callable[[str, tuple[str, ...]], None]
"""Releases what a leader has reserved for operators that do not run."""


class Enforcing:
    """The bookings of this node by round, at most ``MAX_BOOKINGS``, for ``booked_s`` seconds."""

    def __init__(self, cell: Cell, booked_s: float, reserve: Reserve, release: Release) -> None:
        self._cell, self._booked_s, self._reserve, self._release = cell, booked_s, reserve, release
        self._bookings: OrderedDict[int, Booking] = OrderedDict()

    def bookings(self, now: float) -> list[Booking]:
        """Return the bookings that still count, and forget the others."""
        for round_ in [round_ for round_, booking in self._bookings.items() if booking.until <= now]:
            del self._bookings[round_]
        return list(self._bookings.values())

    def enforce(self, ant: EnforceAnt, sender: str, now: float) -> list[Sent]:
        """Reserve for the ant's site here, and send the ant on, to its leader in the end; or send it back."""
        name, tasks = self._cell.name, len(ant.chain.tasks)
        named = len(ant.operators) == tasks and are_whole(ant.sites, tasks, all_placed=True)
        if not named or ant.at >= len(ant.sites) or ant.sites[ant.at].node != name:
            return []
        if ant.round not in self._bookings:
            reason = self._booked(ant, sender, now)
            if reason:
                before = tuple(site.node for site in reversed(ant.sites[: ant.at]))
                back = [Sent(before[0], WithdrawAnt(ant.round, name, before[1:]))] if before else []
                return [*back, Sent(ant.leader, EnforceReturn(ant.round, name, False, reason[:500]))]
        if ant.at + 1 == len(ant.sites):
            return [Sent(ant.leader, EnforceReturn(ant.round, name, True))]
        return [Sent(ant.sites[ant.at + 1].node, msgspec.structs.replace(ant, sender=name, at=ant.at + 1))]

    def withdraw(self, ant: WithdrawAnt) -> list[Sent]:
        """Undo the booking of a round, and send the ant on to the nodes before."""
        booking = self._bookings.pop(ant.round, None)
        if booking is not None:
            self._release(booking.leader, tuple(booking.needs))
        return [Sent(ant.nodes[0], WithdrawAnt(ant.round, self._cell.name, ant.nodes[1:]))] if ant.nodes else []

    def _booked(self, ant: EnforceAnt, sender: str, now: float) -> str:
        """Reserve and book; return the reason of a refusal, or nothing."""
        site, chain = site_of(ant.sites[ant.at]), chain_of(ant.chain, str(ant.round))
        if len(self.bookings(now)) >= MAX_BOOKINGS:
            return f"{self._cell.name} has booked too many queries"
        if exceeds(self._cell, EnforcementAnt(chain=chain, sites=(site,))):
            return f"{self._cell.name} has become too busy"
        tasks = range(site.first, site.last)
        needs = {f"{ant.query}.{ant.operators[task]}": needs_of(ant.chain.tasks[task]) for task in tasks}
        try:
            self._reserve(ant.leader, sender, needs, ant.hold_s)
        except SbonError as error:
            return f"{self._cell.name}: {error.message}"
        flow = within(chain.flow(site.first, site.last), sum(one.cores for one in needs.values()))
        self._bookings[ant.round] = Booking(ant.leader, needs, flow, now + self._booked_s)
        return ""


def within(flow: Flow, cores: float) -> Flow:
    """Return the flow with no more messages than keep so many cores busy."""
    most_s = math.inf if flow.service.mean_ms <= 0 else 1000.0 * cores / flow.service.mean_ms
    return msgspec.structs.replace(flow, rate_s=min(flow.rate_s, most_s))


AntHandler = Callable[[Ant], None]
"""Takes an ant from the living member that it names as its sender; must not raise."""


class AntPort:
    """Ants on the port of membership: only members send them, from their own addresses, under their own names.

    Sends ants to members, and hands those of members to ``handler`` until it is closed.
    """

    def __init__(self, membership: Membership, counters: Counters, handler: AntHandler) -> None:
        self._membership, self._counters = membership, counters
        self._handler: AntHandler | None = handler
        membership.handle(get_args(Ant), self._received)

    def close(self) -> None:
        """Drop all ants that come from now on."""
        self._handler = None

    def _received(self, ant: Ant, sender: Address) -> None:
        table = self._membership.table
        row = table.get(ant.sender)
        if row is None or row.member.state not in REACHABLE or not table.is_from(ant.sender, Endpoint(*sender)):
            # As from a node that has joined, or come back, and of which no rumour has arrived here yet.
            self._counters.note("ant-of-a-stranger", peer=str(sender), name=ant.sender)
        elif self._handler is not None:
            self._handler(ant)

    def send(self, to: str, ant: Ant) -> bool:
        """Send an ant to a member; return whether it could be sent: the member is known and the ant fits."""
        row = self._membership.table.get(to)
        try:
            if (
                row is not None
                and row.member.state in REACHABLE
                and self._membership.send(Address(*astuple(row.member.address)), ant)
            ):
                return True
        except ValueError:
            self._counters.count("ant-too-long")
            return False
        self._counters.count("ant-nowhere")
        return False

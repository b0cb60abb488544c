"""Steps of routing and scouting ants at one node, from datagram to datagram. Pure: takes the time and a generator."""

from __future__ import annotations

import functools
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from sbon_node.papers.ants.algorithm import routing, scouting
from sbon_node.papers.ants.algorithm.cell import NO_ROOM, Cell, Quote, ServerLoad
from sbon_node.papers.ants.algorithm.chain import Chain
from sbon_node.papers.ants.algorithm.colony import FAILURES
from sbon_node.papers.ants.algorithm.routing import RoutingAnt
from sbon_node.papers.ants.algorithm.scouting import PathLatency, ScoutingAnt
from sbon_node.papers.ants.network.wire import are_whole, chain_of, load_of, site_of, sites_on_wire, state_of
from sbon_node.papers.ants.settings import AntSettings
from sbon_protocol.papers.ants import AntSite, RouteAnt, RouteReturn, ScoutAnt, ScoutReturn, ServerState

LEAST_SHARE = 0.5
"""Least plausible share of the known latency to a destination that a trip there may take; a shorter one counts as this."""
KEPT_BALANCES = 256

WalkingAnt = RouteAnt | RouteReturn | ScoutAnt | ScoutReturn
Dropped = Callable[[str], None]
"""Is told why an ant dies here: a counter's kind."""


class Send(NamedTuple):
    """An ant to send to a node; to this node itself where a round of its own ends."""

    to: str
    ant: WalkingAnt


class Walk:
    """A node's cell, the states that its neighbours have told, and the trails of ants.

    Every step returns where the ant goes next, or None if it dies.
    """

    def __init__(
        self,
        cell: Cell,
        settings: AntSettings,
        rng: random.Random,
        path_ms: PathLatency,
        dropped: Dropped = lambda kind: None,
        beside: Callable[[str], Cell] | None = None,
    ) -> None:
        """Create it; ``beside`` returns the cell without the load of a query, by default with all load."""
        self._beside = beside or (lambda query: cell)
        self.cell, self._settings, self._rng, self._path_ms, self._dropped = cell, settings, rng, path_ms, dropped
        self.trails = Trails(settings.max_trails, settings.trail_s)
        self._told: dict[str, tuple[ServerLoad, float]] = {}
        self._balances: OrderedDict[tuple[object, ...], tuple[AntSite, ...]] = OrderedDict()

    @property
    def name(self) -> str:
        return self.cell.name

    def tell(self, neighbour: str, state: ServerState, now: float) -> None:
        """Take the state of a neighbour."""
        if neighbour in self.cell.neighbours:
            self._told[neighbour] = load_of(neighbour, state), now
        for other in [name for name in self._told if name not in self.cell.neighbours]:
            del self._told[other]
        self.changed()

    def changed(self) -> None:
        """Forget what was computed from the states of this node and its neighbours."""
        self._balances.clear()

    def known(self, now: float, query: str = "") -> dict[str, ServerLoad]:
        """Return the states of this node, without a query's load, and of the neighbours that have told theirs lately."""
        kept_s = 3.0 * self._settings.tell_s
        fresh = {name: load for name, (load, at) in self._told.items() if now - at <= kept_s}
        return {self.name: self._beside(query).load, **fresh}

    def step(self, ant: WalkingAnt, sender: str, now: float) -> Send | None:
        """Take an ant that has come from ``sender``; this node's own name for an ant that begins here."""
        match ant:
            case RouteAnt():
                return self._route(ant, sender, now) if self._may_come(ant.path, ant.source, sender) else None
            case RouteReturn():
                return self._routed(ant, sender, now)
            case ScoutAnt():
                return self._scout(ant, sender, now) if self._may_come(ant.path, ant.chain.source, sender) else None
            case ScoutReturn():
                return self._scouted(ant, sender, now)

    def _may_come(self, path: tuple[str, ...], source: str, sender: str) -> bool:
        if (path[-1] == sender and path[0] == source) if path else source == self.name:
            return True
        self._dropped("ant-astray")
        return False

    # -- routing ants --------------------------------------------------------------------------------------------------

    def _route(self, ant: RouteAnt, sender: str, now: float) -> Send | None:
        if ant.destination == self.name:
            return Send(sender, RouteReturn(ant.round, ant.number, self.name, 0.0)) if ant.path else None
        came_from, age_ms, path = sender, ant.age_ms, ant.path
        if self.name in path:
            trail = self.trails.get((ant.round, ant.number), now)
            if trail is None or ant.age_ms - trail.age_ms > ant.age_ms / 2:
                return self._dies("ant-in-a-circle")
            came_from, age_ms, path = trail.came_from, trail.age_ms, path[: path.index(self.name)]
        path = (*path, self.name)
        if len(path) >= self._settings.max_hops or ant.steps >= 2 * self._settings.max_hops or not self.cell.neighbours:
            return self._dies("ant-too-far")
        moved, chosen = routing.forward(self.cell, RoutingAnt(destination=ant.destination, path=path), self._rng, now)
        hop_ms = moved.hops_ms[-1]
        self.trails.put((ant.round, ant.number), Trail(came_from, chosen, ant.destination, hop_ms, age_ms, now))
        further = msgspec.structs.replace(ant, sender=self.name, path=path, age_ms=age_ms + hop_ms, steps=ant.steps + 1)
        return Send(chosen, further)

    def _routed(self, ant: RouteReturn, sender: str, now: float) -> Send | None:
        trail = self._trail(ant, sender, now)
        if trail is None:
            return None
        least_ms = LEAST_SHARE * self._path_ms(self.name, trail.destination)
        trip_ms = max(ant.trip_ms + trail.hop_ms, least_ms)
        if sender in self.cell.neighbours:
            self.cell.table(trail.destination, now).reinforce(sender, trip_ms, now)
        return Send(trail.came_from, msgspec.structs.replace(ant, sender=self.name, trip_ms=trip_ms))

    def _trail(self, ant: RouteReturn | ScoutReturn, sender: str, now: float) -> Trail | None:
        trail = self.trails.take_back((ant.round, ant.number), sender, now)
        if trail is None:
            self._dropped("ant-without-trail")
        return trail

    # -- scouting ants -------------------------------------------------------------------------------------------------

    def _scout(self, ant: ScoutAnt, sender: str, now: float) -> Send | None:
        key = ant.round, ant.number
        if not are_whole(ant.sites, len(ant.chain.tasks), all_placed=False):
            return self._dies("ant-malformed")
        trail = self.trails.get(key, now)
        came_from = sender if trail is None else trail.came_from
        chain = chain_of(ant.chain, str(ant.round))
        beside = self._beside(chain.query)
        before = _scout_of(ant, chain)
        scout, chosen = scouting.follows(self.cell, before, ant.number)
        if chosen is None:
            scout, chosen = scouting.onward(self.cell, scouting.prospect(beside, scout), self._rng, now)
        kept = ant.sites if scout.sites[: len(ant.sites)] == before.sites else ()
        sites = (*kept, *sites_on_wire(scout.sites[len(kept) :], {self.name: state_of(beside.load)}))
        if chosen is None:
            return self._turns(ant, scout, sites, came_from, now)
        if len(scout.path) >= self._settings.max_hops:
            return self._dies("ant-too-far")
        self.trails.put(key, Trail(came_from, chosen, chain.destination, 0.0, 0.0, now))
        further = msgspec.structs.replace(ant, sender=self.name, path=scout.path, sites=sites, beyond=scout.beyond)
        return Send(chosen, further)

    def _turns(self, ant: ScoutAnt, scout: ScoutingAnt, sites: tuple[AntSite, ...], came_from: str, now: float) -> Send | None:
        """Send a scout back from the end of its path, if it has placed all tasks or must discourage others."""
        if scout.complete:
            balanced = self._balanced(ant.round, scout.chain, sites, now)
            return Send(came_from, ScoutReturn(ant.round, ant.number, self.name, ant.chain, balanced))
        if scout.path[-1] == ant.chain.destination and scouting.fail(self.cell, scout, FAILURES):
            return Send(came_from, ScoutReturn(ant.round, ant.number, self.name, ant.chain, ()))
        return self._dies("scout-failed")

    def _scouted(self, ant: ScoutReturn, sender: str, now: float) -> Send | None:
        trail = self._trail(ant, sender, now)
        if trail is None:
            return None
        sites = ant.sites
        if not sites:
            if sender in self.cell.neighbours:
                self.cell.table(trail.destination, now).discourage(sender, now)
        elif are_whole(sites, len(ant.chain.tasks), all_placed=True):
            sites = self._balanced(ant.round, chain_of(ant.chain, str(ant.round)), sites, now)
        else:
            return self._dies("ant-malformed")
        return Send(trail.came_from, msgspec.structs.replace(ant, sender=self.name, sites=sites))

    def _balanced(self, round_: int, chain: Chain, sites: tuple[AntSite, ...], now: float) -> tuple[AntSite, ...]:
        """Move tasks to this node or a neighbour where that makes the chain faster; most scouts of a round ask the same."""
        key = round_, chain.tasks, tuple((site.node, site.first, site.last) for site in sites)
        if key in self._balances:
            return self._balances[key]
        carried = {site.node: load_of(site.node, site.state) for site in sites if site.state is not None}
        loads = carried | self.known(now, chain.query)
        quotes, path_ms = _Quotes(chain, sites, loads), functools.cache(self._path_ms)
        hosts = tuple(site.node for site in sites for _ in range(site.first, site.last))
        scout = ScoutingAnt(chain=chain, greed=1, most_load=1.0, sites=scouting.sites_of(hosts, quotes))

        def cost_ms(hosts: tuple[str, ...]) -> float:
            return scouting.cost_ms(chain, hosts, quotes, path_ms)

        moved = scouting.balance(self.cell, scout, quotes, cost_ms)
        states = {site.node: state_of(loads[site.node]) for site in moved.sites if site.node in loads}
        better = sites_on_wire(moved.sites, states)
        self._balances[key] = better
        while len(self._balances) > KEPT_BALANCES:
            self._balances.popitem(last=False)
        return better

    def _dies(self, kind: str) -> Send | None:
        self._dropped(kind)
        return None


class _Quotes:
    """Costs of a chain's tasks at the nodes whose state is known, and at others as the ant states them."""

    def __init__(self, chain: Chain, sites: tuple[AntSite, ...], loads: Mapping[str, ServerLoad]) -> None:
        self._chain, self._loads = chain, loads
        self._quotes: dict[tuple[str, int, int], Quote] = {
            (site.node, site.first, site.last): Quote(site.own_ms, site.others_ms, 0.0, 0.0)
            for site in sites
            if site.node not in loads
        }

    def __call__(self, node: str, first: int, last: int) -> Quote:
        key = node, first, last
        if key not in self._quotes:
            load = self._loads.get(node)
            self._quotes[key] = NO_ROOM if load is None else load.quote(self._chain, first, last)
        return self._quotes[key]


def _scout_of(ant: ScoutAnt, chain: Chain) -> ScoutingAnt:
    return ScoutingAnt(
        chain=chain,
        greed=ant.greed,
        most_load=ant.most_load,
        threshold_ms=ant.threshold_ms,
        flat=min(1.0, ant.flat),
        beyond=ant.beyond,
        path=ant.path,
        sites=tuple(site_of(site) for site in ant.sites),
    )


AntId = tuple[int, int]
"""The round of an ant and its number in it."""


class Trail(NamedTuple):
    """An ant's way through this node: where it came from, where it went, and the time of that hop.

    ``age_ms`` was its age when it first arrived here, ``began`` the time.
    """

    came_from: str
    went_to: str
    destination: str
    hop_ms: float
    age_ms: float
    began: float


class Trails:
    """Memory of the ants that a node passes on: at most ``most`` trails, each for ``kept`` units of the caller's clock.

    An ant that returns is taken only from the node to which it was sent, and once. So nobody can lay pheromone, or report a
    placement, for a path on which no ant has gone. The oldest trails go first.
    """

    def __init__(self, most: int, kept: float) -> None:
        self._most, self._kept = most, kept
        self._trails: OrderedDict[AntId, Trail] = OrderedDict()

    def __len__(self) -> int:
        return len(self._trails)

    def get(self, ant: AntId, now: float) -> Trail | None:
        trail = self._trails.get(ant)
        return trail if trail is not None and now - trail.began <= self._kept else None

    def put(self, ant: AntId, trail: Trail) -> None:
        """Remember a trail; that of an ant which comes again keeps its place."""
        self._trails[ant] = trail
        while len(self._trails) > self._most or trail.began - next(iter(self._trails.values())).began > self._kept:
            self._trails.popitem(last=False)

    def take_back(self, ant: AntId, sender: str, now: float) -> Trail | None:
        """Return and forget the trail of an ant that returns from ``sender``; None if it was not sent there."""
        trail = self.get(ant, now)
        if trail is None or trail.went_to != sender:
            return None
        del self._trails[ant]
        return trail

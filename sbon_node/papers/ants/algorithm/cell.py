"""A server as ants see it (ANTS, section 3.3): neighbours, pheromones, load and free capacity."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from sbon_node.papers.ants.algorithm.chain import Chain, Running
from sbon_node.placement.model.problem import has_capacity, total
from sbon_node.placement.model.queueing import MAX_LOAD, Flow, Server, Traffic, traffic_of, waiting_ms
from sbon_protocol.api.operators import Needs

MOST_TABLES = 10_000
"""Most destinations that a cell remembers; the least recently used goes first."""
FORGET_AFTER = 600.0
"""Age at which unused pheromones are destroyed (section 3.5); seconds, if ``now`` is in seconds."""

Weights = Callable[[str, str], Mapping[str, float]]
"""Initial weights of a cell's neighbours towards a destination. The arguments are the cell's name and the destination."""


class Quote(NamedTuple):
    """The cost of some tasks of a chain at a cell.

    It holds L_new, the latency of a message through them; the extra waiting time of the other messages there, summed over their
    flows; L_prev, the sum of their latencies; and the load with all tasks.
    """

    own_ms: float
    others_ms: float
    previous_ms: float
    load: float

    @property
    def cost_ms(self) -> float:
        return self.own_ms + self.others_ms


NO_ROOM = Quote(math.inf, 0.0, 0.0, math.inf)


class ServerLoad(NamedTuple):
    """A server's name, speed, traffic with its waiting time, and free capacity (None for unlimited), from which it quotes."""

    name: str
    speed: float
    traffic: Traffic
    waiting_ms: float
    free: Needs | None

    def quote(self, chain: Chain, first: int, last: int, booked: Sequence[Needs] = ()) -> Quote:
        """Return the cost of the tasks first .. last - 1; infinite where ``booked`` leaves no capacity, or load is too great.

        Tasks that run here for others already cost no work again, but the wait.
        """
        passed, first = chain.passed(self.name, first, last), chain.own(self.name, first, last)
        fed_ms = 0.0 if passed is None else passed.fed_ms
        if first == last:
            return Quote(fed_ms + self.waiting_ms, 0.0, 0.0, float(self.traffic.load))
        tasks = chain.tasks[first:last]
        if any(self.name in task.refused for task in tasks):
            return NO_ROOM
        flow = chain.flow(first, last)
        crowded = self.traffic.plus(traffic_of(flow, self.speed))
        load, waited = float(crowded.load), float(waiting_ms(crowded))
        if load > MAX_LOAD or not (self.free is None or has_capacity([*(task.needs for task in tasks), *booked], self.free)):
            return NO_ROOM
        flows = float(self.traffic.flows)
        previous_ms = flows * waited + float(self.traffic.service_ms)
        others_ms = flows * (waited - self.waiting_ms)
        return Quote(fed_ms + waited + flow.service.mean_ms / self.speed, others_ms, previous_ms, load)


class Cell:
    """A server with its neighbours and pheromones.

    ``neighbours`` are hops with their latency (ms), and ``free`` is the server's free capacity.
    """

    def __init__(
        self,
        name: str,
        neighbours: Mapping[str, float],
        weights: Weights,
        server: Server,
        free: Needs | None = None,
        *,
        most_tables: int = MOST_TABLES,
        forget_after: float = FORGET_AFTER,
        evaporation: float = math.inf,
    ) -> None:
        self.name, self.neighbours, self._weights = name, dict(neighbours), weights
        self._most_tables, self._forget_after, self._evaporation = most_tables, forget_after, evaporation
        self._tables: dict[str, Pheromones] = {}
        self.failed: dict[tuple[str, ...], set[int]] = {}
        """Failed scouts: their paths, with the greeds that were tried."""
        self.serve(server, free)

    def serve(self, server: Server, free: Needs | None = None) -> None:
        """Set the server and its free capacity; nothing is booked. ``free`` None is unlimited."""
        self.speed, self._server, self._base, self._free = server.speed, server, server.traffic(), free
        self._booked: dict[tuple[str, int], tuple[Flow, Needs]] = {}
        self._changed()

    def table(self, destination: str, now: float) -> Pheromones:
        """Return the pheromones for a destination as they are by ``now``.

        They are new where there are none, or where they have not been used for too long.
        """
        table = self._tables.get(destination)
        if table is None or now - table.updated > self._forget_after:
            self.forget(now)
            table = self._tables[destination] = Pheromones(self._weights(self.name, destination), now, self._evaporation)
        table.evaporate(now)
        return table

    @property
    def destinations(self) -> list[str]:
        """Return the destinations of which there are pheromones."""
        return list(self._tables)

    def meet(self, neighbours: Mapping[str, float]) -> None:
        """Take these neighbours, with their latencies, in place of those before."""
        changed = neighbours.keys() != self.neighbours.keys()
        self.neighbours = dict(neighbours)
        for destination, table in self._tables.items() if changed else ():
            table.renew(self._weights(self.name, destination))

    def forget(self, now: float) -> None:
        """Drop the tables unused for too long, and the oldest if there are too many."""
        recent = {where: table for where, table in self._tables.items() if now - table.updated <= self._forget_after}
        too_many = max(0, len(recent) + 1 - self._most_tables)
        for where in sorted(recent, key=lambda destination: recent[destination].updated)[:too_many]:
            del recent[where]
        self._tables = recent

    def quote(self, chain: Chain, first: int, last: int) -> Quote:
        """Return the cost of the tasks first .. last - 1 of ``chain`` here.

        It is infinite if capacity is short or the server would be overloaded.
        """
        key = chain.id, chain.rate_s, chain.running, first, last
        if key not in self._quotes:
            booked = [needs for _, needs in self._booked.values()]
            self._quotes[key] = self.load.quote(chain, first, last, booked)
        return self._quotes[key]

    def book(self, chain: Chain, first: int, last: int) -> None:
        """Book those of these tasks that do not run here for others already: the cell serves them from now on."""
        own = chain.own(self.name, first, last)
        if own < last:
            needs = total([task.needs for task in chain.tasks[own:last]])
            self._booked[chain.id, first] = chain.flow(own, last), needs
            self._changed()

    def release(self, chain: Chain, first: int) -> None:
        """Undoes :meth:`book`."""
        if self._booked.pop((chain.id, first), None) is not None:
            self._changed()

    @property
    def load(self) -> ServerLoad:
        """Return the server with the traffic, but not the needs, of all booked tasks."""
        return ServerLoad(self.name, self.speed, self.traffic, self.waiting_ms, self._free)

    @property
    def server(self) -> Server:
        """Return the server with all booked tasks."""
        return self.beside("")

    def beside(self, chain_id: str) -> Server:
        """Return the server with all booked tasks except those of this chain."""
        booked = tuple(flow for (chain, _), (flow, _) in self._booked.items() if chain != chain_id)
        return Server(speed=self.speed, flows=(*self._server.flows, *booked))

    def _changed(self) -> None:
        self.traffic: Traffic = self._base
        for flow, _ in self._booked.values():
            self.traffic = self.traffic.plus(traffic_of(flow, self.speed))
        self.waiting_ms = float(waiting_ms(self.traffic))
        self._quotes: dict[tuple[str, float, tuple[Running, ...], int, int], Quote] = {}


# -- A cell's memory of the paths to one destination (ANTS, sections 3.3 and 3.5) -------------------------------------

# It follows Di Caro and Dorigo's AntNet, 1998.

STEP = 0.3
"""Reinforcement for a trip as short as the best."""
MOST = 0.9
LEARNING = 0.1
"""Weight of a new trip in the running mean and variance."""
CONFIDENCE = 1.96
WINDOW = 50
"""Trips after which the best of them begins to be forgotten."""


class Trips:
    """Gamma: running mean and variance of the times (ms) to a destination, and the recent best.

    They learn from all trips. In the paper they learn from good trips alone, which lets the mean fall and never rise.
    """

    def __init__(self) -> None:
        self.count, self.mean_ms, self.variance = 0, 0.0, 0.0
        self._best_ms = [math.inf, math.inf]

    @property
    def best_ms(self) -> float:
        return min(self._best_ms)

    def good(self, ms: float) -> bool:
        """Return whether ``ms`` is less than mu + I(mu, sigma), half of the mean's confidence interval."""
        return self.count == 0 or ms <= self.mean_ms + CONFIDENCE * math.sqrt(self.variance / min(self.count, WINDOW)) + 1e-9

    def learn(self, ms: float) -> None:
        self.count += 1
        share = max(LEARNING, 1.0 / self.count)
        missed = ms - self.mean_ms
        self.mean_ms += share * missed
        self.variance = (1.0 - share) * (self.variance + share * missed**2)
        if self.count % WINDOW == 0:
            self._best_ms = [math.inf, self._best_ms[0]]
        self._best_ms[0] = min(self._best_ms[0], ms)


class Pheromones:
    """Phi: the probability of each neighbour to be the next hop to one destination.

    At first it is proportional to ``weights``, and it returns there without trips: the difference falls to its e-th part in
    ``evaporation`` units of the caller's clock, in which ``updated`` is the time of last use.
    """

    def __init__(self, weights: Mapping[str, float], now: float, evaporation: float = math.inf) -> None:
        self._first, self._evaporation, self._evaporated = _shares(weights), evaporation, now
        self.phi = dict(self._first)
        self.trips, self.updated = Trips(), now

    def evaporate(self, now: float) -> None:
        """Let pheromone evaporate until ``now``."""
        kept = math.exp(-max(0.0, now - self._evaporated) / self._evaporation)
        self._evaporated = now
        if kept < 1.0:
            self.phi = {neighbour: kept * phi + (1.0 - kept) * self._first[neighbour] for neighbour, phi in self.phi.items()}

    def renew(self, weights: Mapping[str, float]) -> None:
        """Take other neighbours: those that stay keep their shares of what is left beside the new ones."""
        first = _shares(weights)
        kept = {neighbour: self.phi[neighbour] for neighbour in first if neighbour in self.phi}
        left = (1.0 - sum(share for neighbour, share in first.items() if neighbour not in kept)) / (sum(kept.values()) or 1.0)
        self.phi = {neighbour: kept[neighbour] * left if neighbour in kept else share for neighbour, share in first.items()}
        self._first = first

    def choose(self, rng: random.Random, visited: Collection[str], flat: float = 0.0) -> str:
        """Choose a neighbour by its probability, among those not visited if any.

        ``flat``, from 0 to 1, makes the probabilities more alike.
        """
        among = [neighbour for neighbour in self.phi if neighbour not in visited] or list(self.phi)
        weights = [(self.phi[neighbour] + 1e-12) ** (1.0 - flat) for neighbour in among]
        return rng.choices(among, weights)[0]

    def reinforce(self, neighbour: str, ms: float, now: float) -> None:
        """Reinforce ``neighbour`` after a good trip that took ``ms``.

        Equations 1 and 2 apply with r = 0.3 T_best / T, at most 0.9. The paper's r = 1 / T depends on the unit of time, and is
        next to nothing in milliseconds.
        """
        good = self.trips.good(ms)
        self.trips.learn(ms)
        self.updated = now
        if good:
            r = min(MOST, STEP * self.trips.best_ms / ms) if ms > 0 else STEP
            for link_end in self.phi:
                self.phi[link_end] *= 1.0 - r
            self.phi[neighbour] += r

    def discourage(self, neighbour: str, now: float) -> None:
        """Weaken ``neighbour`` after tasks found no place on its path (section 3.7); the others share its loss."""
        others = sum(phi for link_end, phi in self.phi.items() if link_end != neighbour)
        if others > 0:
            lost = STEP * self.phi[neighbour]
            self.phi = {
                link_end: phi - lost if link_end == neighbour else phi * (1.0 + lost / others)
                for link_end, phi in self.phi.items()
            }
        self.updated = now


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {neighbour: weight / total for neighbour, weight in weights.items()}

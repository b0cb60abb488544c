"""A server as ants find it (ANTS, section 3.3): its neighbours, pheromones, what it serves, and what it has room for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sbon_node.engine.interface import Needs
from sbon_node.placement.problem import has_room, total
from sbon_node.placement.queueing import MAX_LOAD, Flow, Server, Traffic, traffic_of, waiting_ms
from sbon_node.placement.strategies.ants.chain import Chain
from sbon_node.placement.strategies.ants.pheromones import Pheromones

MOST_TABLES = 10_000
"""Destinations a cell remembers; the one that was not touched for longest goes first."""
FORGET_AFTER = 600.0
"""Pheromones that were not touched for so long are destroyed (section 3.5); seconds, where ``now`` is."""

Weights = Callable[[str, str], Mapping[str, float]]
"""Of the neighbours of a cell (its name first) on the way to a destination, before any ant has been there."""


class Quote(NamedTuple):
    """What some tasks of a chain would cost at a cell: L_new, the latency of a message through them there; by how much the
    messages of the others there wait longer, summed over their flows; L_prev, the latencies of these summed; and the load with
    all."""

    own_ms: float
    others_ms: float
    previous_ms: float
    load: float

    @property
    def cost_ms(self) -> float:
        return self.own_ms + self.others_ms


NO_ROOM = Quote(math.inf, 0.0, 0.0, math.inf)


class Cell:
    """``neighbours`` are hops with their latency (ms), ``free`` what the server has room for, ``equal`` the names of what it
    computes already."""

    def __init__(
        self,
        name: str,
        neighbours: Mapping[str, float],
        weights: Weights,
        server: Server,
        free: Needs | None = None,
        equal: frozenset[str] = frozenset(),
    ) -> None:
        self.name, self.neighbours, self.equal, self._weights = name, dict(neighbours), equal, weights
        self._tables: dict[str, Pheromones] = {}
        self.failed: dict[tuple[str, ...], set[int]] = {}
        """Of scouts that found no place, the paths, and how greedy they were."""
        self.serve(server, free)

    def serve(self, server: Server, free: Needs | None = None) -> None:
        """What its server is and does from now on; nothing is booked. ``free`` None is room without bound."""
        self.speed, self._server, self._base, self._free = server.speed, server, server.traffic(), free
        self._booked: dict[tuple[str, int], tuple[Flow, Needs]] = {}
        self._changed()

    def table(self, destination: str, now: float) -> Pheromones:
        """Its pheromones; new ones where there are none, or they have not been touched for too long."""
        found = self._tables.get(destination)
        if found is None or now - found.updated > FORGET_AFTER:
            self.forget(now)
            found = self._tables[destination] = Pheromones(self._weights(self.name, destination), now)
        return found

    def forget(self, now: float) -> None:
        """Drops what was not touched for too long, and the oldest where there are too many."""
        kept = {where: one for where, one in self._tables.items() if now - one.updated <= FORGET_AFTER}
        for where in sorted(kept, key=lambda one: kept[one].updated)[: max(0, len(kept) + 1 - MOST_TABLES)]:
            del kept[where]
        self._tables = kept

    def quote(self, chain: Chain, first: int, last: int) -> Quote:
        """What the tasks first .. last - 1 of ``chain`` would cost here; infinite where there is no room for them, or the server
        would be overloaded. Work that is done here already costs nothing again."""
        key = chain.id, chain.rate_s, first, last
        if key not in self._quotes:
            self._quotes[key] = self._quoted(chain, first, last)
        return self._quotes[key]

    def book(self, chain: Chain, first: int, last: int) -> None:
        """From now on these tasks are served here."""
        if not self._reused(chain, first, last):
            needs = total([task.needs for task in chain.tasks[first:last]])
            self._booked[chain.id, first] = chain.flow(first, last), needs
            self._changed()

    def release(self, chain: Chain, first: int) -> None:
        """Undoes :meth:`book`."""
        if self._booked.pop((chain.id, first), None) is not None:
            self._changed()

    @property
    def server(self) -> Server:
        """With what is booked."""
        return self.beside("")

    def beside(self, chain_id: str) -> Server:
        """With what is booked, but for that chain."""
        booked = tuple(flow for (chain, _), (flow, _) in self._booked.items() if chain != chain_id)
        return Server(speed=self.speed, flows=(*self._server.flows, *booked))

    def _quoted(self, chain: Chain, first: int, last: int) -> Quote:
        if self._reused(chain, first, last):
            return Quote(self.waiting_ms, 0.0, 0.0, float(self.traffic.load))
        flow = chain.flow(first, last)
        whole = self.traffic.plus(traffic_of(flow, self.speed))
        load, waited = float(whole.load), float(waiting_ms(whole))
        if load > MAX_LOAD or not self._fits(chain, first, last):
            return NO_ROOM
        flows = float(self.traffic.flows)
        previous_ms = flows * waited + float(self.traffic.service_ms)
        return Quote(waited + flow.service.mean_ms / self.speed, flows * (waited - self.waiting_ms), previous_ms, load)

    def _reused(self, chain: Chain, first: int, last: int) -> bool:
        return all(task.equal and task.equal in self.equal for task in chain.tasks[first:last])

    def _fits(self, chain: Chain, first: int, last: int) -> bool:
        tasks = chain.tasks[first:last]
        if any(self.name in task.refused for task in tasks):
            return False
        booked = [needs for _, needs in self._booked.values()]
        return self._free is None or has_room([*(task.needs for task in tasks), *booked], self._free)

    def _changed(self) -> None:
        self.traffic: Traffic = self._base
        for flow, _ in self._booked.values():
            self.traffic = self.traffic.plus(traffic_of(flow, self.speed))
        self.waiting_ms = float(waiting_ms(self.traffic))
        self._quotes: dict[tuple[str, float, int, int], Quote] = {}

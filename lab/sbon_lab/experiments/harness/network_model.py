"""Strategies' view of a network in an experiment: coordinates, answers and measurements, with every probe counted."""

import math
import random
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np

from sbon_lab.experiments.coordinates.embedding import estimates_ms
from sbon_lab.experiments.harness.coordinator_network import CoordinatorNetwork
from sbon_lab.experiments.harness.network import Floats, Ints, Network
from sbon_node.overlay.directory.view import PrefixRouting, owners
from sbon_node.overlay.space.cost import cost_distances
from sbon_node.placement.model.network_view import Answer, Answered, Point, Sent, Window
from sbon_node.placement.model.queueing import Server
from sbon_node.placement.selection.discovery import Discovery
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.operators import Needs

T = TypeVar("T")

PINGS = 3
"""Pings of a pair that is measured with noise; the least counts."""
PROXY = "proxy"
"""The placing node as a sender; its messages count even where it coordinates a zone by itself."""
PLENTY = Needs(cores=1e6, memory_mb=1e9, bandwidth_bytes_s=1e12)


def name_of(node: int) -> str:
    return f"n{node:04d}"


def number_of(name: str) -> int:
    return int(name[1:])


class NetworkModel:
    """A network with the coordinates ``places`` [n, d + 1] of its nodes, the height last, and the numbers ``hosts``.

    Only ``hosts`` may host. Without ``places``, or if it is ``exact``, every latency is known exactly.
    """

    def __init__(self, network: Network, places: Floats | None, hosts: Ints, *, exact: bool = False) -> None:
        self.network, self.hosts = network, np.sort(hosts)
        self.names = [name_of(node) for node in self.hosts.tolist()]
        self.places = np.zeros((network.nodes, 2)) if places is None else places
        self._known = places is None or exact
        self.owned: dict[str, str] = {}
        """Looked-up keys, by owner among all hosts."""

    def estimated_ms(self, rows: Ints, columns: Ints) -> Floats:
        """Return one-way latencies, shape [rows, columns], by coordinates if given, as a node estimates them."""
        if self._known:
            return self.network.latency_ms[np.ix_(rows, columns)]
        return estimates_ms(self.places, rows, columns)


class NetworkModelView:
    """A :class:`~sbon_node.placement.model.network_view.NetworkView` for a single placement.

    ``known``, if given, are the only hosts that it knows. ``noise`` is the normal relative error of a ping, the least of
    three counting. ``free`` are the cores left by node [n], or cores, megabytes and bytes a second [n, 3]; unlimited by
    default. ``servers`` describe each node's load. ``loads_ms`` [n] are the nodes' places in the load dimension, 0 by default.
    """

    def __init__(
        self,
        network_model: NetworkModel,
        seed: int,
        *,
        known: Ints | None = None,
        noise: float = 0.0,
        free: Floats | None = None,
        servers: Sequence[Server] | None = None,
        loads_ms: Floats | None = None,
    ) -> None:
        self._network_model, self._noise = network_model, noise
        self._loads_ms = np.zeros(network_model.network.nodes) if loads_ms is None else loads_ms
        self._free = None if free is None else _whole(free)
        self._discovery = Discovery(self, lambda _: math.inf)
        self._servers = servers
        self._hosts = network_model.hosts if known is None else np.intersect1d(network_model.hosts, known)
        self._names = network_model.names if known is None else [name_of(node) for node in self._hosts.tolist()]
        self._owned: dict[str, str] = network_model.owned if known is None else {}
        self._is_host = np.zeros(network_model.network.nodes, dtype=np.bool_)
        self._is_host[self._hosts] = True
        self._measured: dict[tuple[int, int], float] = {}
        self._members: set[str] = set()
        self._overlay: PrefixRouting | None = None
        self._rng, self._drawn = random.Random(seed), np.random.default_rng((seed, 31))
        self._probes = 0

    @property
    def rng(self) -> random.Random:
        return self._rng

    @property
    def probes(self) -> int:
        return self._probes

    def nodes(self) -> list[str]:
        return list(self._names)

    def coordinate(self, node: str) -> Point | None:
        return tuple(self._network_model.places[number_of(node), :-1].tolist())

    def coordinate_age_s(self, node: str) -> float | None:
        """Return an age of zero: nothing changes during the run."""
        return 0.0

    def nearest(self, point: Sequence[float], k: int, *, exclude: Collection[str] = ()) -> list[tuple[str, float]]:
        hosts = self._hosts
        if exclude:
            hosts = np.setdiff1d(hosts, [number_of(node) for node in exclude])
        positions = self._network_model.places[hosts]
        distances = cost_distances(point, positions[:, :-1], positions[:, -1], self._loads_ms[hosts])
        order = np.argsort(distances, kind="stable")[:k]
        return [(name_of(int(hosts[i])), float(distances[i])) for i in order]

    def load_ms(self, node: str) -> float:
        return float(self._loads_ms[number_of(node)])

    def latency_ms(self, a: str, b: str) -> float:
        source, other = number_of(a), number_of(b)
        measured = self._measured.get((min(source, other), max(source, other)))
        return (
            float(self._network_model.estimated_ms(np.array([source]), np.array([other]))[0, 0]) if measured is None else measured
        )

    def latencies_ms(self, sources: Sequence[str], targets: Sequence[str]) -> Floats:
        rows, columns = [number_of(node) for node in sources], [number_of(node) for node in targets]
        latencies = self._network_model.estimated_ms(np.array(rows, dtype=int), np.array(columns, dtype=int))
        if self._measured:
            row, column = ({node: i for i, node in enumerate(nodes)} for nodes in (rows, columns))
            for source, other in self._measured:
                for a, b in ((source, other), (other, source)):
                    if a in row and b in column:
                        latencies[row[a], column[b]] = self._measured[source, other]
        return latencies

    def route(self, source: str, target: str) -> list[str] | None:
        route = self._network_model.network.route
        return None if route is None else [name_of(node) for node in route(number_of(source), number_of(target))]

    def parent(self, node: str) -> str | None:
        parents = self._network_model.network.parents
        return None if parents is None or parents[number_of(node)] < 0 else name_of(int(parents[number_of(node)]))

    def owner(self, key: str, exclude: Collection[str] = ()) -> str:
        if exclude:
            found = owners(key, self._names, len(exclude) + 1)
            return next((node for node in found if node not in exclude), found[-1])
        owned = self._owned.get(key)
        if owned is None:
            owned = self._owned[key] = owners(key, self._names, 1)[0]
        return owned

    async def send_all(self, sent: Sequence[Sent], within_s: float) -> list[Answered]:
        return await self.coordinators.send_all(PROXY, sent)

    @cached_property
    def coordinators(self) -> CoordinatorNetwork:
        """The nodes as coordinators. They know the coordinates, and of the measurements those that messages carry."""
        return CoordinatorNetwork(NetworkModelView(self._network_model, 0), PlacementSettings())

    def overlay_route(self, source: str, target: str) -> list[str]:
        """Return the route over the nodes that may host, and all ends of earlier routes."""
        if self._overlay is None or not self._members.issuperset((source, target)):
            self._members |= {*self._names, source, target}
            self._overlay = PrefixRouting(self._members, self._from)
        return self._overlay.route(source, target)

    def _from(self, node: str, others: Sequence[str]) -> list[float]:
        latencies: list[float] = self.latencies_ms([node], others)[0].tolist()
        return latencies

    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        measured = {}
        for a, b in pairs:
            source, other = sorted((number_of(a), number_of(b)))
            if (source, other) not in self._measured:
                self._probes += 1
                truth = float(self._network_model.network.latency_ms[source, other])
                if self._noise:
                    truth *= max(float(np.min(1 + self._drawn.normal(0, self._noise, PINGS))), 0.0)
                self._measured[source, other] = truth
            measured[a, b] = self._measured[source, other]
        return measured

    async def ask(self, node: str, needs: Needs) -> Answer:
        self._probes += 1
        if not self._is_host[number_of(node)]:
            return Answer(accepted=False, reason="hosts no operators")
        server = None if self._servers is None else self._servers[number_of(node)]
        if self._free is None:
            return Answer(accepted=True, free=PLENTY, server=server)
        cores, memory_mb, bandwidth_bytes_s = self._free[number_of(node)].tolist()
        free = Needs(cores=cores, memory_mb=memory_mb, bandwidth_bytes_s=bandwidth_bytes_s)
        amounts = needs.amounts
        for least, left, resource in zip(amounts, self._free[number_of(node)].tolist(), ("cores", "MB", "B/s"), strict=True):
            if least > left + 1e-9:
                return Answer(accepted=False, reason=f"{left:g} {resource} free, {least:g} needed", free=free, server=server)
        return Answer(accepted=True, free=free, server=server)

    async def ask_all(self, nodes: Sequence[str], needs: Needs) -> dict[str, Answer]:
        return {node: await self.ask(node, needs) for node in nodes}

    async def discover(self, window: Window) -> dict[str, Answer]:
        return await self._discovery.find(window)

    @property
    def discoveries(self) -> int:
        return self._discovery.count

    async def compute(self, work: Callable[[], T], /) -> T:
        """Run the work at once: an experiment has no requests to answer meanwhile."""
        return work()

    async def pause(self) -> None:
        return


def _whole(free: Floats) -> Floats:
    """Return cores with ample memory and bandwidth, or all three as given."""
    if free.ndim == 2:
        return free
    return np.column_stack([free, np.full(len(free), PLENTY.memory_mb), np.full(len(free), PLENTY.bandwidth_bytes_s)])

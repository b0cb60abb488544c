"""A network of servers on which ant experiments place chains of tasks in sequence."""

import itertools
import random
from collections.abc import Sequence

import numpy as np

from sbon_lab.experiments.ants.chain_optimum import ChainOptimum, chain_optimum
from sbon_lab.experiments.harness.network import Floats, Network, lightest_paths
from sbon_lab.experiments.harness.network_model import NetworkModel, NetworkModelView, name_of, number_of
from sbon_lab.experiments.harness.trials import place
from sbon_node.papers.ants.algorithm.cell import Cell
from sbon_node.papers.ants.algorithm.chain import Chain, next_chain
from sbon_node.papers.ants.algorithm.colony import Colony, Scouted
from sbon_node.papers.ants.algorithm.scouting import rows_of
from sbon_node.papers.ants.algorithm.terrain import Terrain
from sbon_node.placement.model.objective import OBJECTIVES
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.model.queueing import MAX_LOAD, Server, Traffic, busy
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.operators import Needs
from sbon_protocol.errors import SbonError

SPEEDS = (0.5, 1.0, 2.0)
"""Relative speeds of server classes; 1 is the standard machine."""
TASKS = (3, 7)
SERVICE_MS, SERVICE_SCV = (1.0, 10.0), (0.0, 1.0)
RATES_S, BATCHES = (10.0, 50.0), (0.5, 1.0)
MESSAGE_BYTES = (100.0, 1000.0)
"""Uniform ranges for queries: tasks, cost and arrivals of messages, batch size of tasks, and message size.

The paper says that they are those of financial services, and gives none.
"""
BUSIEST = 0.93
"""Load up to which cross traffic fills a server."""


def chain_query(number: int, nodes: int, rng: np.random.Generator, tasks: int | None = None) -> PlacementProblem:
    """Return a chain of tasks between a producer and a consumer at distinct nodes; a server of speed 1 has a core."""
    many = int(rng.integers(TASKS[0], TASKS[1] + 1)) if tasks is None else tasks
    source, destination = rng.permutation(nodes)[:2].tolist()
    names = [f"producer{number}", *(f"q{number}.{i}" for i in range(many)), "consumer"]
    size, rows_s = float(rng.uniform(*MESSAGE_BYTES)), float(rng.uniform(*RATES_S))
    operators, edges = [], []
    for before, name in itertools.pairwise(names[:-1]):
        edges.append(Edge(before, name, rows_s * size, rows_s))
        takes_ms, scv = float(rng.uniform(*SERVICE_MS)), float(rng.uniform(*SERVICE_SCV))
        needs = Needs(cores=rows_s * takes_ms / 1e3, memory_mb=0.0)
        operators.append(Operator(id=name, needs=needs, row_core_ms=takes_ms, row_scv=scv))
        rows_s *= float(rng.uniform(*BATCHES))
    edges.append(Edge(names[-2], "consumer", rows_s * size, rows_s))
    pinned = {names[0]: name_of(source), "consumer": name_of(destination)}
    return PlacementProblem(pinned=pinned, operators=tuple(operators), edges=tuple(edges), objective=OBJECTIVES["latency"])


def chain_of(problem: PlacementProblem) -> Chain:
    """Return the chain of a :func:`chain_query`."""
    chain = next_chain(problem, {})
    assert chain is not None
    return chain


class World:
    """Servers of random speeds on the nodes of ``network``; all may host.

    The cells of its colony book the deployed queries. The same seed gives the same servers. Messages take the shortest path,
    over other nodes where that is shorter than the route, as over the links of the paper's network.
    """

    def __init__(self, network: Network, seed: int, settings: PlacementSettings) -> None:
        self.network = network._replace(latency_ms=lightest_paths(network.latency_ms, network.latency_ms).latency_ms)
        self.settings, self._seed = settings, seed
        self.speeds = np.random.default_rng((seed, 61)).choice(SPEEDS, network.nodes)
        self.network_model = NetworkModel(self.network, None, np.arange(network.nodes))
        names = self.network_model.names
        terrain = Terrain(names, self.network.latency_ms)
        cells = {
            name: Cell(name, terrain.neighbours[name], terrain.weights, Server(speed=float(speed)))
            for name, speed in zip(names, self.speeds, strict=True)
        }
        self.colony = Colony(cells, terrain.path_ms, random.Random(seed))
        self.deployed: dict[str, tuple[Chain, list[str]]] = {}
        self.probes = 0
        """Number of probes for the query last passed to :meth:`place`."""

    def place(self, problem: PlacementProblem, strategy: str, number: int) -> list[str] | None:
        """Return hosts by task from a strategy of the daemon; None without room."""
        cells = [self.colony.cells[name] for name in self.network_model.names]
        free = self.speeds * (MAX_LOAD - np.array([float(cell.traffic.load) for cell in cells]))
        view = NetworkModelView(
            self.network_model, self._seed * 1_000_003 + number, free=free, servers=[cell.server for cell in cells]
        )
        try:
            return list(place(problem, strategy, view, self.settings)[0].values())
        except SbonError as error:
            if error.code != "no-capacity":
                raise
            return None
        finally:
            self.probes = view.probes

    def optimum(self, chain: Chain) -> ChainOptimum | None:
        """Return the optimum beside all deployed chains."""
        each = [self.colony.cells[name].traffic for name in self.network_model.names]
        others = Traffic(*(np.array(values) for values in zip(*each, strict=True)))
        ends = number_of(chain.source), number_of(chain.destination)
        return chain_optimum(chain, *ends, self.network.latency_ms, self.speeds, others, self.network_model.hosts)

    def deploy(self, chain: Chain, hosts: list[str]) -> None:
        self.deployed[chain.id] = chain, hosts
        for node, first, last in rows_of(hosts):
            self.colony.cells[node].book(chain, first, last)

    def enforce(self, reports: Sequence[Scouted]) -> bool:
        """Deploy the first report that still holds when its ant arrives; return whether any does."""
        for report in reports:
            if self.colony.enforce(report):
                for site in report.sites:
                    self.colony.cells[site.node].release(report.chain, site.first)
                chosen = report.hosts()
                self.deploy(report.chain, [chosen[task.operator] for task in report.chain.tasks])
                return True
        return False

    def withdraw(self, chain_id: str) -> tuple[Chain, list[str]]:
        chain, hosts = self.deployed.pop(chain_id)
        for node, first, _ in rows_of(hosts):
            self.colony.cells[node].release(chain, first)
        return chain, hosts

    def latency_ms(self, chain_id: str) -> float:
        """Return a deployed chain's latency from producer to consumer, with all deployed load."""
        chain, hosts = self.deployed[chain_id]
        rows = rows_of(hosts)
        stops = [chain.source, *(node for node, _, _ in rows), chain.destination]
        latencies = sum(self.network.latency_ms[number_of(stop), number_of(two)] for stop, two in itertools.pairwise(stops))
        cells = self.colony.cells
        served = sum(
            cells[node].waiting_ms + chain.flow(first, last).service.mean_ms / cells[node].speed for node, first, last in rows
        )
        return float(latencies + served)

    def mean_latency_ms(self) -> float:
        """Return the mean latency of all deployed chains."""
        return float(np.mean([self.latency_ms(chain_id) for chain_id in self.deployed]))

    def disturb(self, loads: Floats) -> None:
        """Give each server that load [n] of foreign traffic from now on, with messages like the workload's.

        The server's own traffic limits it, so that both stay within ``BUSIEST``; deployed chains stay.
        """
        cells, mean_ms = self.colony.cells, sum(SERVICE_MS) / 2
        for name, speed in zip(self.network_model.names, self.speeds, strict=True):
            cells[name].serve(Server(speed=float(speed)))
        self._book_all()
        left = [BUSIEST - float(cells[name].traffic.load) for name in self.network_model.names]
        for name, speed, load in zip(self.network_model.names, self.speeds, np.minimum(loads, left), strict=True):
            cells[name].serve(busy(float(load), mean_ms, float(speed)))
        self._book_all()

    def _book_all(self) -> None:
        for chain, hosts in self.deployed.values():
            for node, first, last in rows_of(hosts):
                self.colony.cells[node].book(chain, first, last)

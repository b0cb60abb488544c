"""Ants between whole daemons in virtual time, beside the same ants in one node and the exact optimum.

Each query is a chain of tasks between two nodes; its consumer's node is the leader. Latencies are true ones: links by the
network, queueing by the model, with all queries placed before. The ants in one node use what it knows, and ask others by calls.
"""

import itertools
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
import numpy as np

from sbon_lab.experiments.ants.chain_optimum import chain_optimum
from sbon_lab.experiments.ants.world import chain_of, chain_query
from sbon_lab.experiments.coordinates.embedding import refitted
from sbon_lab.experiments.harness.experiment import Notify, ignore
from sbon_lab.experiments.harness.network import Network, plain
from sbon_lab.experiments.harness.network import measured as measured_network
from sbon_lab.experiments.harness.network_model import name_of, number_of
from sbon_lab.experiments.harness.topologies import topology_named
from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.outcome import Ended, run_cluster
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.papers.ants.algorithm.cell import Cell
from sbon_node.papers.ants.algorithm.chain import Chain
from sbon_node.papers.ants.algorithm.scouting import rows_of
from sbon_node.papers.ants.algorithm.strategy import ants as ants_in_one_node
from sbon_node.papers.ants.plug_in import Ants
from sbon_node.papers.ants.settings import AntSettings
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.model.queueing import Server, Traffic
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import Strategy
from sbon_node.placing import LiveNetworkView
from sbon_protocol.api.placement import Placement
from sbon_protocol.errors import SbonError

SETTLE_S = 60.0
"""Virtual time in which nodes measure their neighbours and tell them their states."""
CORES = 1.0
FOR_QUERIES = ("route-ant", "route-return", "scout-ant", "scout-return", "enforce-ant", "enforce-return", "withdraw-ant")
AT_REST = ("cell-state",)
DIMENSIONS = 3

Row = tuple[str, int, int]
"""A node, and the first and last task plus 1 of a run of tasks there."""


class Trial(NamedTuple):
    """A network, of which each query finds those before it, if they ``stay``."""

    network: Network
    seed: int
    queries: int
    loss: float = 0.0
    stay: bool = False
    compare: bool = True
    """Whether ants in one node place each query as well."""
    ants: AntSettings = AntSettings()


class Placed(NamedTuple):
    """True latencies of a query in milliseconds, None where it found no place, and the ants of its time."""

    exact_ms: float
    live_ms: float | None
    one_node_ms: float | None
    seconds: float
    messages: int
    bytes: int
    probes: int


class Truth:
    """The servers as they are, with the deployed queries."""

    def __init__(self, network: Network) -> None:
        self.network = network
        names = [name_of(node) for node in range(network.nodes)]
        self.cells = {name: Cell(name, {}, lambda _, __: {}, Server()) for name in names}

    def exact_ms(self, chain: Chain) -> float:
        """Return the least latency of the chain; less than that where the program would leave a node and return to it."""
        others = Traffic(*(np.array(values) for values in zip(*(cell.traffic for cell in self.cells.values()), strict=True)))
        ends, speeds = (number_of(chain.source), number_of(chain.destination)), np.ones(self.network.nodes)
        best = chain_optimum(chain, *ends, self.network.latency_ms, speeds, others, np.arange(self.network.nodes))
        assert best is not None
        hosts = [name_of(host) for host in best.hosts]
        if best.exact:
            return self.latency_ms(chain, hosts)
        rows = rows_of(hosts)
        return self._links_ms(chain, rows) + sum(self._served_ms(chain, [row]) for row in rows)

    def latency_ms(self, chain: Chain, hosts: Sequence[str], *, stay: bool = False) -> float:
        """Return the chain's latency on these hosts; it is deployed there from now on if it may ``stay``."""
        rows = rows_of(hosts)
        return self._links_ms(chain, rows) + self._served_ms(chain, rows, stay=stay)

    def _links_ms(self, chain: Chain, rows: Sequence[Row]) -> float:
        stops = [chain.source, *(node for node, _, _ in rows), chain.destination]
        return float(sum(self.network.latency_ms[number_of(a), number_of(b)] for a, b in itertools.pairwise(stops)))

    def _served_ms(self, chain: Chain, rows: Sequence[Row], *, stay: bool = False) -> float:
        """Return the time for which a message waits and is served with these tasks at these nodes."""
        for node, first, last in rows:
            self.cells[node].book(chain, first, last)
        served = sum(self.cells[n].waiting_ms + chain.flow(f, e).service.mean_ms for n, f, e in rows)
        for node, first, _ in () if stay else rows:
            self.cells[node].release(chain, first)
        return float(served)


def networks(files: Sequence[Path], topologies: Sequence[str], nodes: int | None, seed: int) -> Iterator[Network]:
    """Yield the networks, each cut to ``nodes`` nodes drawn by the seed; ``ts208`` without any. Raises ``bad-matrix``."""
    named = [topology_named(name, seed) for name in topologies or (() if files else ("ts208",))]
    for network in [*(measured_network(file) for file in files), *named]:
        if nodes is None or nodes >= network.nodes:
            yield network
        else:
            chosen = np.sort(np.random.default_rng((seed, 65)).permutation(network.nodes)[:nodes])
            yield plain(f"{network.name}-{nodes}", network.latency_ms[np.ix_(chosen, chosen)])


def measured(trial: Trial, notify: Notify = ignore) -> dict[str, Any]:
    """Return the row of a trial. Raises :class:`SbonError` ``simulation-failed``."""
    network, placed, rest = trial.network, list[Placed](), dict[str, float]()
    kept_s = 3600.0 if trial.stay else 2.0
    control = msgspec.structs.replace(CONFIG.control, cores=CORES, memory_mb=1e6, reservation_s=kept_s)
    ants = msgspec.structs.replace(trial.ants, booked_s=kept_s)
    engine = msgspec.structs.replace(CONFIG.engine, max_operators=1000)
    config = msgspec.structs.replace(CONFIG, control=control, ants=ants, engine=engine)
    positions = refitted(network, DIMENSIONS, trial.seed).tolist()
    coordinates = {
        name_of(node): Coordinate(vector=tuple(place[:-1]), height=place[-1], error=0.1) for node, place in enumerate(positions)
    }

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        def one_way_s(source: str, target: str) -> float:
            return float(network.latency_ms[number_of(source), number_of(target)]) / 1000

        quality = NetworkQuality(spike=0.0, loss=trial.loss)
        return SimulatedCluster(loop, trial.seed, tuple(coordinates), root, config=config, latency=one_way_s, quality=quality)

    async def run(cluster: SimulatedCluster, root: Path) -> Ended:
        await cluster.warm_start(coordinates)
        await cluster.sleep(SETTLE_S)
        before = _sent(cluster, (*FOR_QUERIES, *AT_REST))
        await cluster.sleep(SETTLE_S)
        rest["bytes_s"] = (_sent(cluster, (*FOR_QUERIES, *AT_REST))[1] - before[1]) / SETTLE_S / network.nodes
        truth, rng = Truth(network), np.random.default_rng((trial.seed, 64))
        for number in range(trial.queries):
            notify(f"query {number + 1} of {trial.queries}")
            placed.append(await _query(cluster, trial, truth, chain_query(number, network.nodes, rng)))
            await cluster.sleep(2 * trial.ants.tell_s if not trial.stay else 1.0)
        return Ended(0, "finished")

    outcome = run_cluster(build, run, seed=trial.seed, max_time_s=86_000, replay="sbon experiment ants-live")
    if outcome.failure:
        raise SbonError("simulation-failed", outcome.failure)
    return {**_row(trial, placed), "rest_bytes_s": round(rest["bytes_s"], 1)}


async def _query(cluster: SimulatedCluster, trial: Trial, truth: Truth, problem: PlacementProblem) -> Placed:
    chain, leader = chain_of(problem), problem.pinned["consumer"]
    exact_ms = truth.exact_ms(chain)
    context = cluster.at(leader).daemon.context
    hosts = await _hosts(cluster, leader, chain, ants_in_one_node, problem) if trial.compare else None
    one_node_ms = None if hosts is None else truth.latency_ms(chain, hosts)
    before, began = _sent(cluster, FOR_QUERIES), cluster.loop.time()
    view = LiveNetworkView(context)
    ants = cluster.at(leader).daemon.paper(Ants).leader
    hosts = await _hosts(cluster, leader, chain, ants.place, problem, view)
    live_ms = None if hosts is None else truth.latency_ms(chain, hosts, stay=trial.stay)
    seconds, sent = cluster.loop.time() - began, _sent(cluster, FOR_QUERIES)
    return Placed(exact_ms, live_ms, one_node_ms, seconds, sent[0] - before[0], sent[1] - before[1], view.probes)


async def _hosts(
    cluster: SimulatedCluster,
    leader: str,
    chain: Chain,
    strategy: Strategy,
    problem: PlacementProblem,
    view: LiveNetworkView | None = None,
) -> list[str] | None:
    """Place a query at its leader; return the hosts by task, or None if no node has capacity."""
    view = view or LiveNetworkView(cluster.at(leader).daemon.context)
    try:
        hosts = (await cluster.answer(leader, _awaited(strategy(problem, view, PlacementSettings())))).hosts()
    except SbonError as error:
        if error.code != "no-capacity":
            raise
        return None
    return [hosts[task.operator] for task in chain.tasks]


async def _awaited(placing: Awaitable[Placement]) -> Placement:
    return await placing


def _sent(cluster: SimulatedCluster, kinds: Sequence[str]) -> tuple[int, int]:
    """Return the number of datagrams of these kinds that all nodes have sent, and their bytes."""
    each = [cluster.network.traffic(name) for name in cluster.nodes]
    return (
        sum(traffic.counts.get(kind, 0) for traffic in each for kind in kinds),
        sum(traffic.kinds.get(kind, 0) for traffic in each for kind in kinds),
    )


def _row(trial: Trial, placed: Sequence[Placed]) -> dict[str, Any]:
    """Return the figures; ratios are of sums over the queries that all placed."""
    common = [one for one in placed if one.live_ms is not None and (one.one_node_ms is not None or not trial.compare)]
    exact = sum(one.exact_ms for one in common)
    live, other = sum(one.live_ms or 0.0 for one in common), sum(one.one_node_ms or 0.0 for one in common)
    return {
        "network": trial.network.name,
        "nodes": trial.network.nodes,
        "seed": trial.seed,
        "loss": trial.loss,
        "queries": len(placed),
        "mode": "one after another" if trial.stay else "each alone",
        "failed": sum(one.live_ms is None for one in placed),
        "failed_in_one_node": sum(one.one_node_ms is None for one in placed) if trial.compare else None,
        "of_exact": round(live / exact, 4) if exact else None,
        "in_one_node_of_exact": round(other / exact, 4) if exact and trial.compare else None,
        "worst_of_exact": round(max((one.live_ms or 0.0) / one.exact_ms for one in common), 3) if common else None,
        "latency_ms": round(live / len(common), 2) if common else None,
        "seconds": round(fmean(one.seconds for one in placed), 2),
        "messages": round(fmean(one.messages for one in placed)),
        "kb": round(fmean(one.bytes for one in placed) / 1000, 1),
        "probes": round(fmean(one.probes for one in placed), 1),
    }

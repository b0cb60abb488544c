"""Ants as datagrams between whole nodes in virtual time."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from sbon_node.hosting.ants.service import AntService
from sbon_node.placement.ant_settings import AntSettings
from sbon_node.placement.model.queueing import Flow, Service
from sbon_node.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.simulation.network.paths import NetworkQuality
from sbon_node.space.coordinate import Coordinate
from tests.workflow.clusters import in_warm_cluster

RNG = random.Random(3)
NODES = {f"n{number:02d}": (RNG.uniform(0, 60), RNG.uniform(0, 60)) for number in range(12)}
"""Nodes in a plane; milliseconds."""
EAGER = AntSettings(explore_s=1.0, tell_s=2.0)


def apart_ms(one: str, other: str) -> float:
    return math.dist(NODES[one], NODES[other])


def service_of(cluster: SimulatedCluster, node: str) -> AntService:
    return cluster.at(node).daemon._operators.ants


def in_plane(tmp_path: Path, test: Callable[[SimulatedCluster], Awaitable[None]], *, loss: float = 0.0) -> None:
    """Runs ``test`` on these nodes at rest, which know their distances."""
    coordinates = {node: Coordinate(vector=(2 * x, 2 * y, 0.0), height=0.0, error=0.1) for node, (x, y) in NODES.items()}
    in_warm_cluster(
        tmp_path,
        coordinates,
        test,
        config=msgspec.structs.replace(CONFIG, ants=EAGER),
        latency=lambda one, other: apart_ms(one, other) / 1000,
        quality=NetworkQuality(loss=loss),
    )


def hop_ms(cluster: SimulatedCluster, one: str, other: str) -> float:
    """The time of a hop: waiting at the first node, and the link."""
    return service_of(cluster, one).cell.waiting_ms + apart_ms(one, other)


def walked_ms(cluster: SimulatedCluster, source: str, destination: str) -> float:
    """The time of the way along the strongest pheromone; infinite if it runs in a circle."""
    way, now = [source], cluster.loop.time()
    while way[-1] != destination:
        phi = service_of(cluster, way[-1]).cell.table(destination, now).phi
        way.append(max(phi, key=phi.__getitem__))
        if len(way) > len(NODES):
            return math.inf
    return sum(hop_ms(cluster, one, other) for one, other in itertools.pairwise(way))


def shortest_ms(cluster: SimulatedCluster) -> dict[tuple[str, str], float]:
    """The time of the shortest way over the cells' neighbours, from each node to each."""
    ms = {(one, other): 0.0 if one == other else math.inf for one in NODES for other in NODES}
    for one in NODES:
        ms.update({(one, other): hop_ms(cluster, one, other) for other in service_of(cluster, one).cell.neighbours})
    for via, one, other in itertools.product(NODES, NODES, NODES):
        ms[one, other] = min(ms[one, other], ms[one, via] + ms[via, other])
    return ms


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_cells_converge_to_the_shortest_ways_round_a_busy_node(tmp_path: Path, loss: float) -> None:
    hub = min(NODES, key=lambda node: sum(apart_ms(node, other) for other in NODES))
    pairs = [pair for pair in itertools.permutations(NODES, 2) if hub not in pair]

    async def test(cluster: SimulatedCluster) -> None:
        busy = Flow(rate_s=90.0, service=Service(mean_ms=10.0, scv=1.0))
        at_hub = service_of(cluster, hub)
        at_hub._room = at_hub._room._replace(flows=lambda: [busy])
        await cluster.sleep(5.0)
        assert at_hub.cell.waiting_ms == pytest.approx(90.0)
        first = sum(min(walked_ms(cluster, *pair), 500.0) for pair in pairs)
        await cluster.sleep(75.0)
        shortest = shortest_ms(cluster)
        walked = {pair: walked_ms(cluster, *pair) for pair in pairs}
        assert sum(math.isinf(ms) for ms in walked.values()) <= 0.02 * len(pairs)
        reached = sum(min(ms, 500.0) for ms in walked.values())
        best = sum(shortest[pair] for pair in pairs)
        assert reached < 1.15 * best < first
        cells = [service_of(cluster, node).cell for node in NODES]
        assert all(1 <= len(cell.neighbours) <= 6 for cell in cells)

    in_plane(tmp_path, test, loss=loss)

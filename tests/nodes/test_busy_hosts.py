"""Load counts in placement, in the daemons' own view: a busy host is left where another does; if all are busy, all do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placing import LiveNetworkView
from sbon_protocol.api.operators import Needs
from tests.nodes.clusters import ask, in_cluster

PLACES_MS = {"a": (0.0, 0.0), "b": (40.0, 2.0), "c": (40.0, -4.0), "d": (80.0, 0.0), "e": (40.0, 60.0), "f": (10.0, 5.0)}
PROBLEM = PlacementProblem(
    pinned={"source": "a", "other": "e", "sink": "d"},
    operators=(Operator(id="join", needs=Needs(cores=0.1), rows_s=10.0, row_core_ms=1.0),),
    edges=(Edge("source", "join", 1000.0, 10.0), Edge("other", "join", 900.0, 9.0), Edge("join", "sink", 1000.0, 10.0)),
)
"""A join whose best place is in the middle: of ``b``, and next of ``c``."""
SETTLED_S = 150.0
"""Five time constants of the load's smoothing, and its gossip."""
BUSY = 20.0
"""Runnable processes per core."""
CHARGING = ("hybrid", "optimal", "local-search", "relaxation")
"""Strategies that charge a host for its load."""
LIVE = sorted(STRATEGIES.keys() - {"ip-multicast"})
"""Without the one that daemons refuse: they know no routes."""


def one_way_s(a: str, b: str) -> float:
    return (math.dist(PLACES_MS[a], PLACES_MS[b]) + 1.0) / 1000 if a != b else 0.0


async def host_of(cluster: SimulatedCluster, strategy: str, settings: PlacementSettings) -> str:
    view = LiveNetworkView(cluster.at("d").daemon.context)
    return (await ask(cluster, "d", STRATEGIES[strategy](PROBLEM, view, settings))).hosts()["join"]


def test_every_strategy_leaves_a_busy_host_unless_all_are_busy(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        settings = PlacementSettings()

        async def loaded(nodes: Iterable[str]) -> dict[str, str]:
            for node in PLACES_MS:
                cluster.at(node).load_per_core = BUSY if node in nodes else 0.0
            await cluster.sleep(SETTLED_S)
            return {strategy: await host_of(cluster, strategy, settings) for strategy in LIVE}

        idle = await loaded(())
        for busy_node in sorted(set(idle.values())):
            hosts = await loaded([busy_node])
            assert busy_node not in hosts.values(), hosts
        assert (await loaded(PLACES_MS)).keys() == idle.keys()

    in_cluster(tmp_path, "abcdef", test, latency=one_way_s)


@pytest.mark.parametrize("strategy", CHARGING)
def test_a_load_below_the_bound_is_charged(strategy: str, tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        settings = PlacementSettings(k=3)
        idle = await host_of(cluster, strategy, settings)
        cluster.at(idle).load_per_core = 1.0
        await cluster.sleep(SETTLED_S)
        assert await host_of(cluster, strategy, settings) != idle

    in_cluster(tmp_path, "abcdef", test, latency=one_way_s)


def test_a_load_that_gossip_has_not_told_of_yet_is_answered(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        settings = PlacementSettings()
        idle = {strategy: await host_of(cluster, strategy, settings) for strategy in CHARGING}
        for host in set(idle.values()):
            cluster.at(host).load_per_core = 2.0
            for strategy in (one for one in CHARGING if idle[one] == host):
                assert (strategy, await host_of(cluster, strategy, settings)) != (strategy, host)
            cluster.at(host).load_per_core = 0.0

    in_cluster(tmp_path, "abcdef", test, latency=one_way_s)

"""A placement explained while nodes of the query are away: it names them and invents nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.config.config import Config
from sbon_node.context import ControlSettings
from sbon_protocol.api.explanations import PlacementExplanation
from tests.nodes.clusters import UNHURRIED, ask, declare, in_cluster, source_at, submitted

PLACES_MS = {"a": 0.0, "b": 20.0, "c": 60.0, "d": 90.0}


def along_s(a: str, b: str) -> float:
    return (abs(PLACES_MS[a] - PLACES_MS[b]) + 1.0) / 1000 if a != b else 0.0


def sized(cores: float) -> Config:
    control = ControlSettings(cores=cores, memory_mb=8_000.0, bandwidth_bytes_s=1e8)
    return msgspec.structs.replace(UNHURRIED, control=control)


async def explained(cluster: SimulatedCluster) -> PlacementExplanation:
    found: PlacementExplanation = await ask(cluster, "b", cluster.at("b").daemon.queries.placement_explainer.query("q"))
    return found


@pytest.mark.one_part_per_commit("dead hosts of an explained query", parts=2)
@pytest.mark.parametrize("host, roomy", [("a", "abcd"), ("c", "cd")], ids=["with its source", "alone"])
def test_a_dead_host_is_listed_with_the_node_that_would_be_chosen_now(tmp_path: Path, host: str, roomy: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=100_000, rate=2.0))
        await submitted(cluster, "b", None)
        before = await explained(cluster)
        assert (before.away, before.operators[0].node) == ({}, host)
        cluster.crash(cluster.nodes[host])
        silent = await explained(cluster)
        assert silent.away == {host: "does not answer"}
        await cluster.until(lambda: not cluster.at("b").daemon.membership.is_alive(host))
        found = await explained(cluster)
        assert found.away == {host: "is dead"}
        for one in (silent, found):
            (operator,) = one.operators
            listed = {candidate.node: candidate for candidate in operator.candidates}
            assert listed[host].measured is None
            assert ("is dead" if one is found else "refuses connections") in listed[host].lost
            assert operator.now in PLACES_MS.keys() - {host}, one.now
            assert [candidate.node for candidate in operator.candidates if candidate.lost == ""] == [operator.now]
            assert not [candidate for candidate in operator.candidates if "does not look at costs" in candidate.lost]

    configs = {name: sized(cores=4.0 if name in roomy else 0.01) for name in PLACES_MS}
    in_cluster(tmp_path, "abcd", test, configs=configs, latency=along_s)

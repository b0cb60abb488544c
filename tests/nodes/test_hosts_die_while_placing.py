"""A node dies as a query is submitted, before others notice: the query runs elsewhere, whatever the strategy."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.papers.ants.plug_in import ANTS_LOST
from sbon_node.papers.sand.plug_in import NEXT_OWNER
from sbon_node.papers.table import STRATEGIES as ALL
from sbon_node.placement.strategies.registry import REFUSED
from tests.nodes.clusters import declare, in_cluster, source_at, submitted
from tests.nodes.test_live_placement import along_s, sized

STRATEGIES = ("hybrid", "relaxation", "optimal", "opb", "local-search", "in-network", "ants", "centralized")

SOON_S = 20.0
"""Time that docs/placement.md names. It was 1.3 s to 3 s, 7 s for coordinators, and 7 or 16 s for ants, whose second try may come
before the death is known."""


def test_each_kind_of_loss_has_a_strategy_here() -> None:
    assert {ALL.profiles[name].lost for name in STRATEGIES} == {REFUSED, NEXT_OWNER, ANTS_LOST}


@pytest.mark.one_part_per_commit("deaths of hosts during placements", parts=16)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_query_is_placed_without_a_node_that_dies_meanwhile(tmp_path: Path, strategy: str) -> None:
    """Two nodes can host the operator. The one that the strategy takes dies as the query is submitted again."""
    configs = {name: sized(cores=4.0 if name in "bc" else 0.05) for name in "abcde"}

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        await cluster.sleep(20)  # Until the coordinates have settled.
        first = await submitted(cluster, "d", None, name="first", strategy=strategy)
        assert first.placement is not None
        (preferred,) = set(first.placement.hosts().values())
        assert preferred in "bc"
        cluster.crash(cluster.nodes[preferred])
        began_s = cluster.loop.time()
        second = await submitted(cluster, "d", None, name="second", strategy=strategy)
        assert second.placement is not None
        assert set(second.placement.hosts().values()) == {"c" if preferred == "b" else "b"}
        assert cluster.loop.time() - began_s < SOON_S

    in_cluster(tmp_path, "abcde", test, configs=configs, latency=lambda a, b: 0.03 if "e" in (a, b) and a != b else along_s(a, b))

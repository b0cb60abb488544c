"""NES's strategies on whole nodes in virtual time: streams flow through the configured parents."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.config.config import Config
from sbon_node.context import ControlSettings
from tests.nodes.clusters import UNHURRIED, declare, in_cluster, source_at, submitted


def hanging(parent: str, cores: float = 4.0) -> Config:
    tags = (f"parent={parent}",) if parent else ()
    membership = msgspec.structs.replace(CONFIG.membership, tags=tags)
    return msgspec.structs.replace(UNHURRIED, membership=membership, control=ControlSettings(cores=cores, memory_mb=8_000.0))


@pytest.mark.one_part_per_commit("strategies in a hierarchy", parts=6)
@pytest.mark.parametrize(
    ("strategy", "parent", "host"),
    [("bottom-up", "b", "b"), ("bottom-up", "c", "c"), ("top-down", "b", "d"), ("ifcop", "b", None), ("local-search", "b", None)],
)
def test_an_operator_goes_up_the_configured_way(tmp_path: Path, strategy: str, parent: str, host: str | None) -> None:
    """The source's node has no room; the parent it names is next, wherever that is."""
    configs = {"a": hanging(parent, cores=0.01), **{node: hanging("") for node in "bcd"}}

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        info = await submitted(cluster, "c", None, consumer="d", strategy=strategy)
        assert info.placement is not None
        assert info.placement.strategy == strategy
        (assignment,) = info.placement.assignments
        assert assignment.node == host if host else assignment.node != "a"

    in_cluster(tmp_path, "abcd", test, configs=configs)

"""The durability of a query: from its submission, or the node's configuration, to each of its operators, wherever they move."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_protocol.api.durability import Durability
from tests.nodes.clusters import UNHURRIED, ask, declare, in_cluster, source_at, state_of, submitted
from tests.nodes.test_moved_operators import WINDOWS, move

REPLICATED = msgspec.structs.replace(UNHURRIED, query=msgspec.structs.replace(CONFIG.query, durability="replicated"))


def durabilities(cluster: SimulatedCluster) -> set[str]:
    """Those of all operators, at their hosts."""
    hosts = [node.daemon.hosting.operators for node in cluster.nodes.values()]
    return {hosted.spec.durability for host in hosts for hosted in host._hosted.values()}


@pytest.mark.parametrize(
    "default, wished, expected",
    [
        ("local", None, "local"),
        ("local", "replicated", "replicated"),
        ("replicated", None, "replicated"),
        ("replicated", "local", "local"),
    ],
)
def test_each_operator_has_the_durability_of_its_query(
    tmp_path: Path, default: Durability, wished: Durability | None, expected: Durability
) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("b", rows=600, rate=40.0))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=WINDOWS, strategy="producer", durability=wished)
        info = await state_of(cluster, "d")
        assert (info.durability, durabilities(cluster)) == (expected, {expected})
        assert [one.durability for one in await ask(cluster, "c", cluster.at("c").daemon.queries.lookup.all())] == [expected]
        while not (await state_of(cluster, "a")).rows:
            await cluster.clock.sleep(0.2)
        moving = (await state_of(cluster, "a")).operators[-1]
        target = "c" if moving.backup is None or moving.backup.node != "c" else "d"  # not the node of its backup
        assert (await move(cluster, moving.id, "b", target)).step == "moved"
        assert durabilities(cluster) == {expected}

    configs = {"a": REPLICATED if default == "replicated" else UNHURRIED}
    in_cluster(tmp_path, "abcd", test, configs=configs)

"""A node without its data directory: every description of a query reports its parts as lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted
from tests.nodes.test_descriptions import running


async def lose_data(cluster: SimulatedCluster, name: str, *, at_once: bool = False, reader: str = "") -> None:
    """The node dies, its disk with it; once the others take it for dead, it starts on an empty one, cut off from ``reader``."""
    node = cluster.at(name)
    cluster.crash(node)
    for path in node.disk.folder.iterdir():
        if path.is_symlink():
            shutil.rmtree(path.resolve())
            path.resolve().mkdir()
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    node.wiped = True
    if at_once:
        cluster.boot(node)
        await cluster.until(lambda: node.ready)
        await cluster.together()
        return
    others = [one.daemon for one in cluster.nodes.values() if one.alive]
    await cluster.until(lambda: all(one.membership.get(name).state == "dead" for one in others))  # type: ignore[union-attr]
    if reader:
        cluster.network.cut(name, reader, both=True)
    cluster.boot(node)
    if not reader:
        await cluster.together()


@pytest.mark.one_part_per_commit("nodes that are asked for a lost part", parts=2)
@pytest.mark.parametrize("asked", ["a", "e"])
def test_an_operator_lost_by_its_host_is_reported(tmp_path: Path, asked: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        await lose_data(cluster, "b")
        info = await state_of(cluster, asked)
        (lost,) = (operator for operator in info.operators if operator.node == "b")
        assert (lost.state, lost.reason) == ("lost", "b does not know it, as after the loss of its data directory")
        assert f"{lost.id} at b: b does not know it" in info.reason
        await cluster.sleep(31)
        (listed,) = await ask(cluster, asked, cluster.at(asked).daemon.queries.lookup.all())
        assert f"{lost.id} at b: b does not know it" in listed.reason

    in_cluster(tmp_path, "abcde", test)


@pytest.mark.one_part_per_commit("nodes that are asked for a lost part", parts=2)
@pytest.mark.parametrize("asked", ["a", "e"])
def test_a_sink_lost_by_its_node_is_reported(tmp_path: Path, asked: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        assert not (await state_of(cluster, asked)).sink_lost
        await lose_data(cluster, "d")
        info = await state_of(cluster, asked)
        assert info.sink_lost
        assert info.reason == "sink at d: d does not know it, as after the loss of its data directory"
        explained = await ask(cluster, asked, cluster.at(asked).daemon.queries.explainer.query("q"))
        assert {part.kind: part.state for part in explained.components}["sink"] == "lost"
        await cluster.sleep(31)
        (listed,) = await ask(cluster, asked, cluster.at(asked).daemon.queries.lookup.all())
        assert listed.reason == info.reason

    in_cluster(tmp_path, "abcde", test)


@pytest.mark.parametrize("overtakes", [False, True])
def test_a_source_that_begins_anew_after_the_loss_of_its_data_fails_its_queries_with_that_reason(
    tmp_path: Path, overtakes: bool
) -> None:
    """The source's frames differ from the earlier ones, so no operator may continue with them.

    If its new frames have overtaken the operator before the link comes back, the numbers alone would fit.
    """

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=1_000_000, rate=10.0))
        await submitted(cluster, "a", tmp_path / "out.csv", consumer="d", strategy="consumer")
        while not ((await state_of(cluster, "a")).rows or 0) > 100:
            await cluster.clock.sleep(0.5)
        await lose_data(cluster, "b", reader="d" if overtakes else "")
        if overtakes:
            cluster.crash(cluster.at("d"))
            cluster.boot(cluster.at("d"))
        await cluster.sleep(60)
        cluster.network.heal()
        await cluster.sleep(30)
        info = await state_of(cluster, "a")
        assert info.state == "failed", (info.state, info.reason)
        assert "the stream has begun anew" in info.reason
        assert "has read the earlier one up to frame" in info.reason
        (listed,) = await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.all())
        assert info.reason.startswith(listed.reason.removesuffix("…"))

    in_cluster(tmp_path, "abde", test)


def test_a_node_that_starts_anew_at_once_has_the_name_of_its_dead_predecessor(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        await lose_data(cluster, "d", at_once=True)
        assert (await state_of(cluster, "a")).sink_lost

    in_cluster(tmp_path, "abcd", test)

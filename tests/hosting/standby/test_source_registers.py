"""A replicated source has one register, which is made once, whatever its node knows of the others later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.connectors.sources.push import Post
from sbon_protocol.errors import SbonError
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_replicated_sources import (
    ROWS,
    SOURCE,
    SQL,
    backed_up,
    body,
    check_each_once,
    declared,
    info_of,
    posted_at,
    push,
    push_elsewhere,
    register_of,
    until_rows,
)
from tests.nodes.clusters import ask, submitted


async def acceptors_of(cluster: SimulatedCluster) -> list[str]:
    found = await ask(cluster, "a", cluster.at("a").daemon.ownership.registers.find(SOURCE))
    return [member.node for member in found.configuration.members]


def test_nodes_that_come_back_cut_off_make_no_second_register(tmp_path: Path) -> None:
    """They know of no other nodes, keep no register, and still think that ``b`` hosts the source."""

    async def test(cluster: SimulatedCluster) -> None:
        await declared(cluster, posted_at("b"))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=SQL, strategy="consumer", consumer="a")
        backup = (await backed_up(cluster)).backup
        assert backup is not None
        acceptors = await acceptors_of(cluster)
        assert "b" not in acceptors
        other = next(name for name in "cdef" if name not in (*acceptors, backup.node))
        lonely = ("b", other)
        rest = [name for name in cluster.nodes if name not in lonely]
        await push(cluster, 0)
        for name in lonely:
            cluster.crash(cluster.at(name))
        cluster.network.partition(lonely, rest)
        for name in lonely:
            cluster.boot(cluster.at(name))
        assert not (await push_elsewhere(cluster, 1)).repeated
        await cluster.sleep(60.0)
        info = await info_of(cluster, "b")
        assert "its register cannot be read" in info.state
        assert not cluster.at(other).daemon.hosting.source_backups.keeper.kept()
        post = Post("application/x-ndjson", body(9), "post-9")
        with pytest.raises(SbonError) as caught:
            await cluster.answer("b", cluster.at("b").daemon.hosting.pushes.push("numbers", "posted", post))
        assert caught.value.code == "source-paused"
        cluster.network.rejoin(lonely, rest)
        await cluster.sleep(60.0)
        assert {(await register_of(cluster, name)).host for name in cluster.nodes} == {backup.node}
        await until_rows(cluster, 2 * ROWS)
        check_each_once(tmp_path / "out.csv", 2 * ROWS)

    in_calm_cluster(tmp_path, "abcdef", test)


@pytest.mark.parametrize("made", [False, True])
def test_a_node_that_dies_amid_the_making_of_a_register_makes_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, made: bool
) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        registers = cluster.at("b").daemon.ownership.registers
        create = registers.create

        async def die(*arguments: Any) -> None:
            if made:
                await create(*arguments)
            cluster.crash(cluster.at("b"))
            raise SbonError("no-majority", "it is dead")

        monkeypatch.setattr(registers, "create", die)
        await declared(cluster, posted_at("b"))
        await cluster.sleep(5.0)
        assert not cluster.at("b").alive
        cluster.boot(cluster.at("b"))
        await backed_up(cluster)
        await push(cluster, 0)
        assert (await register_of(cluster)).host == "b"
        assert not cluster.at("b").daemon.context.store.sizes("source-register")

    in_calm_cluster(tmp_path, "abcd", test)

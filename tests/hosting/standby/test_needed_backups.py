"""A backup stays while its query may live, whatever its node knows of the others, and goes once the query is over."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.hosting.components import HostedComponent
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_recovery import register_of
from tests.nodes.clusters import ask, declare, source_at, state_of, submitted, uid_of
from tests.nodes.test_moved_operators import delivered, finished

SQL = "SELECT id FROM numbers WHERE v >= 0"
ROWS = 200
GONE_S = 180.0
"""Virtual seconds in which a backup goes after the end of its query: two checks of orphans, and the way back into the cluster."""


async def backup_of(cluster: SimulatedCluster, path: Path) -> tuple[str, str, str]:
    """Start a query with one operator at ``d``; return the operator, its host and its backup, not ``a``."""
    await declare(cluster, "a", source_at("d", rows=ROWS, rate=4.0))
    await submitted(cluster, "a", path, sql=SQL, strategy="producer", consumer="a", durability="replicated")
    (operator,) = [one.id for one in (await state_of(cluster, "a")).operators]
    while not (register := await register_of(cluster, operator)).backup:
        await cluster.clock.sleep(0.5)
    assert register.host == "d"
    assert register.backup != "a"
    return operator, register.host, register.backup


def kept(cluster: SimulatedCluster) -> list[HostedComponent]:
    return [one for node in cluster.nodes.values() if node.ready for one in node.daemon.hosting.backups.keeper.components()]


async def until_gone(cluster: SimulatedCluster) -> None:
    deadline = cluster.clock.now() + GONE_S
    while kept(cluster):
        assert cluster.clock.now() < deadline, kept(cluster)
        await cluster.clock.sleep(1.0)


def test_a_backup_stays_where_nobody_in_reach_has_the_register(tmp_path: Path) -> None:
    """Host and backup come back cut off from the acceptors, and know of no other nodes."""

    async def test(cluster: SimulatedCluster) -> None:
        operator, host, backup = await backup_of(cluster, tmp_path / "out.csv")
        registers = cluster.at("a").daemon.ownership.registers
        found = await ask(cluster, "a", registers.find(f"operator/{operator}"))
        pair = (host, backup)
        assert not {member.node for member in found.configuration.members} & {*pair}, "choose another seed"
        rest = [name for name in cluster.nodes if name not in pair]
        for name in pair:
            cluster.crash(cluster.at(name))
        cluster.network.partition(pair, rest)
        for name in pair:
            cluster.boot(cluster.at(name))
        for _ in range(4):
            await cluster.sleep(60.0)
            assert [one.component for one in kept(cluster)] == [operator]
        cluster.network.rejoin(pair, rest)
        await finished(cluster)
        counted = Counter(int(row["id"]) for row in delivered(tmp_path / "out.csv"))
        assert counted == Counter(range(min(counted), min(counted) + ROWS))
        await until_gone(cluster)

    in_calm_cluster(tmp_path, "abcdefgh", test, seed=5)


def test_a_backup_that_missed_the_end_of_its_query_goes(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator, host, backup = await backup_of(cluster, tmp_path / "out.csv")
        cluster.crash(cluster.at(backup))
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop(uid_of(cluster)))
        await cluster.sleep(30.0)
        cluster.crash(cluster.at(host))
        cluster.boot(cluster.at(backup))
        while not cluster.at(backup).ready:
            await cluster.clock.sleep(0.1)
        assert [one.component for one in kept(cluster)] == [operator]
        await until_gone(cluster)

    in_calm_cluster(tmp_path, "abcdefgh", test, seed=3)

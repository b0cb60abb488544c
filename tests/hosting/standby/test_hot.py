"""A hot operator runs at its backup, too, and goes on there at once when its host is lost; every row comes out once."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.api.durability import HOT, BackupInfo
from sbon_protocol.api.states.operator_states import FAILED
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_recovery import CHECKS, KINDS, ROWS, register_of, replicated, until_more_rows, until_owner
from tests.nodes.clusters import owner_of
from tests.nodes.test_moved_operators import FILTER, WINDOWS, finished


def backup_of(cluster: SimulatedCluster, operator: str, host: str) -> BackupInfo:
    info = cluster.at(host).daemon.hosting.operators.ports.backups.info(operator)
    assert info is not None
    return info


async def followed(cluster: SimulatedCluster, path: Path, sql: str) -> str:
    """Start a hot query; return its last operator once a follower runs at the backup."""
    operator = await replicated(cluster, path, sql, durability=HOT)
    while True:
        register = await register_of(cluster, operator)
        if backup_of(cluster, operator, register.host).follows:
            return operator
        await cluster.sleep(0.5)


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_without_its_follower_it_is_started_from_the_stored_checkpoint(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await followed(cluster, tmp_path / "out.csv", WINDOWS)
        register = await register_of(cluster, operator)
        cluster.crash(cluster.at(register.host))
        while (await owner_of(cluster, "a", operator))[0] != register.backup:
            cluster.at(register.backup).daemon.hosting.backups.followers.engine_state(operator, FAILED, "it fails")
            await cluster.sleep(0.5)
        await until_more_rows(cluster)
        recovered = backup_of(cluster, operator, register.backup).recovered
        assert recovered == f"from its stored checkpoint: no follower ran: {operator}: it fails"
        await finished(cluster)
        CHECKS[WINDOWS](tmp_path / "out.csv", ROWS)

    in_calm_cluster(tmp_path, "abcde", test)


@KINDS
@pytest.mark.parametrize("sql", [FILTER, WINDOWS])
def test_the_follower_goes_on(tmp_path: Path, sql: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await followed(cluster, tmp_path / "out.csv", sql)
        register = await register_of(cluster, operator)
        await cluster.sleep(5.0)
        cluster.crash(cluster.at(register.host))
        await until_owner(cluster, operator, register.backup)
        await until_more_rows(cluster)
        assert backup_of(cluster, operator, register.backup).recovered == "by its follower"
        await finished(cluster)
        CHECKS[sql](tmp_path / "out.csv", ROWS)

    in_calm_cluster(tmp_path, "abcde", test)

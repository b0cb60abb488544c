"""A node that keeps backups leaves, or dies: their operators find other nodes, also those that show nothing new."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from tests.adaptation.test_draining import drain, left
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_recovery import LONG, register_of, replicated, until_owner
from tests.nodes.clusters import declare, submitted
from tests.nodes.test_moved_operators import FILTER, WINDOWS, check_windows, finished, operators
from tests.nodes.test_pushes import http_at, push


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_a_node_that_keeps_a_backup_is_drained_and_another_keeps_it(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await replicated(cluster, tmp_path / "out.csv", WINDOWS, rows=LONG)
        before = await register_of(cluster, operator)
        end, _ = await drain(cluster, before.backup)
        assert (end.has_left, end.stays) == (True, ())
        await left(cluster, before.backup)
        while (after := await register_of(cluster, operator)).backup in ("", before.backup):
            await cluster.sleep(1.0)
        await cluster.sleep(5.0)
        assert (after.host, after.epoch) == (before.host, before.epoch)
        assert after.backup != before.host
        cluster.crash(cluster.at(after.host))
        await until_owner(cluster, operator, after.backup)
        await finished(cluster)
        check_windows(tmp_path / "out.csv", LONG)

    in_calm_cluster(tmp_path, "abcdef", test)


def test_an_operator_without_new_rows_replaces_a_backup_that_is_gone(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", http_at("b"))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=FILTER, strategy="producer", durability="replicated")
        await push(cluster, "b")
        await cluster.sleep(10.0)
        (operator,) = operators(cluster)
        before = await register_of(cluster, operator)
        assert before.backup != ""
        at = "a" if before.backup != "a" else "b"
        cluster.crash(cluster.at(before.backup))
        await cluster.sleep(60.0)
        after = await register_of(cluster, operator, at)
        assert after.backup not in ("", before.backup, after.host)

    in_calm_cluster(tmp_path, "abcdef", test)

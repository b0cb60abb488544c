"""A host that vanishes amid the copy of a large state, with its connections open, holds up nobody: its backup goes on at once."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.hosting.standby.settings import BackupSettings
from tests.calm_clusters import CALM, in_calm_cluster
from tests.hosting.standby.test_first_batches import keeper_at, running
from tests.nodes.clusters import owner_of

COPIED = msgspec.structs.replace(CALM, backups=BackupSettings(inline_bytes=0), migration=MigrationSettings(stall_s=600.0))
"""All files are fetched over connections of their own, and a copy that stands still ends late."""


def test_a_backup_goes_on_though_its_host_vanished_amid_a_copy(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator, host, backup = await running(cluster, tmp_path)
        kept = keeper_at(cluster, backup)._known[operator]
        async with cluster.clock.timeout(30.0):
            while kept._end_of_copy is None:
                await cluster.clock.sleep(0.0005)
        cluster.network.partition((host,), [name for name in cluster.nodes if name != host])
        await cluster.clock.sleep(3.0)
        assert kept.lock.locked()
        await cluster.clock.sleep(29.0)
        assert (await owner_of(cluster, "a", operator))[0] == backup

    in_calm_cluster(tmp_path, "abcd", test, config=COPIED, quality=NetworkQuality(stall_timeout_s=600.0))

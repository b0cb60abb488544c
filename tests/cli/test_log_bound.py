"""A local cluster that runs for long does not fill the disk with what its nodes log."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon.local.cluster import LocalCluster

BOUND = 65_536


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
@pytest.mark.live
def test_a_nodes_log_is_put_aside_when_it_has_grown(tmp_path: Path) -> None:
    cluster = LocalCluster(1, folder=tmp_path / "cluster", overrides={"log.file_bytes": BOUND})
    (node,) = cluster.nodes
    node.folder.mkdir(parents=True)
    earlier = "what it logged before\n" * BOUND
    node.log.write_text(earlier)
    with cluster:
        assert node.log.stat().st_size < BOUND
        assert node.log.with_name("log.1").read_text().startswith(earlier)
        assert '"ready"' in "".join(node.log_tail()) + node.log.with_name("log.1").read_text()

"""Hosts of replicated operators are lost on real nodes, with their disks: the rows stay DuckDB's, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.node import LocalNode
from sbon_lab.experiments.harness.experiment import ignore
from sbon_lab.migration import losses
from sbon_lab.migration.feed import Feed
from sbon_lab.migration.kinds import KINDS
from sbon_lab.migration.measuring import SOURCE
from sbon_lab.migration.moving_query import MovingQuery
from sbon_protocol.api.durability import HOT, REPLICATED, Durability
from tests.live.world import UNHURRIED, World

pytestmark = pytest.mark.live
only_in_test_all = pytest.mark.only_in_test_all("hosts of live nodes that are lost with their disks")
QUICK_KIND = "tumbling"
durabilities = pytest.mark.parametrize("durability", [REPLICATED, HOT])


@durabilities
def test_no_row_is_lost_or_repeated_with_a_host(world: World, tmp_path: Path, durability: Durability) -> None:
    """The backup starts from its copy, and the follower of a hot operator goes on."""
    row = losses.lose_hosts(
        world.cluster,
        QUICK_KIND,
        tmp_path / "rows",
        1,
        lambda _: None,
        durability,
        source="ada",
        hosts=("dee", "cyd"),
        feed=UNHURRIED,
    )
    assert_right(row, 1)


@only_in_test_all
@durabilities
@pytest.mark.parametrize("kind", KINDS)
def test_no_row_is_lost_or_repeated_with_three_hosts(tmp_path: Path, kind: str, durability: Durability) -> None:
    (row,) = losses.run(tmp_path, (kind,), 3, ignore, ignore, durability)
    assert_right(row, 3)


def assert_right(row: dict[str, Any], lost: int) -> None:
    assert row["rows"] > 0
    assert (row["wrong"], row["repeated_frames"]) == (0, 0)
    assert row["by_follower"] == (lost if row["durability"] == HOT else 0)


def family(node: LocalNode) -> list[psutil.Process]:
    daemon = psutil.Process(node.pid)
    return [daemon, *daemon.children(recursive=True)]


@only_in_test_all
def test_a_host_that_was_paused_shows_nothing_beside_its_successor(tmp_path: Path) -> None:
    """All of its processes stop amid their work until a successor has shown rows, and go on as if nothing had happened."""
    with (
        LocalCluster((SOURCE, *losses.HOSTS), folder=tmp_path / "cluster", overrides=SHORT_LIVED) as cluster,
        MovingQuery(
            cluster,
            SOURCE,
            "paused",
            KINDS[QUICK_KIND],
            Feed(),
            tmp_path / "rows",
            strategy="consumer",
            durability="replicated",
        ) as query,
    ):
        query.more(3)
        operator = query.operators()[-1]
        host = losses.away_from_source(query, operator)
        query.until(lambda: losses.has_backup(query, operator))
        query.more(3)
        paused = family(cluster[host])
        for process in paused:
            process.suspend()
        try:
            query.until(lambda: query.host_of(operator) != host)
            query.more(3)
        finally:
            for process in paused:
                process.resume()
        successor = query.host_of(operator)
        query.until(lambda: operator not in cluster[host].client.status().operators)
        cluster.wait_converged()
        query.more(3)
        assert query.host_of(operator) == successor
        assert query.end(query.answers()) == (0, 0)
        numbers = [arrival.number for arrival in query.arrivals]
        assert len(numbers) == len(set(numbers))

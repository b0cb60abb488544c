"""A real node is drained while its queries run: their rows stay DuckDB's; state in RocksDB moves, too."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.model import DrainStep, NodeDrained
from sbon_cli.commands.experiments.migration.moving_query import MovingQuery
from sbon_node.experiments.bench.migration.feed import Feed
from sbon_node.experiments.bench.migration.kinds import KINDS
from tests.live.world import wait_for

pytestmark = pytest.mark.live
NODES = ("mia", "noa", "oda")
TINY_MB = 1e-6
"""Expected state from which these nodes choose RocksDB: any."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    overrides = {**SHORT_LIVED, "query.rocksdb_from_mb": TINY_MB}
    per_node = {"oda": {"node.drain_on_stop": True}}
    with LocalCluster(NODES, folder=tmp_path_factory.mktemp("drained"), overrides=overrides, per_node=per_node) as started:
        yield started


def query_at(cluster: LocalCluster, kind: str, folder: Path, name: str = "at") -> MovingQuery:
    """Return a query with source and consumer at mia, whose operators nobody moves unasked."""
    return MovingQuery(cluster, "mia", f"{name}-{kind}", KINDS[kind], Feed(), folder / kind, strategy="consumer", adapt="off")


def providers(cluster: LocalCluster, query: MovingQuery) -> set[str]:
    """Return where the query's operators with state keep it."""
    explained = cluster["mia"].client.explain_query(query.name)
    return {one.state_provider for one in explained.components if one.state_mb is not None}


def assert_right(query: MovingQuery) -> None:
    assert query.end(query.answers()) == (0, 0)
    numbers = [arrival.number for arrival in query.arrivals]
    assert numbers == sorted(set(numbers))


@pytest.mark.only_in_test_all("live nodes that are drained under several queries")
def test_a_node_is_drained_under_two_running_queries(cluster: LocalCluster, tmp_path: Path) -> None:
    """Their state is in RocksDB, chosen at the submission by its expected size, and moves twice."""
    with query_at(cluster, "tumbling", tmp_path) as windows, query_at(cluster, "filter", tmp_path) as rows:
        last = {}
        for query in (windows, rows):
            query.more(3)
            last[query] = query.operators()[-1]
            query.beyond(query.move(last[query], "noa"))
        assert providers(cluster, windows) == {"rocksdb"}
        *steps, end = cluster["noa"].client.drain()
        assert isinstance(end, NodeDrained)
        assert (end.has_left, set(end.moved), end.stays) == (True, set(last.values()), ())
        moved = {step.operator for step in steps if isinstance(step, DrainStep) and step.step == "moved"}
        assert moved == set(last.values())
        for query, operator in last.items():
            assert query.host_of(operator) in ("mia", "oda")
            reasons = [one.reason for info in query.info().operators if info.id == operator for one in info.past_moves]
            assert reasons == ["a user moved it", "noa was drained"]
            query.more(3)
        for query in last:
            assert_right(query)


@pytest.mark.one_part_per_commit("kinds of operators of live nodes that are told to stop", parts=2)
@pytest.mark.parametrize("kind, kept_in", [("filter", set()), ("tumbling", {"rocksdb"})], ids=["filter", "tumbling"])
def test_a_node_that_is_told_to_stop_moves_its_operator_away_and_leaves(
    cluster: LocalCluster, tmp_path: Path, kind: str, kept_in: set[str]
) -> None:
    if not cluster["oda"].running:
        cluster["oda"].start()
        cluster["oda"].wait_ready()
        cluster.wait_converged()
    with query_at(cluster, kind, tmp_path, "later") as rows:
        rows.more(3)
        assert providers(cluster, rows) == kept_in
        operator = rows.operators()[-1]
        rows.beyond(rows.move(operator, "oda"))
        cluster["oda"].signal(signal.SIGTERM)
        assert cluster["oda"].wait() == 0
        assert rows.host_of(operator) != "oda"
        members = cluster["mia"].client.members
        wait_for(lambda: {one.name: one.state for one in members()}["oda"] == "left", "mia knows that oda has left")
        rows.more(3)
        assert_right(rows)

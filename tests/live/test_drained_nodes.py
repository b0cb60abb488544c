"""A real node is drained while its queries run: their rows stay DuckDB's; state in RocksDB moves, too."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sbon.local.cluster import LocalCluster
from sbon.model import DrainStep, NodeDrained
from sbon_lab.migration.kinds import KINDS
from sbon_lab.migration.moving_query import MovingQuery
from tests.live.world import UNHURRIED, World, wait_for

pytestmark = pytest.mark.live
AT, DRAINED = "bob", "dee"
"""The node that plans, with the sources and the consumer, and the one that is drained."""


def query_at(cluster: LocalCluster, kind: str, folder: Path, name: str = "at") -> MovingQuery:
    """Return a query with source and consumer at ``AT``, whose operators nobody moves unasked."""
    return MovingQuery(cluster, AT, f"{name}-{kind}", KINDS[kind], UNHURRIED, folder / kind, strategy="consumer", adapt="off")


def providers(cluster: LocalCluster, query: MovingQuery) -> set[str]:
    """Return where the query's operators with state keep it."""
    explained = cluster[AT].client.explain_query(query.name)
    return {one.state_provider for one in explained.components if one.state_mb is not None}


def assert_right(query: MovingQuery) -> None:
    assert query.end(query.answers()) == (0, 0)
    numbers = [arrival.number for arrival in query.arrivals]
    assert numbers == sorted(set(numbers))


@contextmanager
def back_afterwards(cluster: LocalCluster, *, forgets: bool = False) -> Iterator[None]:
    """Start the drained node again, whatever becomes of the test: those after it have the same cluster.

    One that a user has drained stays so, unless it ``forgets`` that with all of its data.
    """
    node = cluster[DRAINED]
    try:
        yield
    finally:
        if forgets:
            if node.running:
                node.kill()
            node.lose_data()
        node.restart()
        cluster.wait_converged()


@pytest.mark.only_in_test_all("live nodes that are drained under several queries")
def test_a_node_is_drained_under_two_running_queries(world: World, tmp_path: Path) -> None:
    """Their state is in RocksDB, chosen at the submission by its expected size, and moves twice."""
    cluster = world.cluster
    with (
        back_afterwards(cluster, forgets=True),
        query_at(cluster, "tumbling", tmp_path) as windows,
        query_at(cluster, "filter", tmp_path) as rows,
    ):
        last = {}
        for query in (windows, rows):
            query.more(3)
            last[query] = query.operators()[-1]
            query.beyond(query.move(last[query], DRAINED))
        assert providers(cluster, windows) == {"rocksdb"}
        *steps, end = cluster[DRAINED].client.drain()
        assert isinstance(end, NodeDrained)
        assert (end.has_left, set(end.moved), end.stays) == (True, set(last.values()), ())
        moved = {step.operator for step in steps if isinstance(step, DrainStep) and step.step == "moved"}
        assert moved == set(last.values())
        for query, operator in last.items():
            assert query.host_of(operator) != DRAINED
            reasons = [one.reason for info in query.info().operators if info.id == operator for one in info.past_moves]
            assert reasons == ["a user moved it", f"{DRAINED} was drained"]
            query.more(3)
        for query in last:
            assert_right(query)


@pytest.mark.parametrize("kind, kept_in", [("filter", set()), ("tumbling", {"rocksdb"})], ids=["filter", "tumbling"])
def test_a_node_that_is_told_to_stop_moves_its_operator_away_and_leaves(
    world: World, tmp_path: Path, kind: str, kept_in: set[str]
) -> None:
    cluster, stopped = world.cluster, world.cluster[DRAINED]
    with back_afterwards(cluster), query_at(cluster, kind, tmp_path, "later") as rows:
        rows.more(3)
        assert providers(cluster, rows) == kept_in
        operator = rows.operators()[-1]
        rows.beyond(rows.move(operator, DRAINED))
        stopped.signal(signal.SIGTERM)
        assert stopped.wait() == 0
        assert rows.host_of(operator) != DRAINED
        members = cluster[AT].client.members
        wait_for(lambda: {one.name: one.state for one in members()}[DRAINED] == "left", f"{AT} knows that {DRAINED} has left")
        rows.more(3)
        assert_right(rows)

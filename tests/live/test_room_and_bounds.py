"""On real daemons and Spark: nodes are filled and no further, and a bound on delay is kept to the last row or refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from sbon_cli.local_cluster import SHORT_LIVED, LocalCluster
from sbon_node.control.records import LIVE
from sbon_node.control.report import QueryInfo, SinkSpec
from sbon_node.errors import SbonError
from tests.live.world import World, finished, submit, wait_for

pytestmark = pytest.mark.live

NODES = ("ada", "bob", "cyd", "dee")
RTT_MS = {
    ("ada", "bob"): 80.0,
    ("ada", "cyd"): 200.0,
    ("bob", "cyd"): 160.0,
    ("ada", "dee"): 240.0,
    ("bob", "dee"): 280.0,
    ("cyd", "dee"): 120.0,
}
"""The rows are born at ``ada``, ``bob`` and ``cyd`` and wanted at ``dee``."""
EACH = 2
"""Operators a node has memory for."""
MEMORY_MB = 150.0 * EACH + 100.0
JOIN = """SELECT l.n, l.site AS one, r.site AS other, l.value + r.value AS sum FROM {stream} AS l JOIN {stream} AS r
    ON l.ts = r.ts AND l.n + 1 = r.n WHERE l.n % 7 = 0"""


@pytest.fixture(scope="module")
def world(readings: list[Path]) -> Iterator[World]:
    with LocalCluster(NODES, RTT_MS, overrides={**SHORT_LIVED, "control.memory_mb": MEMORY_MB}) as cluster:
        yield World(cluster, readings)


def one_way_ms(a: str, b: str) -> float:
    return 0.0 if a == b else RTT_MS[min(a, b), max(a, b)] / 2


def longest_ms(info: QueryInfo) -> float:
    """By the truth, of the ways of a query's rows."""
    assert info.plan is not None
    assert info.placement is not None
    hosts = info.placement.hosts()
    reached = {source.source.id: (source.source.node, 0.0) for source in info.plan.sources}
    for operator in info.plan.operators:  # in the order in which they read each other
        here = hosts[operator.id]
        reached[operator.id] = (
            here,
            max(reached[one.stream][1] + one_way_ms(reached[one.stream][0], here) for one in operator.inputs),
        )
    return max(reached[name][1] + one_way_ms(reached[name][0], info.consumer) for name in info.plan.outputs)


def test_a_bound_on_delay_is_kept_to_the_last_row_or_refused(world: World, tmp_path: Path) -> None:
    world.declare("fast", replay=0)
    dee = world.cluster["dee"]
    direct_ms = max(one_way_ms(site, "dee") for site in ("ada", "bob", "cyd"))
    with pytest.raises(SbonError, match="delay") as refused:
        submit(dee, sql=JOIN.format(stream="fast"), max_delay_ms=direct_ms - 20)
    assert refused.value.code == "delay-bound"
    assert LIVE.isdisjoint(info.state for info in dee.client.queries())

    path = tmp_path / "rows.csv"
    sink = SinkSpec(kind="file", options={"path": str(path)})
    info = submit(dee, sql=JOIN.format(stream="fast"), max_delay_ms=direct_ms + 5, sink=sink)
    wait_for(lambda: finished(dee, info.id), "it has finished")
    info = dee.client.query(info.id)
    assert longest_ms(info) <= direct_ms + 5
    found = duckdb.sql(f"SELECT n, one, other, sum FROM read_csv('{path}')").fetchall()
    due = world.answer(JOIN.format(stream="readings"))
    assert due
    assert sorted(found, key=repr) == due


def test_nodes_are_filled_and_no_further_and_room_that_comes_free_is_given_again(world: World, tmp_path: Path) -> None:
    world.declare("slow", replay=20.0)
    dee, clients = world.cluster["dee"], [node.client for node in world.cluster.nodes]
    running: list[QueryInfo] = []

    def fill() -> None:
        for number in range(EACH * len(NODES) + 1):
            running.append(submit(dee, sql=f"SELECT n, value FROM slow WHERE n % 1000 = {number}"))

    with pytest.raises(SbonError) as refused:
        fill()
    assert refused.value.code == "no-room"
    assert {detail.split(":")[0] for detail in refused.value.details} == set(NODES)
    told = [detail.split(": ", 1)[1] for detail in refused.value.details]
    assert set(told) <= {"100 MB free, 150 needed", "has room for it, but not for all of this query that would have to go there"}
    at = Counter(operator.node for info in running for operator in dee.client.query(info.id).operators)
    assert max(at.values()) <= EACH, at
    assert sum(at.values()) >= EACH * (len(NODES) - 1), "they went on to the nodes that had room"
    for client in clients:
        assert len(client.status().operators) <= EACH

    for info in running:
        dee.client.stop_query(info.id)
    path = tmp_path / "rows.csv"
    world.declare("later", replay=0)
    sql = "SELECT n, value FROM {} WHERE n % 5 = 0"
    info = submit(dee, sql=sql.format("later"), sink=SinkSpec(kind="file", options={"path": str(path)}))
    wait_for(lambda: finished(dee, info.id), "it has finished")
    found = duckdb.sql(f"SELECT n, value FROM read_csv('{path}')").fetchall()
    assert sorted(found, key=repr) == world.answer(sql.format("readings"))

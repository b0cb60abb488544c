"""Capacity and delay bounds on real daemons and Spark: both are kept, or the query is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.node import LocalNode
from sbon.model import QueryInfo, QuerySpec, SinkSpec
from sbon_protocol.api.operators import OPERATOR_MEMORY_MB
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.errors import SbonError
from tests.live.world import World, finished, submit, wait_for

pytestmark = [pytest.mark.live, pytest.mark.only_in_test_all("capacity and bounds of live nodes")]

NODES = ("ada", "bob", "cyd", "dee")
RTT_MS = {
    ("ada", "bob"): 240.0,
    ("ada", "cyd"): 240.0,
    ("bob", "cyd"): 240.0,
    ("ada", "dee"): 320.0,
    ("bob", "dee"): 320.0,
    ("cyd", "dee"): 320.0,
}
"""The sources are at ``ada``, ``bob`` and ``cyd``, the consumer at ``dee``.

Counts of each source's rows are added at a source's node, which uses the network least, with a longest delay of 280 ms; or at
``dee``, with 160 ms.
"""
TOO_SHORT_MS, BOUND_MS = 120.0, 220.0
"""Bound far enough from both delays that a busy machine's measurements do not matter."""
FRESH_S = 5.0
"""Age after which a latency is measured anew, so that no measurement of a busy moment stays."""
EACH = 2
"""Operators a node has memory for."""
LEFT_MB = OPERATOR_MEMORY_MB - 20.0
MEMORY_MB = OPERATOR_MEMORY_MB * EACH + LEFT_MB
COUNT = """SELECT unix_seconds(window.start) AS start, count(*) AS n, sum(n) AS total FROM fast WHERE n % 2 = 0
    GROUP BY window(ts, '5 minutes')"""
COUNT_OF_DUCKDB = """SELECT epoch(time_bucket(INTERVAL 5 MINUTE, ts))::BIGINT AS start, count(*) AS n,
    sum(n)::BIGINT AS total FROM readings WHERE n % 2 = 0 GROUP BY 1"""


@pytest.fixture(scope="module")
def world(readings: list[Path]) -> Iterator[World]:
    overrides = {**SHORT_LIVED, "control.memory_mb": MEMORY_MB, "directory.fresh_s": FRESH_S}
    with LocalCluster(NODES, RTT_MS, overrides=overrides) as cluster:
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


def accepted(node: LocalNode, **fields: Any) -> QueryInfo | None:
    """None where the ways are too long as they are measured now."""
    try:
        return submit(node, **fields)
    except SbonError as error:
        if error.code != "delay-bound":
            raise
        return None


def test_a_bound_on_delay_is_kept_to_the_last_row_or_refused(world: World, tmp_path: Path) -> None:
    world.declare("fast", replay=0)
    dee = world.cluster["dee"]
    unbounded = dee.client.explain(QuerySpec(sql=COUNT))
    assert "dee" not in {part.node for part in unbounded.components if part.kind == "operator"}, (
        "without a bound it would be longer"
    )
    with pytest.raises(SbonError, match="delay") as refused:
        submit(dee, sql=COUNT, max_delay_ms=TOO_SHORT_MS)
    assert refused.value.code == "delay-bound"
    assert LIVE.isdisjoint(info.state for info in dee.client.queries())

    path = tmp_path / "rows.csv"
    sink = SinkSpec(kind="file", options={"path": str(path)})
    queries: list[QueryInfo] = []

    def tried() -> bool:
        queries.extend(filter(None, [accepted(dee, sql=COUNT, max_delay_ms=BOUND_MS, sink=sink)]))
        return bool(queries)

    wait_for(tried, "the ways are measured about as short as they are")
    info = queries[0]
    wait_for(lambda: finished(dee, info.id), "it has finished")
    assert longest_ms(dee.client.query(info.id)) <= BOUND_MS
    found = duckdb.sql(f"SELECT start, n, total FROM read_csv('{path}')").fetchall()
    due = world.answer(COUNT_OF_DUCKDB)
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
    assert refused.value.code == "no-capacity"
    assert {detail.split(":")[0] for detail in refused.value.details} == set(NODES)
    told = [detail.split(": ", 1)[1] for detail in refused.value.details]
    assert set(told) <= {
        f"{LEFT_MB:.0f} MB free, {OPERATOR_MEMORY_MB:.0f} needed (held by {EACH} operators)",
        "has capacity for it, but not for all of the query's operators that would have to go there",
    }
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


def test_a_busy_host_takes_nothing_new_and_load_is_explained(world: World, tmp_path: Path) -> None:
    world.declare("calm", replay=0)
    dee, sql = world.cluster["dee"], "SELECT n, value FROM calm WHERE n % 7 = 0"
    idle = {operator.node for operator in dee.client.explain_placement(QuerySpec(sql=sql)).operators}
    world.cluster.change_load(dict.fromkeys(NODES, 0.0) | dict.fromkeys(idle, 20.0))

    def left() -> bool:
        operators = dee.client.explain_placement(QuerySpec(sql=sql)).operators
        loads_ms = {candidate.node: candidate.load_ms for operator in operators for candidate in operator.candidates}
        return min(loads_ms.get(node, 0.0) for node in idle) > 100.0 and idle.isdisjoint(one.node for one in operators)

    wait_for(left, "the load of the busy hosts is known")
    path = tmp_path / "rows.csv"
    info = submit(dee, sql=sql, sink=SinkSpec(kind="file", options={"path": str(path)}))
    wait_for(lambda: finished(dee, info.id), "it has finished")
    world.cluster.change_load(dict.fromkeys(NODES, 0.0))
    assert idle.isdisjoint(operator.node for operator in dee.client.query(info.id).operators)
    found = duckdb.sql(f"SELECT n, value FROM read_csv('{path}')").fetchall()
    assert sorted(found, key=repr) == world.answer(sql.replace("calm", "readings"))

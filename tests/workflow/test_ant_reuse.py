"""Scouts of a new query pass through running operators of others where that is cheaper than operators of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_node.model.queries import QueryInfo
from sbon_node.placement.ant_settings import AntSettings
from sbon_node.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.space.coordinate import Coordinate
from tests.workflow.clusters import ask, declare, in_warm_cluster, source_at, state_of, submitted, uid_of

PLACES = {"a": (0.0, 0.0), "m": (40.0, 0.0), "d": (80.0, 0.0), "g": (40.0, 60.0), "f": (0.0, 100.0)}
"""Milliseconds. Rows come from a and go to d; m is between them, g beside the way, and f far away."""
ANTS = AntSettings(explore_s=30.0, tell_s=2.0, routing_ants=8, scouting_ants=16)
CONFIGURED = msgspec.structs.replace(CONFIG, ants=ANTS)
ROWS = 600
THIRD = "SELECT id, v FROM numbers WHERE id % 3 = 0"
SUMS = "SELECT window(ts, '1 second').start AS w, sum(id) AS x FROM numbers WHERE id % 3 = 0 GROUP BY window(ts, '1 second')"
GREATEST = SUMS.replace("sum", "max")


def apart_ms(one: str, other: str) -> float:
    return math.dist(PLACES[one], PLACES[other])


def in_plane(tmp_path: Path, test: Callable[[SimulatedCluster], Awaitable[None]]) -> None:
    coordinates = {node: Coordinate(vector=(2 * x, 2 * y, 0.0), height=0.0, error=0.1) for node, (x, y) in PLACES.items()}
    in_warm_cluster(tmp_path, coordinates, test, config=CONFIGURED, latency=lambda one, other: apart_ms(one, other) / 1000)


async def begun(cluster: SimulatedCluster, out: Path, at: str, sql: str = THIRD) -> None:
    """Run a query whose operators are all at one node."""
    await cluster.sleep(5.0)
    await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
    info = await submitted(cluster, "a", out, name="first", sql=sql, consumer=at, strategy="consumer")
    assert {one.node for one in info.operators} == {at}


async def by_ants(cluster: SimulatedCluster, out: Path, sql: str = THIRD, **fields: Any) -> QueryInfo:
    info = await submitted(cluster, "d", out, **{"name": "second", "sql": sql, "consumer": "d", "strategy": "ants", **fields})
    assert info.placement is not None
    assert info.placement.strategy == "ants"
    return info


async def finished(cluster: SimulatedCluster, name: str) -> None:
    while (info := await state_of(cluster, "a", name)).state == "running":
        await cluster.clock.sleep(0.5)
    assert info.state == "finished", info.reason


def values(path: Path, column: str) -> list[int]:
    return sorted(json.loads(line)[column] for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("at", "fields", "passes"),
    [
        ("m", {}, True),
        ("g", {}, True),
        ("f", {}, False),
        ("m", {"strategy": "auto", "adapt": "ants"}, True),
        ("f", {"strategy": "auto", "adapt": "ants"}, False),
        ("m", {"reuse": "never"}, False),
        ("m", {"max_delay_ms": 5000.0}, False),
        ("g", {"objective": "latency"}, False),
    ],
)
def test_a_query_passes_through_a_running_operator_where_that_is_cheaper(
    tmp_path: Path, at: str, fields: dict[str, Any], passes: bool
) -> None:
    """From f, rows have a longer way to d than from their source. From g they have not, unless their way to g counts as well."""

    async def test(cluster: SimulatedCluster) -> None:
        await begun(cluster, tmp_path / "first.ndjson", at)
        info = await by_ants(cluster, tmp_path / "second.ndjson", **fields)
        shared, own = [one.id for one in info.shared], [one.id for one in info.operators]
        uid = {True: uid_of(cluster, "first"), False: uid_of(cluster, "second")}[passes]
        assert (shared, own) == (([f"{uid}.b0"], []) if passes else ([], [f"{uid}.b0"]))
        await cluster.clock.sleep(3.0)
        await ask(cluster, "a", cluster.at("a").daemon.stop_query("first"))
        await finished(cluster, "second")
        assert values(tmp_path / "second.ndjson", "id") == list(range(0, ROWS, 3))

    in_plane(tmp_path, test)


def test_the_tasks_behind_a_running_one_are_placed_from_there_on(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await begun(cluster, tmp_path / "first.ndjson", "m", SUMS)
        info = await by_ants(cluster, tmp_path / "second.ndjson", GREATEST)
        assert [one.id for one in info.shared] == [f"{uid_of(cluster, 'first')}.b0"]
        assert [one.id for one in info.operators] == [f"{uid_of(cluster, 'second')}.o1"]
        assert info.operators[0].node in ("m", "d")
        await finished(cluster, "first")
        await finished(cluster, "second")
        assert sum(values(tmp_path / "first.ndjson", "x")) == sum(range(0, ROWS, 3))
        assert max(values(tmp_path / "second.ndjson", "x")) == ROWS - 3

    in_plane(tmp_path, test)

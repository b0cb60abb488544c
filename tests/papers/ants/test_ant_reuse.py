"""Scouts of a new query pass through running operators of others where that is cheaper than operators of its own."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.config.config import Config
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.model.servers import ServedFlow, ServerReport
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.papers.ants.algorithm.cell import Cell
from sbon_node.papers.ants.algorithm.chain import Chain, Running, Task
from sbon_node.papers.ants.network.walk import Walk
from sbon_node.papers.ants.network.wire import on_wire
from sbon_node.papers.ants.settings import AntSettings
from sbon_node.placement.model.queueing import Server, Service
from sbon_protocol.api.moves import MoveRequest
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.papers.ants import AntSite, ScoutAnt, ScoutReturn
from tests.nodes.clusters import ask, declare, in_cluster, in_warm_cluster, source_at, state_of, submitted, uid_of

PLACES = {"a": (0.0, 0.0), "m": (40.0, 0.0), "d": (80.0, 0.0), "g": (40.0, 60.0), "f": (0.0, 100.0)}
"""Milliseconds. Rows come from a and go to d; m is between them, g beside the way, and f far away."""
ANTS = AntSettings(explore_s=30.0, tell_s=2.0, routing_ants=8, scouting_ants=16)
CONFIGURED = msgspec.structs.replace(CONFIG, connectors=ConnectorSettings(linger_s=0.2), ants=ANTS)
ROWS = 600
THIRD = "SELECT id, v FROM numbers WHERE id % 3 = 0"
SUMS = "SELECT window(ts, '1 second').start AS w, sum(id) AS x FROM numbers WHERE id % 3 = 0 GROUP BY window(ts, '1 second')"
GREATEST = SUMS.replace("sum", "max")
DRAWN = pytest.mark.one_part_per_commit("queries beside a running operator", parts=5)


def apart_ms(one: str, other: str) -> float:
    return math.dist(PLACES[one], PLACES[other])


def in_plane(tmp_path: Path, test: Callable[[SimulatedCluster], Awaitable[None]], config: Config = CONFIGURED) -> None:
    coordinates = {node: Coordinate(vector=(2 * x, 2 * y, 0.0), height=0.0, error=0.1) for node, (x, y) in PLACES.items()}
    in_warm_cluster(tmp_path, coordinates, test, config=config, latency=lambda one, other: apart_ms(one, other) / 1000)


def keep_busy(cluster: SimulatedCluster, node: str, rows_s: float) -> None:
    """Let a node serve foreign rows that take 10 ms each."""
    room: Any = cluster.at(node).daemon.hosting.room
    flow = ServedFlow(rows_s=rows_s, row_ms=10.0, row_scv=1.0)
    room.measured = lambda load, query: ServerReport(flows=(flow,))


async def begun(cluster: SimulatedCluster, out: Path, at: str, sql: str = THIRD, rows: int = ROWS) -> None:
    """Run a query whose operators are all at one node."""
    await cluster.sleep(5.0)
    await declare(cluster, "a", source_at("a", rows=rows, rate=60.0))
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


def scouts(cluster: SimulatedCluster) -> int:
    """Return the scouts that d has sent."""
    return cluster.network.traffic("d").counts.get("scout-ant", 0)


def values(path: Path, column: str) -> list[int]:
    return sorted(json.loads(line)[column] for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("at", "fields", "passes"),
    [
        ("m", {}, True),
        ("g", {}, True),
        pytest.param("f", {}, False, marks=DRAWN),
        pytest.param("m", {"strategy": "auto", "adapt": "ants"}, True, marks=DRAWN),
        pytest.param("f", {"strategy": "auto", "adapt": "ants"}, False, marks=DRAWN),
        pytest.param("m", {"reuse": "never"}, False, marks=DRAWN),
        pytest.param("m", {"max_delay_ms": 5000.0}, False, marks=DRAWN),
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
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("first"))
        await finished(cluster, "second")
        assert values(tmp_path / "second.ndjson", "id") == list(range(0, ROWS, 3))

    in_plane(tmp_path, test)


def test_the_tasks_behind_a_running_one_are_placed_from_there_on(tmp_path: Path) -> None:
    """By the reports of the scouts that have passed through it: no others walk."""

    async def test(cluster: SimulatedCluster) -> None:
        await begun(cluster, tmp_path / "first.ndjson", "m", SUMS)
        before = scouts(cluster)
        info = await by_ants(cluster, tmp_path / "second.ndjson", GREATEST)
        assert [one.id for one in info.shared] == [f"{uid_of(cluster, 'first')}.b0"]
        assert [one.id for one in info.operators] == [f"{uid_of(cluster, 'second')}.o1"]
        assert info.operators[0].node in ("m", "d")
        assert scouts(cluster) - before == ANTS.scouting_ants
        await finished(cluster, "first")
        await finished(cluster, "second")
        assert sum(values(tmp_path / "first.ndjson", "x")) == sum(range(0, ROWS, 3))
        assert max(values(tmp_path / "second.ndjson", "x")) == ROWS - 3

    in_plane(tmp_path, test)


def test_two_equal_branches_pass_through_two_operators(tmp_path: Path) -> None:
    """One runs, so that the other branch has an operator of its own."""

    async def test(cluster: SimulatedCluster) -> None:
        await begun(cluster, tmp_path / "first.ndjson", "m")
        info = await by_ants(cluster, tmp_path / "twice.ndjson", f"{THIRD} UNION ALL {THIRD}", name="twice")
        assert (len(info.shared), len(info.operators)) == (1, 1)
        await finished(cluster, "twice")
        assert values(tmp_path / "twice.ndjson", "id") == sorted([*range(0, ROWS, 3)] * 2)

    in_plane(tmp_path, test)


BUSY_HOST = msgspec.structs.replace(CONFIGURED, ants=msgspec.structs.replace(ANTS, update_s=8.0, rest_s=16.0))


@pytest.mark.one_part_per_commit("queries whose ants move a shared operator", parts=3)
@pytest.mark.parametrize(("owner", "reader"), [("ants", "off"), ("off", "ants"), ("ants", "ants")])
def test_a_shared_operator_moves_by_the_ants_of_its_own_query_alone(tmp_path: Path, owner: str, reader: str) -> None:
    """Its host becomes busy: its query's ants move it, and the readers of the other query follow."""

    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(5.0)
        await declare(cluster, "a", source_at("a", rows=5 * ROWS, rate=100.0))
        await submitted(
            cluster, "a", tmp_path / "first.ndjson", name="first", sql=SUMS, consumer="d", strategy="ants", adapt=owner
        )
        (shared,) = (await by_ants(cluster, tmp_path / "second.ndjson", GREATEST, adapt=reader)).shared
        keep_busy(cluster, shared.node, 90.0)
        await cluster.sleep(22.0)
        info = await state_of(cluster, "a", "second")
        assert (info.shared[0].node != shared.node) == (owner == "ants")
        assert bool(info.operators[0].decisions) == (reader == "ants"), "ants have looked for a better place of its own operator"
        await finished(cluster, "first")
        await finished(cluster, "second")
        assert sum(values(tmp_path / "first.ndjson", "x")) == sum(range(0, 5 * ROWS, 3))
        assert max(values(tmp_path / "second.ndjson", "x")) == 5 * ROWS - 3

    in_plane(tmp_path, test, BUSY_HOST)


def test_ants_place_the_own_operators_of_a_query_from_where_shared_ones_are_now(tmp_path: Path) -> None:
    """The shared operator leaves m for g, by a user; rows have a shorter way from there if the other operator follows."""
    room = {node: msgspec.structs.replace(CONFIG.control, cores=0.01 if node in "ad" else 4.0) for node in "amdg"}
    configs = {node: msgspec.structs.replace(BUSY_HOST, control=control) for node, control in room.items()}

    async def test(cluster: SimulatedCluster) -> None:
        await begun(cluster, tmp_path / "first.ndjson", "m", SUMS, rows=5 * ROWS)
        info = await by_ants(cluster, tmp_path / "second.ndjson", GREATEST, adapt="ants")
        assert [one.node for one in (*info.shared, *info.operators)] == ["m", "m"]

        async def move() -> None:
            async for _ in cluster.at("a").daemon.adaptation.requested.move(
                "first", MoveRequest(operator=info.shared[0].id, to="g")
            ):
                pass

        await ask(cluster, "a", move())
        await cluster.sleep(30.0)
        info = await state_of(cluster, "a", "second")
        assert [one.node for one in (*info.shared, *info.operators)] == ["g", "g"]
        await finished(cluster, "second")
        assert max(values(tmp_path / "second.ndjson", "x")) == 5 * ROWS - 3

    in_cluster(tmp_path, "amdg", test, configs=configs, latency=lambda one, other: apart_ms(one, other) / 1000)


# -- steps of a scout at a node ---------------------------------------------------------------------------------------


def walk_at(node: str) -> Walk:
    neighbours = {other: apart_ms(node, other) for other in PLACES if other != node}
    cell = Cell(node, neighbours, lambda *_: dict.fromkeys(neighbours, 1.0), Server(), Needs(cores=4.0, memory_mb=9e3))
    return Walk(cell, ANTS, random.Random(1), apart_ms)


def scout(number: int, *running: Running, path: tuple[str, ...] = (), sites: tuple[AntSite, ...] = ()) -> ScoutAnt:
    tasks = tuple(Task(operator=f"o{i}", service=Service(mean_ms=5.0), needs=Needs(cores=0.1)) for i in range(3))
    chain = on_wire(Chain(id="q", source="a", destination="d", tasks=tasks, rate_s=20.0, running=running))
    return ScoutAnt(1, number, path[-1] if path else "a", chain, 1, 0.9, None, 0.0, 0, path, sites)


def test_every_second_scout_goes_from_its_source_to_a_running_task_and_places_nothing_before() -> None:
    walk = walk_at("a")
    sent = walk.step(scout(1, Running(0, "f")), "a", 0.0)
    assert sent is not None
    assert isinstance(sent.ant, ScoutAnt)
    assert (sent.to, sent.ant.path, sent.ant.sites) == ("f", ("a",), ())
    even = walk.step(scout(2, Running(0, "f")), "a", 0.0)
    assert even is not None
    assert isinstance(even.ant, ScoutAnt)
    assert [(site.node, site.first, site.last) for site in even.ant.sites] == [("a", 0, 1)]
    back = walk.step(ScoutReturn(1, 1, "f", sent.ant.chain, (AntSite("f", 0, 3, 1.0, 0.0),)), "f", 0.1)
    assert back is not None
    assert back.to == "a"


def test_a_scout_drops_what_it_has_placed_where_a_running_task_stands_for_it() -> None:
    placed = (AntSite("a", 0, 1, 5.0, 0.0),)
    sent = walk_at("m").step(scout(0, Running(1, "m", 7.0), path=("a",), sites=placed), "a", 0.0)
    assert sent is not None
    assert isinstance(sent.ant, ScoutAnt)
    (site,) = sent.ant.sites
    assert (site.node, site.first, site.last) == ("m", 0, 3), "the third task is its own"
    assert site.own_ms == pytest.approx(7.0 + 5.0, abs=1.0)
    assert site.state is not None
    sent = walk_at("g").step(scout(0, Running(1, "m"), path=("a",), sites=placed), "a", 0.0)
    assert sent is not None
    assert isinstance(sent.ant, ScoutAnt)
    assert sent.ant.sites[:1] == placed
    assert (sent.ant.sites[1].node, sent.ant.sites[1].first) == ("g", 1)

"""NES's strategies on a small hierarchy by hand, and against all placements they could find."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from sbon_node.papers.nes.hierarchy import bottom_up, top_down
from sbon_node.papers.nes.ifcop import ifcop
from sbon_node.placement.model.objective import network_usage
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.placement import Placement
from tests.placement.conftest import Plane

POINTS = {
    "cloud": (50.0, 40.0),
    "fog1": (20.0, 20.0),
    "fog2": (80.0, 20.0),
    "e1": (10.0, 0.0),
    "e2": (30.0, 0.0),
    "e3": (80.0, 0.0),
    "spare": (50.0, 41.0),
}
PARENTS = {"fog1": "cloud", "fog2": "cloud", "e1": "fog1", "e2": "fog1", "e3": "fog2", "spare": "cloud"}
LINKS = [("s1", "f1"), ("s2", "f2"), ("s3", "f3"), ("f1", "join"), ("f2", "join"), ("join", "last"), ("f3", "last")]
RATES = [9000.0, 8000.0, 7000.0, 3000.0, 2500.0, 2000.0, 3500.0]
PROBLEM = PlacementProblem(
    pinned={"s1": "e1", "s2": "e2", "s3": "e3", "sink": "cloud"},
    operators=tuple(Operator(id=name, needs=Needs(cores=1.0)) for name in ("f1", "f2", "join", "f3", "last")),
    edges=(*(Edge(*link, rate) for link, rate in zip(LINKS, RATES, strict=True)), Edge("last", "sink", 500.0)),
)
SETTINGS = PlacementSettings()
ROOMY = dict.fromkeys(POINTS, 9.0)


def world(**capacity: float) -> Plane:
    view = Plane(dict(POINTS), capacity=ROOMY | capacity)
    view.parents = PARENTS
    return view


@pytest.mark.parametrize(
    ("capacity", "hosts"),
    [
        ({}, {"f1": "e1", "f2": "e2", "join": "fog1", "f3": "e3", "last": "cloud"}),
        ({"e1": 0.0}, {"f1": "fog1", "f2": "e2", "join": "fog1", "f3": "e3", "last": "cloud"}),
        ({"e1": 0.0, "fog1": 1.0}, {"f1": "fog1", "f2": "e2", "join": "cloud", "f3": "e3", "last": "cloud"}),
        ({"fog1": 0.0, "cloud": 0.0}, {"f1": "e1", "f2": "e2", "join": "e1", "f3": "e3", "last": "spare"}),
    ],
)
async def test_bottom_up_stays_with_the_inputs_and_goes_up_where_there_is_no_room(capacity: Any, hosts: dict[str, str]) -> None:
    placed = await bottom_up(PROBLEM, world(**capacity), SETTINGS)
    assert placed.hosts() == hosts


@pytest.mark.parametrize(
    ("capacity", "hosts"),
    [
        ({}, dict.fromkeys(("f1", "f2", "join", "f3", "last"), "cloud")),
        ({"cloud": 2.0}, {"last": "cloud", "f3": "cloud", "join": "fog1", "f2": "fog1", "f1": "fog1"}),
        ({"cloud": 1.0, "fog1": 2.0}, {"last": "cloud", "f3": "fog2", "join": "fog1", "f2": "fog1", "f1": "e1"}),
        ({"cloud": 0.0, "fog1": 0.0, "fog2": 0.0}, dict.fromkeys(("f1", "f2", "join", "f3", "last"), "e1")),
    ],
)
async def test_top_down_fills_from_the_sink(capacity: Any, hosts: dict[str, str]) -> None:
    placed = await top_down(PROBLEM, world(**capacity), SETTINGS)
    assert [one.operator for one in placed.assignments] == [operator.id for operator in PROBLEM.operators]
    assert placed.hosts() == hosts


def within(capacity: dict[str, float], hosts: dict[str, str]) -> bool:
    return all(list(hosts.values()).count(node) <= capacity[node] for node in hosts.values())


def reachable(view: Plane) -> dict[float, dict[str, str]]:
    """All placements IFCOP could draw, by usage: those of each source's chain move only towards the sink."""
    latencies = {"s1": ["e1", "fog1", "cloud"], "s2": ["e2", "fog1", "cloud"], "s3": ["e3", "fog2", "cloud"]}
    found = {}
    for f1, join, last in itertools.combinations_with_replacement(latencies["s1"], 3):
        for f2, f3 in itertools.product(latencies["s2"], latencies["s3"]):
            hosts = {"f1": f1, "f2": f2, "join": join, "f3": f3, "last": last}
            if within(view.capacity, hosts):
                found[network_usage(PROBLEM, hosts, view.latency_ms)] = hosts
    return found


@pytest.mark.parametrize(
    "capacity", [{}, {"fog1": 0.0, "e1": 1.0}, {"e1": 0.0, "e2": 0.0, "fog1": 2.0}, {"cloud": 0.0, "fog1": 2.0}]
)
async def test_ifcop_finds_the_best_of_what_it_can_draw(capacity: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbon_node.papers.nes.ifcop.AT_ONCE", 10)
    view = world(**capacity)
    placed = await ifcop(PROBLEM, view, PlacementSettings(iterations=3000))
    best = min(reachable(view))
    assert placed.usage == pytest.approx(best)
    assert within(view.capacity, placed.hosts())


async def drawn(iterations: int, seeds: int, **capacity: float) -> list[Placement]:
    found = []
    for seed in range(seeds):
        view = world(**capacity)
        view.rng.seed(seed)
        found.append(await ifcop(PROBLEM, view, PlacementSettings(iterations=iterations)))
    return found


async def test_a_coin_decides_whether_an_operator_stays() -> None:
    single = await drawn(1, 60)
    assert sum(one.hosts()["f1"] == "e1" for one in single) / 60 == pytest.approx(0.5, abs=0.15)


@pytest.mark.one_part_per_commit("random placements", parts=6)
async def test_a_single_draw_is_spread_as_the_coins_fall() -> None:
    """In 400 draws without choice, half keep the first operator and a quarter move it to the sink; more choice is better."""
    single = await drawn(1, 400)
    stayed = [sum(one.hosts()["f1"] == node for one in single) / 400 for node in ("e1", "fog1", "cloud")]
    assert stayed == pytest.approx([0.5, 0.25, 0.25], abs=0.08)
    means = [sum(one.usage for one in await drawn(many, 20)) / 20 for many in (1, 10, 100)]
    assert means == sorted(means, reverse=True)
    assert means[2] < 0.9 * means[0]


async def test_an_overloaded_draw_moves_towards_the_sink() -> None:
    capacity = dict.fromkeys(POINTS, 1.0) | {"e1": 0.0}
    for placed in await drawn(1, 40, **capacity):
        assert within(capacity, placed.hosts())


@pytest.mark.parametrize("strategy", [bottom_up, top_down, ifcop])
async def test_a_stream_with_two_readers_and_a_source_without_a_filter(strategy: Any) -> None:
    """No tree: f's rows go two ways that meet again."""
    links = [
        ("s1", "f", 9.0),
        ("f", "g", 4.0),
        ("f", "h", 4.0),
        ("g", "k", 2.0),
        ("h", "k", 2.0),
        ("s2", "k", 3.0),
        ("k", "sink", 1.0),
    ]
    problem = msgspec.structs.replace(
        PROBLEM,
        pinned={"s1": "e1", "s2": "e3", "sink": "cloud"},
        operators=tuple(Operator(id=name, needs=Needs(cores=1.0)) for name in "fghk"),
        edges=tuple(Edge(*link) for link in links),
    )
    for capacity in (9.0, 1.0):
        view = world(**dict.fromkeys(POINTS, capacity))
        hosts = (await strategy(problem, view, SETTINGS)).hosts()
        assert sorted(hosts) == list("fghk")
        assert within(view.capacity, hosts)

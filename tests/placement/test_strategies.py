"""The rivals of SBON's table 1, with the same questions about room."""

from __future__ import annotations

from typing import Any

import pytest

from sbon_node.papers.table import STRATEGIES, ants, nes, opb, sand
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import OWN, Strategies
from sbon_node.placement.strategies.sbon.baselines import producers_of
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.strategies import DEFAULT_STRATEGY, STRATEGY_NAMES
from sbon_protocol.errors import SbonError

PAPERS = (ants.STRATEGIES, nes.STRATEGIES, opb.STRATEGIES, sand.STRATEGIES)
SETTINGS = PlacementSettings()
POINTS = {"p1": (0.0, 0.0), "p2": (0.0, 50.0), "c": (100.0, 0.0), "m": (90.0, 0.0), "n": (5.0, 0.0)}
PROBLEM = PlacementProblem(
    pinned={"s1": "p1", "s2": "p2", "sink": "c"},
    operators=(Operator(id="f1", needs=Needs(cores=0.6)), Operator(id="join", needs=Needs(cores=0.6))),
    edges=(Edge("s1", "f1", 4000.0), Edge("f1", "join", 400.0), Edge("s2", "join", 400.0), Edge("join", "sink", 100.0)),
)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
async def test_every_operator_is_placed_where_there_is_room(name: str, plane: Any) -> None:
    view = plane(POINTS)
    placed = await STRATEGIES[name](PROBLEM, view, SETTINGS)
    assert placed.strategy == name
    assert [one.operator for one in placed.assignments] == ["f1", "join"]
    assert len(set(placed.hosts().values())) == 2, "two operators of 0.6 cores do not fit in one"
    assert placed.probes == view.probes > 0
    assert placed.usage > 0
    assert all(one.reason for one in placed.assignments)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
async def test_no_room_anywhere_is_said_with_every_reason(name: str, plane: Any) -> None:
    with pytest.raises(SbonError) as refused:
        await STRATEGIES[name](PROBLEM, plane(POINTS, capacity=dict.fromkeys(POINTS, 0.1)), SETTINGS)
    assert refused.value.code == "no-capacity"
    assert sorted(refused.value.details) == [f"{node}: 0.1 cores free, 0.6 needed" for node in sorted(POINTS)]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
async def test_no_room_at_the_only_node_is_said(name: str, plane: Any) -> None:
    operator, edges = Operator(id="f", needs=Needs(cores=0.6)), (Edge("s", "f", 4e3), Edge("f", "sink", 1e3))
    problem = PlacementProblem(pinned={"s": "a", "sink": "a"}, operators=(operator,), edges=edges)
    with pytest.raises(SbonError) as refused:
        await STRATEGIES[name](problem, plane({"a": (0.0, 0.0)}, capacity={"a": 0.1}), SETTINGS)
    assert (refused.value.code, refused.value.details) == ("no-capacity", ("a: 0.1 cores free, 0.6 needed",))


@pytest.mark.parametrize("name", sorted(STRATEGIES))
async def test_a_query_without_operators_is_placed_as_it_is(name: str, plane: Any) -> None:
    problem = PlacementProblem(pinned={"s1": "p1", "sink": "c"}, operators=(), edges=(Edge("s1", "sink", 4000.0),))
    placed = await STRATEGIES[name](problem, plane(POINTS), SETTINGS)
    assert placed.hosts() == {}
    assert (placed.usage, placed.delay_ms) == (pytest.approx(4000 * 0.1), pytest.approx(100))


async def test_consumer_falls_back_to_the_nearest(plane: Any) -> None:
    roomy = plane(POINTS, capacity={"c": 2.0})
    assert (await STRATEGIES["consumer"](PROBLEM, roomy, SETTINGS)).hosts() == {"f1": "c", "join": "c"}
    placed = await STRATEGIES["consumer"](PROBLEM, plane(POINTS, capacity={"c": 0.0}), SETTINGS)
    assert placed.hosts() == {"f1": "m", "join": "n"}
    assert "1 before it had no capacity" in placed.assignments[0].reason


async def test_producer_picks_among_its_own_producers(plane: Any) -> None:
    assert producers_of(PROBLEM, "f1") == ["p1"]
    assert producers_of(PROBLEM, "join") == ["p1", "p2"]
    picked = set()
    for seed in range(20):
        view = plane(POINTS, capacity={"p1": 2.0, "p2": 2.0})
        view.rng.seed(seed)
        hosts = (await STRATEGIES["producer"](PROBLEM, view, SETTINGS)).hosts()
        assert hosts["f1"] == "p1"
        picked.add(hosts["join"])
    assert picked == {"p1", "p2"}


async def test_ip_multicast_goes_where_the_routes_meet(plane: Any) -> None:
    view = plane(POINTS, capacity={"m": 1.0, "n": 2.0})
    view.routes = {("p1", "c"): ["p1", "n", "m", "c"], ("p2", "c"): ["p2", "n", "m", "c"]}
    placed = await STRATEGIES["ip-multicast"](PROBLEM, view, SETTINGS)
    assert placed.hosts() == {"f1": "p1", "join": "n"}
    crowded = plane(POINTS, capacity={"n": 0.0})
    crowded.routes = view.routes
    assert (await STRATEGIES["ip-multicast"](PROBLEM, crowded, SETTINGS)).hosts() == {"f1": "p1", "join": "m"}
    crowded.routes = None
    with pytest.raises(SbonError, match="which routers packets pass is not known"):
        await STRATEGIES["ip-multicast"](PROBLEM, crowded, SETTINGS)


async def test_random_reaches_every_node(plane: Any) -> None:
    picked = set()
    for seed in range(60):
        view = plane(POINTS, capacity={"n": 0.0})
        view.rng.seed(seed)
        picked |= set((await STRATEGIES["random"](PROBLEM, view, SETTINGS)).hosts().values())
    assert picked == set(POINTS) - {"n"}


def test_those_that_are_named_are_those_there_are() -> None:
    assert list(STRATEGIES) == [*STRATEGY_NAMES]


def test_a_table_has_each_known_name_once() -> None:
    for tables in ((OWN,), (*PAPERS, OWN, OWN), (*PAPERS, OWN, {"mine": OWN["hybrid"]})):
        with pytest.raises(ValueError, match="STRATEGY_NAMES"):
            Strategies(*tables)
    assert Strategies(*PAPERS, OWN)["hybrid"] is STRATEGIES["hybrid"]


def test_an_unknown_strategy_lists_the_known() -> None:
    assert STRATEGIES.named(DEFAULT_STRATEGY) is STRATEGIES["hybrid"]
    with pytest.raises(SbonError) as refused:
        STRATEGIES.named("relaxations")
    assert refused.value.code == "unknown-strategy"
    assert refused.value.hint == "did you mean relaxation? there are auto, " + ", ".join(STRATEGIES)

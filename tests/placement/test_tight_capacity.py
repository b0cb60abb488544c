"""Where nodes have room for an operator each, every strategy spreads a query, or says why not, and comes to an end."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.network_view import Answer, NetworkView
from sbon_node.placement.model.objective import OBJECTIVES
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.selection.mapping import finish
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.placement import Assignment, Placement
from sbon_protocol.api.strategies import AUTO, Bounds
from sbon_protocol.errors import SbonError
from tests.placement.placing import place

SETTINGS = PlacementSettings(iterations=200, routing_ants=50, scouting_ants=20)
MOST_QUESTIONS = 3000
NEEDS = Needs(cores=0.25)
DIAMOND = PlacementProblem(
    pinned={"p": "n0", "q": "n2", "sink": "n1"},
    operators=tuple(Operator(id=name, needs=NEEDS) for name in "abcd"),
    edges=tuple(
        Edge(*link)
        for link in [
            *(("p", "a", 100.0), ("q", "a", 10.0), ("a", "b", 40.0), ("a", "c", 40.0), ("a", "d", 40.0)),
            *(("b", "d", 20.0), ("c", "d", 30.0), ("d", "sink", 10.0)),
        ]
    ),
)
"""An operator with three readers, two ways that part and meet again: no tree."""


FASTEST_MS: dict[tuple[object, ...], float] = {}
"""Delay of the exact optimum, which the tests of several strategies compare with, by points and capacities."""


async def fastest_ms(points: dict[str, tuple[float, float]], capacity: dict[str, float], plane: Any) -> float:
    key = (*points.items(), *capacity.items())
    if key not in FASTEST_MS:
        problem = replace(DIAMOND, objective=OBJECTIVES["delay"])
        FASTEST_MS[key] = (await place(problem, plane(points, capacity=capacity), SETTINGS, "optimal")).delay_ms
    return FASTEST_MS[key]


def scattered(many: int, seed: int) -> dict[str, tuple[float, float]]:
    rng = random.Random(seed)
    return {f"n{i}": (rng.uniform(0.0, 100.0), rng.uniform(0.0, 100.0)) for i in range(many)}


@pytest.mark.parametrize("name", [AUTO, *sorted(STRATEGIES)])
@pytest.mark.parametrize("nodes", [4, 8])
async def test_an_operator_on_each_node_is_found(name: str, nodes: int, plane: Any) -> None:
    points = scattered(nodes, nodes)
    placed = await place(DIAMOND, plane(points, capacity=dict.fromkeys(points, 0.25)), SETTINGS, name)
    assert len(set(placed.hosts().values())) == 4


@pytest.mark.parametrize("name", ["edge", "edge+", "in-network", "in-network+"])
async def test_operators_do_not_follow_each_other_over_all_nodes(name: str, plane: Any) -> None:
    points = scattered(60, 1)
    view = plane(points, capacity=dict.fromkeys(points, 0.25))
    placed = await place(DIAMOND, view, SETTINGS, name)
    assert placed.usage < 13.5
    assert placed.probes < 100


@pytest.mark.parametrize("name", [AUTO, *sorted(STRATEGIES)])
async def test_room_that_is_too_far_is_no_placement(name: str, plane: Any) -> None:
    """Three operators, two nodes near enough with room for one each, and one that is too far; who asks on and on is stopped."""

    class Impatient(plane):  # type: ignore[misc]
        async def ask(self, node: str, needs: Needs) -> Answer:
            assert self.probes < MOST_QUESTIONS, "it asks for ever"
            answer: Answer = await super().ask(node, needs)
            return answer

    points = {"near": (0.0, 0.0), "next": (10.0, 0.0), "far": (100.0, 0.0)}
    problem = PlacementProblem(
        pinned={"p": "near", "sink": "next"},
        operators=tuple(Operator(id=one, needs=NEEDS) for one in "abc"),
        edges=(Edge("p", "a", 100.0), Edge("a", "b", 50.0), Edge("b", "c", 20.0), Edge("c", "sink", 10.0)),
        bounds=Bounds(max_delay_ms=30.0),
    )
    with pytest.raises(SbonError) as refused:
        await place(problem, Impatient(points, capacity=dict.fromkeys(points, 0.25)), SETTINGS, name)
    assert (refused.value.code, refused.value.where) == ("delay-bound", "max_delay_ms")
    placed = await place(
        replace(problem, bounds=Bounds()), Impatient(points, capacity=dict.fromkeys(points, 0.25)), SETTINGS, name
    )
    assert set(placed.hosts().values()) == set(points)


@pytest.mark.parametrize("name", [AUTO, *sorted(STRATEGIES)])
async def test_without_hosts_there_is_no_capacity(name: str, plane: Any) -> None:
    class Idle(plane):  # type: ignore[misc]
        def nodes(self) -> list[str]:
            return []

        def nearest(self, *_: Any, **__: Any) -> list[tuple[str, float]]:
            return []

    with pytest.raises(SbonError) as refused:
        await place(DIAMOND, Idle(scattered(4, 1)), SETTINGS, name)
    assert refused.value.code == "no-capacity"


@pytest.mark.parametrize("name", [AUTO, *sorted(STRATEGIES)])
async def test_a_query_without_operators_can_be_too_slow(name: str, plane: Any) -> None:
    bare = PlacementProblem(
        pinned={"s": "n0", "sink": "n1"}, operators=(), edges=(Edge("s", "sink", 100.0),), bounds=Bounds(max_delay_ms=0.1)
    )
    with pytest.raises(SbonError) as refused:
        await place(bare, plane(scattered(4, 1)), SETTINGS, name)
    assert (refused.value.code, refused.value.where) == ("delay-bound", "max_delay_ms")


@pytest.mark.one_part_per_commit("queries whose hosts are exchanged", parts=8)
@pytest.mark.parametrize("seeds", [range(6), range(6, 12)])
async def test_hosts_are_exchanged_where_that_alone_is_in_time(seeds: range, plane: Any) -> None:
    """HYBRID finds most of what the exact optimum finds, although no operator can move alone."""
    found = 0
    for seed in seeds:
        points = scattered(4, seed)
        capacity = dict.fromkeys(points, 0.25)
        best_ms = await fastest_ms(points, capacity, plane)
        tight = replace(DIAMOND, bounds=Bounds(max_delay_ms=best_ms * 1.001))
        with suppress(SbonError):
            placed = await place(tight, plane(points, capacity=capacity), SETTINGS, "hybrid")
            assert placed.delay_ms <= best_ms * 1.001
            found += 1
    assert found >= len(seeds) - 1


@pytest.mark.one_part_per_commit("random placements", parts=6)
@pytest.mark.parametrize("name", ["edge", "edge+", "in-network", "in-network+", "centralized", "local-search"])
async def test_placing_step_by_step_refuses_no_feasible_query(name: str, plane: Any) -> None:
    """Four operators, ten nodes of which some have room for one, and no more time than the fastest placement takes and a half."""
    found = possible = 0
    for seed in range(12):
        points, rng = scattered(10, seed), random.Random(seed)
        capacity = {node: rng.choice([0.0, 0.25, 0.25]) for node in points}
        with suppress(SbonError):
            best_ms = await fastest_ms(points, capacity, plane)
            possible += 1
            tight = replace(DIAMOND, bounds=Bounds(max_delay_ms=1.5 * best_ms))
            placed = await place(tight, plane(points, capacity=capacity), SETTINGS, name)
            assert placed.delay_ms <= 1.5 * best_ms
            assert all(capacity[node] == 0.25 for node in placed.hosts().values())
            assert len(set(placed.hosts().values())) == 4
            found += 1
    assert possible >= 10
    assert found >= possible - 1


async def test_a_host_out_of_reach_is_no_lack_of_throughput(plane: Any) -> None:
    """The reservation must find another node."""

    class Gone(plane):  # type: ignore[misc]
        async def ask(self, node: str, needs: Needs) -> Answer:
            return Answer(accepted=False, reason="no answer")

    async def careless(given: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
        everywhere = [Assignment(operator=one.id, node="n3", reason="why not") for one in given.operators]
        return finish("random", given, everywhere, view, view.probes)

    placed = await place(replace(DIAMOND, bounds=Bounds(min_throughput_bytes_s=1e3)), Gone(scattered(4, 1)), SETTINGS, careless)
    assert set(placed.hosts().values()) == {"n3"}

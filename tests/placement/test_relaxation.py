"""Virtual placement against the closed form, and the mapping of virtual places to nodes with room."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from sbon_node.placement.model.objective import network_usage
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.sbon.relaxation import relaxation, virtual_coordinate
from sbon_protocol.api.operators import Needs
from sbon_protocol.errors import SbonError

SETTINGS = PlacementSettings()
FINE = PlacementSettings(force_threshold=1e-9, max_iterations=100_000)


def star(rates: dict[str, float]) -> list[Edge]:
    return [Edge(name, "op", rate) for name, rate in rates.items() if name != "sink"] + [Edge("op", "sink", rates["sink"])]


@pytest.mark.parametrize("delta", [0.1, 0.5, 1.0, 1.9])
@pytest.mark.parametrize("unit", [1.0, 1e3, 1e9])
@pytest.mark.parametrize("dimensions", [1, 2, 3, 5])
def test_one_operator_rests_at_the_weighted_mean(delta: float, unit: float, dimensions: int) -> None:
    rng = random.Random(dimensions)
    pinned = {name: tuple(rng.uniform(-200, 200) for _ in range(dimensions)) for name in ("a", "b", "c", "sink")}
    rates = {name: rng.uniform(1e3, 1e5) * unit for name in pinned}
    settings = PlacementSettings(delta=delta, force_threshold=1e-6 * unit, max_iterations=100_000)
    rest = virtual_coordinate(["op"], star(rates), pinned, rng, settings)["op"]
    mean = sum(np.array(pinned[name]) * rate for name, rate in rates.items()) / sum(rates.values())
    assert rest == pytest.approx(mean, abs=1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_a_tree_rests_where_all_forces_vanish(seed: int) -> None:
    """The minimum of sum DR x Lat^2 solves a linear system (the graph's Laplacian)."""
    rng = random.Random(seed)
    pinned = {name: (rng.uniform(-100, 100), rng.uniform(-100, 100)) for name in ("a", "b", "c", "d", "sink")}
    links = [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"), ("x", "z"), ("y", "z"), ("z", "sink")]
    edges = [Edge(source, target, rng.uniform(1e3, 1e6)) for source, target in links]
    rests = virtual_coordinate(["x", "y", "z"], edges, pinned, rng, FINE)
    free = ["x", "y", "z"]
    matrix, right = np.zeros((3, 3)), np.zeros((3, 2))
    for edge in edges:
        for one, other in ((edge.source, edge.target), (edge.target, edge.source)):
            if one in free:
                matrix[free.index(one), free.index(one)] += edge.rate_bytes_s
                if other in free:
                    matrix[free.index(one), free.index(other)] -= edge.rate_bytes_s
                else:
                    right[free.index(one)] += np.array(pinned[other]) * edge.rate_bytes_s
    exact = np.linalg.solve(matrix, right)
    for name, place in zip(free, exact, strict=True):
        assert rests[name] == pytest.approx(place, abs=1e-3)


def test_rounds_are_bounded_and_the_threshold_stops_early() -> None:
    pinned = {"a": (0.0, 0.0), "sink": (100.0, 0.0)}
    edges = [Edge("a", "op", 1e3), Edge("op", "sink", 1e3)]
    one_round = PlacementSettings(delta=0.5, max_iterations=1, origin_ms=0.001)
    assert virtual_coordinate(["op"], edges, pinned, random.Random(1), one_round)["op"][0] == pytest.approx(25.0, abs=0.01)
    loose = PlacementSettings(delta=0.5, force_threshold=60.0, origin_ms=0.001)
    assert virtual_coordinate(["op"], edges, pinned, random.Random(1), loose)["op"][0] == pytest.approx(37.5, abs=0.01)


def test_links_without_a_rate_still_pull() -> None:
    pinned = {"a": (0.0,), "sink": (10.0,)}
    rest = virtual_coordinate(["op"], [Edge("a", "op", 0.0), Edge("op", "sink", 0.0)], pinned, random.Random(1), FINE)["op"]
    assert rest[0] == pytest.approx(5.0, abs=1e-3)


def problem(cores: float = 0.5, refused: frozenset[str] = frozenset(), operators: int = 1) -> PlacementProblem:
    """Producers at ``p`` with rate 3, consumer at ``c`` with rate 1: the rest is a quarter of the way to ``c``."""
    names = [f"op{i}" for i in range(operators)]
    edges = [Edge("source", name, 3000.0) for name in names] + [Edge(name, "consumer", 1000.0) for name in names]
    return PlacementProblem(
        pinned={"source": "p", "consumer": "c"},
        operators=tuple(Operator(id=name, needs=Needs(cores=cores), refused=refused) for name in names),
        edges=tuple(edges),
    )


LINE = {"p": (0.0, 0.0), "c": (100.0, 0.0), "near": (25.0, 1.0), "next": (25.0, 6.0), "far": (60.0, 40.0)}


async def test_the_nearest_node_to_the_rest_is_taken(plane: Any) -> None:
    view = plane(LINE)
    placed = await relaxation(problem(), view, SETTINGS)
    chosen = placed.assignments[0]
    assert chosen.node == "near"
    assert chosen.virtual == pytest.approx((25.0, 0.0), abs=0.1)
    assert [one.node for one in chosen.candidates] == ["near", "next", "p", "far", "c"]
    assert placed.probes == 5
    assert placed.usage == pytest.approx(network_usage(problem(), {"op0": "near"}, view.latency_ms))


async def test_usage_is_rate_times_latency_in_bytes_in_flight(plane: Any) -> None:
    view = plane({"p": (0.0, 0.0), "c": (100.0, 0.0), "m": (40.0, 0.0)})
    assert network_usage(problem(), {"op0": "m"}, view.latency_ms) == pytest.approx(3000 * 0.040 + 1000 * 0.060)
    assert network_usage(problem(), {"op0": "c"}, view.latency_ms) == pytest.approx(3000 * 0.100)


async def test_load_and_room_push_an_operator_on(plane: Any) -> None:
    loaded = plane(LINE, load={"near": 30.0})
    assert (await relaxation(problem(), loaded, SETTINGS)).hosts() == {"op0": "next"}
    full = plane(LINE, capacity={"near": 0.1, "next": 0.2})
    placed = await relaxation(problem(), full, SETTINGS)
    assert placed.hosts() == {"op0": "p"}
    assert [(one.node, one.accepted, one.reason) for one in placed.assignments[0].candidates[:3]] == [
        ("near", False, "0.1 cores free, 0.5 needed"),
        ("next", False, "0.2 cores free, 0.5 needed"),
        ("p", True, ""),
    ]
    assert "number 3 of 5" in placed.assignments[0].reason


async def test_k_is_doubled_until_someone_has_room(plane: Any) -> None:
    points = {"p": (0.0, 0.0), "c": (100.0, 0.0)} | {f"n{i:02}": (25.0, float(i)) for i in range(30)}
    capacity = dict.fromkeys(points, 0.0) | {"n13": 1.0}
    view = plane(points, capacity=capacity)
    placed = await relaxation(problem(), view, PlacementSettings(k=4))
    assert placed.hosts() == {"op0": "n13"}
    assert [len(nodes) for nodes in view.asked] == [4, 4, 8]
    assert placed.probes == 16
    assert len(placed.assignments[0].candidates) == 16


async def test_no_room_names_every_node_and_why(plane: Any) -> None:
    view = plane({**LINE, "new": None}, capacity=dict.fromkeys([*LINE, "new"], 0.0))
    with pytest.raises(SbonError) as refused:
        await relaxation(problem(refused=frozenset({"near"})), view, PlacementSettings(k=2))
    error = refused.value
    assert (error.code, error.where) == ("no-capacity", "op0")
    assert error.message == "no node has capacity for operator op0 (0.5 cores, 80 MB, 0 bytes/s); 6 asked"
    assert error.details == (
        "next: 0 cores free, 0.5 needed",
        "p: 0 cores free, 0.5 needed",
        "far: 0 cores free, 0.5 needed",
        "c: 0 cores free, 0.5 needed",
        "new: 0 cores free, 0.5 needed",
        "near: refused to reserve",
    )


async def test_operators_of_one_query_share_a_nodes_room(plane: Any) -> None:
    view = plane(LINE, capacity={"near": 1.0})
    placed = await relaxation(problem(cores=0.4, operators=3), view, SETTINGS)
    assert placed.hosts() == {"op0": "near", "op1": "near", "op2": "next"}


async def test_a_node_that_refused_to_reserve_is_left_out(plane: Any) -> None:
    placed = await relaxation(problem(refused=frozenset({"near", "next"})), plane(LINE), SETTINGS)
    assert placed.hosts() == {"op0": "p"}


async def test_unknown_places_exert_no_force(plane: Any) -> None:
    placed = await relaxation(problem(), plane({**LINE, "c": None}), SETTINGS)
    assert placed.hosts() == {"op0": "p"}
    with pytest.raises(SbonError) as refused:
        await relaxation(problem(), plane({**LINE, "c": None, "p": None}), SETTINGS)
    assert refused.value.code == "no-coordinate"


async def test_the_same_seed_gives_the_same_placement(plane: Any) -> None:
    first, second = [await relaxation(problem(operators=4), plane(LINE), SETTINGS) for _ in range(2)]
    assert first == second

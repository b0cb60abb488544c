"""Local search: what moves find, against the exact optimum; and what it does where nodes are full or delay is bounded."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sbon_node.papers.nes.local_search import STARTS, local_search
from sbon_node.placement.model.instance import RESOURCES, Instance
from sbon_node.placement.model.objective import objective_named
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.moves import Moves
from sbon_node.placement.strategies.sbon.optimal import optimal, optimum
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.strategies import Bounds, Objective
from sbon_protocol.errors import SbonError
from tests.placement.conftest import Plane

SETTINGS = PlacementSettings(iterations=50, neighbours=3)
TREE = [
    *(("s0", "a"), ("s1", "b"), ("s2", "c"), ("s3", "d"), ("a", "e"), ("b", "e"), ("c", "f"), ("d", "f")),
    *(("e", "g"), ("f", "g"), ("g", "sink")),
]
DIAMOND = [("s0", "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d"), ("s1", "d"), ("d", "sink")]


def made(links: list[tuple[str, str]], seed: int, objective: Objective, bounds: Bounds) -> PlacementProblem:
    rng = random.Random(seed)
    vertices = sorted({vertex for link in links for vertex in link})
    names = [vertex for vertex in vertices if len(vertex) == 1]
    ends = rng.sample([f"n{i:02}" for i in range(25)], len(vertices) - len(names))
    return PlacementProblem(
        pinned=dict(zip([vertex for vertex in vertices if vertex not in names], ends, strict=True)),
        operators=tuple(Operator(id=name, needs=Needs(cores=rng.choice([0.3, 0.4]))) for name in names),
        edges=tuple(Edge(source, target, rng.uniform(500, 5000)) for source, target in links),
        objective=objective,
        bounds=bounds,
    )


def world(seed: int) -> Plane:
    """Some of 25 nodes are full, and others have room for one or two of these operators."""
    rng = random.Random(seed)
    names = [f"n{i:02}" for i in range(25)]
    return Plane({n: (rng.uniform(0, 99), rng.uniform(0, 99)) for n in names}, capacity={n: rng.uniform(0, 0.9) for n in names})


@pytest.mark.one_part_per_commit("random placements", parts=6)
@pytest.mark.parametrize("links", [TREE, DIAMOND], ids=["tree", "diamond"])
@pytest.mark.parametrize("objective", ["usage", "bandwidth", "usage=1,bandwidth=0.02"])
async def test_it_beats_what_it_starts_from_and_is_near_the_optimum_with_room(
    links: list[tuple[str, str]], objective: str
) -> None:
    ratios, started = [], []
    for seed in range(5):
        problem = made(links, seed, objective_named(objective), Bounds())
        view = world(seed)
        placed = await local_search(problem, view, SETTINGS)
        for node in set(placed.hosts().values()):
            together = [o.needs.cores for o in problem.operators if placed.hosts()[o.id] == node]
            assert sum(together) <= view.capacity[node] + 1e-9
        instance = whole(problem, view)
        best = optimum(instance)
        assert best is not None
        starts = [(await strategy(problem, world(seed), SETTINGS)).hosts() for strategy in STARTS]
        found, *before = (additive(instance, hosts) for hosts in (placed.hosts(), *starts))
        assert best.cost - 1e-6 <= found <= min(before) + 1e-6
        ratios.append(found / best.cost)
        started.append(min(before) / best.cost)
    assert np.mean(ratios) < 1.12
    assert np.mean(ratios) - 1 < 0.6 * (np.mean(started) - 1)


def whole(problem: PlacementProblem, view: Plane) -> Instance:
    nodes = view.nodes()
    free = np.full((len(nodes), RESOURCES), np.inf)
    free[:, 0] = [view.capacity[node] for node in nodes]
    candidates = [np.flatnonzero(free[:, 0] >= operator.needs.cores) for operator in problem.operators]
    return Instance(problem, nodes, view.latencies_ms(nodes, nodes), candidates, free)


def additive(instance: Instance, hosts: dict[str, str]) -> float:
    placed = np.array([instance.number[hosts[name]] for name in instance.operators])
    return float(instance.evaluate(placed[None]).additive[0])


@pytest.mark.parametrize("seed", range(4))
def test_no_single_move_is_left_that_would_be_better(seed: int) -> None:
    problem, view = made(TREE, seed, Objective(), Bounds()), world(seed)
    instance = whole(problem, view)
    rng = np.random.default_rng(seed)
    while True:
        start = np.array([rng.choice(candidates) for candidates in instance.candidates])
        if instance.evaluate(start[None]).overload[0] == 0.0:
            break
    moves = Moves(instance, start)
    hosts = moves.improve()
    least = float(instance.evaluate(hosts[None]).additive[0])
    assert least < float(instance.evaluate(start[None]).additive[0])
    for operator, candidates in enumerate(instance.candidates):
        moved = np.repeat(hosts[None], len(candidates), axis=0)
        moved[:, operator] = candidates
        cost = instance.evaluate(moved)
        assert cost.additive[cost.overload == 0.0].min() >= least * (1 - 1e-6)
        (wished,) = (one[0] for one in moves.cheapest(1)[operator : operator + 1])
        assert cost.additive.min() == pytest.approx(cost.additive[list(candidates).index(wished)])


def test_two_that_sit_in_each_others_way_change_places() -> None:
    """Either host has room for one: no single move is possible."""
    problem = PlacementProblem(
        pinned={"s0": "n00", "s1": "n01", "sink": "n02"},
        operators=(Operator(id="a", needs=Needs(cores=0.5)), Operator(id="b", needs=Needs(cores=0.5))),
        edges=(Edge("s0", "a", 900.0), Edge("s1", "b", 900.0), Edge("a", "sink", 1.0), Edge("b", "sink", 1.0)),
    )
    view = Plane({"n00": (0.0, 0.0), "n01": (100.0, 0.0), "n02": (50.0, 50.0)}, capacity={"n00": 0.5, "n01": 0.5, "n02": 0.0})
    assert Moves(whole(problem, view), np.array([1, 0])).improve().tolist() == [0, 1]


async def test_a_bound_on_delay_is_kept_at_a_price_or_refused() -> None:
    loose = await local_search(made(TREE, 2, Objective(), Bounds()), world(2), SETTINGS)
    fastest = await optimal(made(TREE, 2, objective_named("delay"), Bounds()), world(2), SETTINGS)
    assert fastest.delay_ms < 0.9 * loose.delay_ms
    bound = Bounds(max_delay_ms=(fastest.delay_ms + loose.delay_ms) / 2)
    kept = await local_search(made(TREE, 2, Objective(), bound), world(2), SETTINGS)
    assert kept.delay_ms <= (fastest.delay_ms + loose.delay_ms) / 2
    assert kept.usage > loose.usage
    with pytest.raises(SbonError) as refused:
        await local_search(made(TREE, 2, Objective(), Bounds(max_delay_ms=fastest.delay_ms * 0.9)), world(2), SETTINGS)
    assert (refused.value.code, refused.value.where) == ("delay-bound", "max_delay_ms")

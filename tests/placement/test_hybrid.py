"""Hybrid: what it measures and makes of it, and what it does where nodes are full, delay is bounded, or nothing is measured."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.objective import longest_delay_ms, network_usage
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.geometric_median import median_positions
from sbon_node.placement.strategies.hybrid import hybrid as hybrid_module
from sbon_node.placement.strategies.hybrid.hybrid import hybrid
from sbon_node.placement.strategies.sbon.optimal import optimal
from sbon_node.placement.strategies.sbon.relaxation import relaxation
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.placement import Placement
from sbon_protocol.api.strategies import Bounds
from sbon_protocol.errors import SbonError
from tests.placement.conftest import Plane

SETTINGS = PlacementSettings(pool=20, candidates=6, finalists=3)
TREE = [("s0", "a"), ("s1", "a"), ("s2", "b"), ("s3", "b"), ("a", "c"), ("b", "c"), ("c", "sink")]
WIDE = [*TREE[:-1], ("a", "d"), ("b", "d"), ("c", "d"), ("d", "sink")]


class Winding(Plane):
    """A plane whose ways are up to twice as long as they look, another one each pair; measuring tells how long."""

    def __init__(self, points: dict[str, Any], **fields: Any) -> None:
        super().__init__(points, **fields)
        self.found: dict[frozenset[str], float] = {}

    def truth(self, a: str, b: str) -> float:
        drawn = random.Random("".join(sorted((a, b)))).random()
        return super().latency_ms(a, b) * (1 + drawn)

    def latency_ms(self, a: str, b: str) -> float:
        return self.found.get(frozenset((a, b)), super().latency_ms(a, b) * 1.5)

    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        self.asked.extend([a] for a, _ in pairs)
        self.found |= {frozenset(pair): self.truth(*pair) for pair in pairs}
        return {pair: self.truth(*pair) for pair in pairs}


def world(seed: int, **fields: Any) -> Winding:
    rng = random.Random(seed)
    return Winding({f"n{i:02}": (rng.uniform(0, 100), rng.uniform(0, 100)) for i in range(40)}, **fields)


def made(links: list[tuple[str, str]], seed: int, cores: float = 0.1, **fields: Any) -> PlacementProblem:
    rng = random.Random(seed)
    vertices = sorted({vertex for link in links for vertex in link})
    names = [vertex for vertex in vertices if len(vertex) == 1]
    ends = rng.sample([f"n{i:02}" for i in range(40)], len(vertices) - len(names))
    return PlacementProblem(
        pinned=dict(zip([vertex for vertex in vertices if vertex not in names], ends, strict=True)),
        operators=tuple(Operator(id=name, needs=Needs(cores=cores)) for name in names),
        edges=tuple(Edge(source, target, rng.uniform(500, 5000)) for source, target in links),
        **fields,
    )


def usage(problem: PlacementProblem, placed: Placement, view: Winding) -> float:
    return network_usage(problem, placed.hosts(), view.truth)


async def best(problem: PlacementProblem, view: Winding) -> Placement:
    """The optimum by true latencies."""
    known = Winding(view.points, capacity=view.capacity)
    known.found = {frozenset((a, b)): view.truth(a, b) for a in view.points for b in view.points if a != b}
    return await optimal(problem, known, SETTINGS)


@pytest.mark.parametrize("links", [TREE, WIDE], ids=["tree", "dag"])
async def test_it_is_near_the_optimum_and_measures_what_it_uses(links: Any) -> None:
    ratios: dict[str, list[float]] = {"hybrid": [], "estimated": [], "relaxation": []}
    for seed in range(4):
        problem = made(links, seed)
        exact = usage(problem, await best(problem, world(seed)), world(seed))
        view = world(seed)
        placed = await hybrid(problem, view, SETTINGS)
        assert placed.usage == pytest.approx(usage(problem, placed, view)), "every link of it was measured"
        assert placed.predicted is not None
        assert placed.predicted != pytest.approx(placed.usage)
        assert placed.probes == view.probes <= 5 * 6 * len(problem.operators) + 8
        ratios["hybrid"].append(usage(problem, placed, view) / exact)
        blind = await hybrid(problem, (unmeasured := world(seed)), PlacementSettings(pool=20, measure=False))
        assert unmeasured.probes == len(set(blind.hosts().values()))
        ratios["estimated"].append(usage(problem, blind, view) / exact)
        ratios["relaxation"].append(usage(problem, await relaxation(problem, world(seed), SETTINGS), view) / exact)
    means = {name: sum(each) / len(each) for name, each in ratios.items()}
    assert 1 <= means["hybrid"] < 1.1
    assert means["hybrid"] < means["estimated"] < means["relaxation"]


@pytest.mark.parametrize("cores", [0.4, 0.6])
async def test_full_nodes_push_operators_on_and_no_host_takes_more_than_it_has(cores: float) -> None:
    """Every node has room for two of the smaller operators or one of the larger; the best hosts have none at all."""
    problem = made(TREE, 1, cores=cores)
    free = await hybrid(problem, world(1), SETTINGS)
    capacity = dict.fromkeys(world(1).points, 0.9) | dict.fromkeys(free.hosts().values(), 0.0)
    placed = await hybrid(problem, world(1, capacity=capacity), SETTINGS)
    for node in set(placed.hosts().values()):
        assert cores * list(placed.hosts().values()).count(node) <= capacity[node]
    exact = await best(problem, world(1, capacity=capacity))
    assert usage(problem, placed, world(1)) <= 1.25 * usage(problem, exact, world(1))
    refused = [one for assignment in placed.assignments for one in assignment.candidates if not one.accepted]
    assert refused == [] or all(one.reason for one in refused)


async def test_the_pool_grows_until_someone_has_room() -> None:
    view = world(2, capacity=dict.fromkeys(world(2).points, 0.0) | {"n17": 5.0})
    placed = await hybrid(made(TREE, 2), view, PlacementSettings(pool=3, candidates=3))
    assert set(placed.hosts().values()) == {"n17"}
    with pytest.raises(SbonError) as refused:
        await hybrid(made(TREE, 2), world(2, capacity=dict.fromkeys(view.points, 0.0)), PlacementSettings(pool=3))
    assert refused.value.code == "no-capacity"
    assert len(refused.value.details) == 40


async def test_a_bound_on_delay_is_kept_at_a_price_or_refused() -> None:
    problem, view = made(TREE, 3), world(3)
    loose = await hybrid(problem, view, SETTINGS)
    delay_ms = longest_delay_ms(problem, loose.hosts(), view.truth)
    bounded = made(TREE, 3, bounds=Bounds(max_delay_ms=delay_ms * 0.85))
    kept = await hybrid(bounded, world(3), SETTINGS)
    assert longest_delay_ms(problem, kept.hosts(), view.truth) == pytest.approx(kept.delay_ms)
    assert kept.delay_ms < delay_ms * 0.85
    assert usage(problem, kept, view) > usage(problem, loose, view)
    with pytest.raises(SbonError) as refused:
        await hybrid(made(TREE, 3, bounds=Bounds(max_delay_ms=5.0)), world(3), SETTINGS)
    assert (refused.value.code, refused.value.where) == ("delay-bound", "max_delay_ms")


@pytest.mark.parametrize("name", sorted(STRATEGIES))
async def test_a_bound_on_throughput_needs_bandwidth_at_the_hosts(name: str) -> None:
    problem = made(TREE, 4, bounds=Bounds(min_throughput_bytes_s=5e9))
    with pytest.raises(SbonError, match="no node has capacity") as refused:
        await STRATEGIES[name](problem, world(4), SETTINGS)
    assert {detail.split(": ")[1] for detail in refused.value.details} == {"a gigabyte a second is all there is"}


async def test_where_nothing_may_be_measured_it_says_so() -> None:
    class Refusing(Winding):
        async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
            raise SbonError("too-many-measurements", "as much as it may for now", where="pairs")

    placed = await hybrid(made(TREE, 5), Refusing(world(5).points), SETTINGS)
    assert all("not all measured: as much as it may" in one.reason for one in placed.assignments)


async def test_reasons_tell_candidates_with_what_they_cost() -> None:
    placed = await hybrid(made(TREE, 6), world(6), SETTINGS)
    for one in placed.assignments:
        costs = [candidate.measured for candidate in one.candidates if candidate.measured is not None]
        assert f"least cost of {len(one.candidates)}, {len(costs)} of them measured, of" in one.reason
        assert len(one.virtual) == 2
        assert len(costs) > 1
        assert costs == sorted(costs)
        assert one.node == one.candidates[0].node
        assert all(candidate.predicted is not None for candidate in one.candidates)


def test_virtual_places_minimise_rate_times_distance() -> None:
    rng = np.random.default_rng(1)
    pinned = {name: tuple(rng.uniform(0, 100, 3)) for name in ("s0", "s1", "s2", "s3", "sink")}
    edges = [Edge(source, target, float(rng.uniform(1, 9))) for source, target in TREE]

    def total(places: dict[str, Any]) -> float:
        at = {**pinned, **places}
        return sum(edge.rate_bytes_s * math.dist(at[edge.source], at[edge.target]) for edge in edges)

    places = median_positions(["a", "b", "c"], edges, pinned)
    least = total(places)
    for name in places:
        for step in (0.5, 5.0):
            for way in np.concatenate([np.eye(3), -np.eye(3)]):
                moved = places | {name: tuple(np.array(places[name]) + step * way)}
                assert total(moved) >= least - 1e-3
    alone = median_positions(["a"], [Edge("s0", "a", 5.0), Edge("a", "sink", 1.0)], pinned)
    assert alone["a"] == pytest.approx(pinned["s0"], abs=0.1), "the heavier end takes it whole"


@pytest.mark.parametrize("share", [1.0001, 1.2])
async def test_a_bound_that_the_consumers_node_keeps_to_is_never_refused(share: float) -> None:
    for seed in range(8):
        view = world(seed)
        problem = made(TREE, seed)
        sink = problem.pinned["sink"]
        await view.measure([(node, sink) for node in problem.pinned.values() if node != sink])
        direct_ms = max(view.latency_ms(node, sink) for node in problem.pinned.values())
        bounded = msgspec.structs.replace(problem, bounds=Bounds(max_delay_ms=share * direct_ms))
        assert (await hybrid(bounded, view, SETTINGS)).delay_ms <= share * direct_ms + 1e-6


async def test_a_query_too_large_for_the_whole_pool_is_reckoned_with_nearby(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = []
    monkeypatch.setattr(hybrid_module, "MOST_ENTRIES", 0)
    monkeypatch.setattr(hybrid_module, "HOPS", 1)
    for seed in range(4):
        problem, view = made(TREE, seed), world(seed)
        placed = await hybrid(problem, view, PlacementSettings(pool=8, candidates=6, finalists=3))
        ratios.append(usage(problem, placed, view) / usage(problem, await best(problem, world(seed)), view))
    assert 1 <= sum(ratios) / 4 < 1.12


async def test_a_pool_is_bounded_and_made_anew_until_someone_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybrid_module, "MOST_NODES", 6)
    sizes: list[int] = []

    class Watched(Winding):
        def latencies_ms(self, sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
            sizes.append(len(sources))
            return super().latencies_ms(sources, targets)

    full = dict.fromkeys(world(2).points, 0.0)
    problem = made(TREE, 2)
    placed = await hybrid(
        problem, Watched(world(2).points, capacity=full | {"n17": 5.0}), PlacementSettings(pool=3, candidates=3)
    )
    assert set(placed.hosts().values()) == {"n17"}
    with pytest.raises(SbonError) as refused:
        await hybrid(problem, Watched(world(2).points, capacity=full), PlacementSettings(pool=3, candidates=3))
    assert (refused.value.code, len(refused.value.details)) == ("no-capacity", 40)
    assert max(sizes) <= 6 + len(problem.pinned)

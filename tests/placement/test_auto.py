"""``auto`` by its rule: the exact optimum where it can be had, hybrid elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest
from msgspec.structs import replace

from sbon_node.papers.ants.algorithm.strategy import ants
from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.objective import cost, objective_named
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.hybrid import auto as rule
from sbon_node.placement.strategies.registry import AUTO
from sbon_protocol.api.placement import Placement
from sbon_protocol.errors import SbonError
from tests.placement.test_hybrid import SETTINGS, TREE, WIDE, Winding, made, world

auto = STRATEGIES.named(AUTO)
SMALL = [("s0", "a"), ("s1", "a"), ("a", "b"), ("b", "sink")]


def few(seed: int, **fields: Any) -> tuple[Any, Winding]:
    """Two operators over nine nodes, whose ways are all longer than they look."""
    problem = made(SMALL, seed)
    ends = sorted(set(problem.pinned.values()))
    others = [node for node in world(seed).points if node not in ends][: 9 - len(ends)]
    return problem, Winding({node: world(seed).points[node] for node in (*ends, *others)}, **fields)


@pytest.mark.parametrize("seed", range(4))
async def test_where_all_can_be_measured_it_is_the_best_of_all_placements(seed: int) -> None:
    problem, view = few(seed)
    placed = await auto(problem, view, SETTINGS)
    assert placed.strategy == "optimal"
    assert placed.reason == "auto took optimal: all latencies are measured, and 81 placements are few enough for an exact search"
    everywhere = ({"a": a, "b": b} for a, b in product(view.nodes(), repeat=2))
    assert placed.usage == pytest.approx(min(cost(problem, hosts, view.truth) for hosts in everywhere))
    assert placed.probes == view.probes == len(list(combinations(view.nodes(), 2))) + len(set(placed.hosts().values()))


class Refusing(Winding):
    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        raise SbonError("too-many-measurements", "as much as it may for now", where="pairs")


class Silent(Winding):
    """Nobody can measure the ways of one node, which is away."""

    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        return await super().measure([pair for pair in pairs if self.nodes()[0] not in pair])


@pytest.mark.parametrize(
    "kind, settings, most, why",
    [
        (Winding, SETTINGS, 80, "9 hosts for 2 operators are more than 80 placements"),
        (Winding, PlacementSettings(measure=False), 1000, "nothing may be measured"),
        (Refusing, SETTINGS, 1000, "not all latencies are measured: as much as it may for now"),
        (Silent, SETTINGS, 1000, "8 of 36 latencies could not be measured"),
    ],
)
async def test_elsewhere_it_is_hybrid_s(
    kind: type[Winding], settings: PlacementSettings, most: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "MAX_PLACEMENTS", most)
    problem, view = few(1)
    placed = await auto(problem, kind(view.points), settings)
    assert (placed.strategy, placed.reason) == ("hybrid", f"auto took hybrid: {why}")
    assert set(placed.hosts()) == {"a", "b"}


async def test_an_integer_programme_that_takes_too_long_is_given_up() -> None:
    problem, view = few(1)
    slow = replace(problem, objective=objective_named("usage=1,delay=50"))
    assert (await auto(slow, Winding(view.points), SETTINGS)).strategy == "optimal"
    placed = await auto(slow, view, replace(SETTINGS, exact_s=1e-9))
    assert placed.strategy == "hybrid"
    assert "the integer program for bounds and capacity was not solved within 1e-09 s" in placed.reason


async def test_many_pairs_are_not_measured_for_it() -> None:
    """40 nodes have 780 pairs, three operators may ask for 300."""
    placed = await auto(made(TREE, 1), world(1), SETTINGS)
    assert placed.reason == "auto took hybrid: 780 pairs of nodes are more than the 300 that may be measured for 3 operators"
    assert placed.probes < 300


async def test_operators_that_can_move_are_worth_fewer_measurements() -> None:
    problem, view = few(1)
    placed = await auto(replace(problem, adapt="local"), view, SETTINGS)
    why = "36 pairs of nodes are more than the 20 that may be measured for 2 operators that can move"
    assert (placed.strategy, placed.reason) == ("hybrid", f"auto took hybrid: {why}")
    near = Winding({node: view.points[node] for node in [*sorted(set(problem.pinned.values())), *view.points][:6]})
    assert (await auto(replace(problem, adapt="full"), near, SETTINGS)).strategy == "optimal"  # 15 pairs


async def test_ants_place_a_query_that_ants_adapt() -> None:
    problem, view = few(1)
    problem = replace(problem, adapt="ants")
    why = "auto took ants: ants adapt the query, and seek the least latency as it does"
    assert (await auto(problem, view, SETTINGS)).reason == why

    async def walked(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
        return replace(await ants(problem, view, settings), usage=-1.0)

    walking = await STRATEGIES.named(AUTO, {"ants": walked})(problem, view, SETTINGS)
    assert (walking.strategy, walking.usage, walking.reason) == ("ants", -1.0, why)


class Hierarchy(Winding):
    """All nodes but one have this one as their parent."""

    def parent(self, node: str) -> str | None:
        return self.nodes()[0] if node != self.nodes()[0] else None


async def test_large_queries_that_stay_over_a_hierarchy_are_improved_move_by_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "LARGE", 4)
    monkeypatch.setattr(rule, "MAX_PLACEMENTS", 80)
    large, points = made(WIDE, 1), world(1).points
    many = "40 hosts for 4 operators are more than 80 placements"
    placed = await auto(large, Hierarchy(points), SETTINGS)
    assert placed.strategy == "local-search"
    assert placed.reason == f"auto took local-search: {many}; 4 operators over a hierarchy, which stay where they are placed"
    for problem, view in (
        (large, Winding(points)),
        (replace(large, adapt="local"), Hierarchy(points)),
        (few(1)[0], Hierarchy(points)),
    ):
        assert (await auto(problem, view, SETTINGS)).strategy == "hybrid"

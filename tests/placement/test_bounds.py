"""Bounds are kept whatever the strategy looks at: a placement that breaks one is refused, with how much is missing."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest

from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.network_view import UNKNOWN_MS, NetworkView
from sbon_node.placement.model.objective import longest_delay_ms, longest_path
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.selection.mapping import finish
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.placement import Assignment, Placement
from sbon_protocol.api.strategies import AUTO, Bounds
from sbon_protocol.errors import SbonError
from tests.placement.placing import place

SETTINGS = PlacementSettings()
POINTS = {"p1": (0.0, 0.0), "p2": (0.0, 50.0), "c": (100.0, 0.0), "m": (90.0, 0.0), "n": (5.0, 0.0), "far": (0.0, 400.0)}


def problem(**bounds: float) -> PlacementProblem:
    return PlacementProblem(
        pinned={"s1": "p1", "s2": "p2", "sink": "c"},
        operators=(Operator(id="f1", needs=Needs(cores=0.4)), Operator(id="join", needs=Needs(cores=0.4))),
        edges=(Edge("s1", "f1", 4000.0), Edge("f1", "join", 400.0), Edge("s2", "join", 400.0), Edge("join", "sink", 100.0)),
        bounds=Bounds(**bounds),
    )


async def attempted(given: PlacementProblem, view: NetworkView, name: str) -> Placement | SbonError:
    try:
        return await place(given, view, SETTINGS, name)
    except SbonError as refused:
        return refused


@pytest.mark.parametrize("name", [AUTO, *sorted(STRATEGIES)])
@pytest.mark.parametrize("bound_ms", [400.0, 125.0, 113.0, 90.0])
async def test_no_placement_beyond_the_delay_comes_through(name: str, bound_ms: float, plane: Any) -> None:
    """No placement takes less than 111.8 ms, from p2 to c."""
    bounded = problem(max_delay_ms=bound_ms)
    for seed in range(4):
        view = plane(POINTS)
        view.rng.seed(seed)
        placed = await attempted(bounded, view, name)
        if isinstance(placed, SbonError):
            assert (placed.code, placed.where) == ("delay-bound", "max_delay_ms")
            said = " ".join((placed.message, *placed.details))
            assert f"{bound_ms:g} ms" in said or f"{bound_ms:g} are allowed" in said
        else:
            assert placed.delay_ms == pytest.approx(longest_delay_ms(bounded, placed.hosts(), view.latency_ms))
            assert placed.delay_ms <= bound_ms
            assert bound_ms > 111.0
            assert placed.probes == view.probes


@pytest.mark.parametrize("name", [AUTO, "hybrid", "optimal"])
async def test_strategies_that_look_for_one_within_the_bound_find_it(name: str, plane: Any) -> None:
    assert (await place(problem(max_delay_ms=113.0), plane(POINTS), SETTINGS, name)).delay_ms <= 113.0


async def test_the_refusal_tells_the_way_and_what_is_missing(plane: Any) -> None:
    view = plane(POINTS, capacity={"c": 2.0})
    with pytest.raises(SbonError) as refused:
        await place(problem(max_delay_ms=100.0), view, SETTINGS, "consumer")
    assert refused.value.message == "no placement was found within 100 ms; the best takes 111.8 ms, 11.8 ms too long"
    assert refused.value.details == ("s2 at p2 to join at c: 111.8 ms", "join at c to sink at c: 0.0 ms")


async def test_an_unknown_latency_is_no_promise(plane: Any) -> None:
    view = plane(POINTS, capacity={"c": 2.0})
    view.latency_ms = lambda a, b: UNKNOWN_MS if "p2" in (a, b) and a != b else 10.0
    with pytest.raises(SbonError, match="not all latencies are known") as refused:
        await place(problem(max_delay_ms=100.0), view, SETTINGS, "consumer")
    assert refused.value.details[0] == "s2 at p2 to join at c: not known"


@pytest.mark.parametrize("name", [AUTO, *sorted(STRATEGIES)])
async def test_too_little_throughput_is_reported_with_the_best_nodes_rate(name: str, plane: Any) -> None:
    """Every node of the plane has a gigabyte a second."""
    with pytest.raises(SbonError) as refused:
        await place(problem(min_throughput_bytes_s=5e9), plane(POINTS), SETTINGS, name)
    assert (refused.value.code, refused.value.where) == ("throughput-bound", "min_throughput_bytes_s")
    assert "has most left, 1e+09, 4e+09 too little" in refused.value.message
    placed = await place(problem(min_throughput_bytes_s=1e8), plane(POINTS), SETTINGS, name)
    assert len(placed.hosts()) == 2


async def test_no_room_for_another_reason_stays_that(plane: Any) -> None:
    with pytest.raises(SbonError) as refused:
        await place(problem(min_throughput_bytes_s=1e3), plane(POINTS, capacity=dict.fromkeys(POINTS, 0.1)), SETTINGS, "hybrid")
    assert refused.value.code == "no-capacity"


async def test_a_strategy_without_probes_is_checked_as_well(plane: Any) -> None:
    async def careless(given: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
        everywhere = [Assignment(operator=one.id, node="m", reason="why not") for one in given.operators]
        return finish("careless", given, everywhere, view, view.probes)

    with pytest.raises(SbonError) as refused:
        await place(problem(min_throughput_bytes_s=6e8), plane(POINTS), SETTINGS, careless)
    assert refused.value.code == "throughput-bound"
    assert "m has 1e+09 bytes/s to spare for f1, join, 2e+08 less than needed" in refused.value.message


async def test_a_strategy_that_knows_no_bound_on_delay_is_checked_as_well(plane: Any) -> None:
    async def careless(given: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
        everywhere = [Assignment(operator=one.id, node="m", reason="why not") for one in given.operators]
        return finish("careless", problem(), everywhere, view, view.probes)

    over = (await place(problem(max_delay_ms=200.0), plane(POINTS), SETTINGS, careless)).delay_ms - 1.0
    with pytest.raises(SbonError) as refused:
        await place(problem(max_delay_ms=over), plane(POINTS), SETTINGS, careless)
    assert refused.value.code == "delay-bound"


def test_the_longest_way_is_the_longest_of_all_ways(plane: Any) -> None:
    view, given = plane(POINTS), problem()
    for f1, join in product(POINTS, repeat=2):
        hosts = {"f1": f1, "join": join}
        at = {**given.pinned, **hosts}
        latencies = [("s1", "f1", "join", "sink"), ("s2", "join", "sink")]
        expected = max(sum(view.latency_ms(at[a], at[b]) for a, b in pairwise(way)) for way in latencies)
        found = longest_path(given, hosts, view.latency_ms)
        assert sum(ms for _, ms in found) == pytest.approx(expected)
        assert all(one.target == other.source for (one, _), (other, _) in pairwise(found))

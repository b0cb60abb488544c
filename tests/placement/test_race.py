"""The race of candidates: what it measures, when it ends, and whom it leaves."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from sbon_node.placement.model.instance import Instance
from sbon_node.placement.model.latency_matrix import LatencyMatrix
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.selection.race import PATHS_EACH, ROUNDS, SHARE_AT_ONCE, Race
from sbon_node.placement.solvers.exact import solve
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.strategies import OBJECTIVES, Bounds, Objective
from tests.placement.conftest import Plane

ENDS = ("e0", "e1", "e2", "sink")
MANY = 30


class Winding(Plane):
    """Latencies are up to ``most`` times the distance in the plane; those of ``silent`` cannot be measured."""

    def __init__(self, seed: int, most: float, silent: frozenset[str] = frozenset()) -> None:
        rng = random.Random(seed)
        names = [*ENDS, *(f"n{i:02}" for i in range(MANY))]
        super().__init__({name: (rng.uniform(0, 100), rng.uniform(0, 100)) for name in names})
        self.most, self.silent, self.pairs = most, silent, list[frozenset[str]]()

    def truth(self, a: str, b: str) -> float:
        return self.latency_ms(a, b) * random.Random("".join(sorted((a, b)))).uniform(1, self.most)

    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        self.pairs += [frozenset(pair) for pair in pairs]
        return {pair: self.truth(*pair) for pair in pairs if not self.silent.intersection(pair)}


def problem(
    objective: Objective | None = None, bounds: Bounds | None = None, sources: Sequence[str] = ENDS[:-1]
) -> PlacementProblem:
    """One operator that merges three streams."""
    return PlacementProblem(
        pinned={name: name for name in (*sources, "sink")},
        operators=(Operator(id="a", needs=Needs(cores=0.1)),),
        edges=(*(Edge(end, "a", 1000.0 * (i + 1)) for i, end in enumerate(sources)), Edge("a", "sink", 500.0)),
        objective=objective or Objective(),
        bounds=bounds or Bounds(),
    )


async def run(view: Winding, of: PlacementProblem, candidates: int = 20) -> tuple[Instance, Race, int]:
    latencies = LatencyMatrix(view, list(view.points))
    instance = Instance(of, latencies.nodes, latencies.ms, [np.arange(len(ENDS) - 1, len(latencies.nodes))])
    race, rounds = Race(latencies, candidates), 0
    while await race.round(instance, solve(instance)):
        rounds += 1
        instance = instance.narrowed(instance.candidates, latencies.believed_ms())
    return instance, race, rounds


def cost(view: Winding, node: str) -> float:
    return sum(edge.rate_bytes_s * view.truth(node, next(iter({edge.source, edge.target} - {"a"}))) for edge in problem().edges)


@pytest.mark.parametrize("seed", range(6))
async def test_it_finds_the_best_with_a_third_of_the_measurements(seed: int) -> None:
    view = Winding(seed, most=1.2)
    instance, race, rounds = await run(view, problem())
    whole = race.whole(instance, 0).tolist()
    best = min(list(view.points)[len(ENDS) - 1 :], key=lambda node: cost(view, node))
    least = solve(instance).least[0]
    assert instance.nodes[int(instance.candidates[0][least.argmin()])] == best
    assert list(view.points).index(best) in whole, "and it is measured whole"
    assert len(view.pairs) == len(set(view.pairs)) <= MANY * len(ENDS) / 3
    assert rounds <= ROUNDS


async def test_with_true_estimates_it_ends_at_once_and_with_false_ones_it_looks_further() -> None:
    asked = []
    for most in (1.0, 2.0):
        view = Winding(1, most)
        await run(view, problem())
        asked.append(len(view.pairs))
    assert asked[0] <= SHARE_AT_ONCE * 20 * len(ENDS) < asked[1]


@pytest.mark.parametrize("candidates", [1, 3, 10])
async def test_no_more_is_measured_than_so_many_candidates_have(candidates: int) -> None:
    view = Winding(2, most=3.0)
    await run(view, problem(), candidates)
    assert 0 < len(view.pairs) <= candidates * len(ENDS)


async def test_an_unanswered_probe_is_not_repeated() -> None:
    view = Winding(3, most=1.5, silent=frozenset({"e1"}))
    instance, race, _ = await run(view, problem())
    assert len(view.pairs) == len(set(view.pairs))
    assert len(race.whole(instance, 0)) > 1, "an unknown latency does not exclude a candidate"


async def test_a_node_without_metadata_ends_no_race_however_near_its_coordinate() -> None:
    view = Winding(3, most=1.5, silent=frozenset({"n00"}))
    honest, _, _ = await run(Winding(3, most=1.5), problem())
    view.points["n00"] = view.points[honest.nodes[int(honest.candidates[0][solve(honest).least[0].argmin()])]]
    instance, race, _ = await run(view, problem())
    whole = {instance.nodes[host] for host in race.whole(instance, 0)}
    others = list(view.points)[len(ENDS) - 1 :]
    assert "n00" not in whole
    assert min(others, key=lambda node: cost(view, node) if node != "n00" else math.inf) in whole


@pytest.mark.parametrize("many", [3, 9, 17, 30])
async def test_however_many_its_ends_are_the_best_is_measured_whole_in_time(many: int) -> None:
    view = Winding(6, most=1.6)
    instance, race, rounds = await run(view, problem(sources=[f"n{i:02}" for i in range(many)]))
    best = instance.candidates[0][solve(instance).least[0].argmin()]
    assert best in race.whole(instance, 0)
    assert rounds <= ROUNDS


@pytest.mark.parametrize("objective", ["usage", "delay", "latency"])
async def test_the_best_estimate_is_measured_first_for_every_objective(objective: str) -> None:
    view = Winding(7, most=1.5)
    latencies = LatencyMatrix(view, list(view.points))
    instance = Instance(
        problem(OBJECTIVES[objective]), latencies.nodes, latencies.ms, [np.arange(len(ENDS) - 1, len(latencies.nodes))]
    )
    believed = solve(instance)
    await Race(latencies, 4).round(instance, believed)
    first = {node for pair in view.pairs for node in pair if node.startswith("n")}
    dearest = instance.candidates[0][np.argsort(believed.least[0])][-MANY // 2 :]
    assert first, "some have been measured"
    assert not first & {instance.nodes[host] for host in dearest}


async def test_under_a_bound_on_delay_the_consumers_node_runs_first_and_the_race_continues() -> None:
    view = Winding(4, most=1.2)
    instance, race, _ = await run(view, problem(bounds=Bounds(max_delay_ms=500.0)), 8)
    assert list(ENDS).index("sink") in race.whole(instance, 0)
    assert all("sink" in pair for pair in view.pairs[:2])
    assert len(view.pairs) >= 8 * len(ENDS) - len(ENDS), "the cheapest candidate may be late"


async def test_where_ways_cost_nothing_it_ends_with_the_first_that_is_known() -> None:
    view = Winding(5, most=1.2)
    await run(view, problem(objective=Objective(usage=0.0, bandwidth=1.0)))
    assert len(view.pairs) <= 2 * SHARE_AT_ONCE * 20 * PATHS_EACH

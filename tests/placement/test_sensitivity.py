"""Latencies that decide a choice, against all placements tried one by one."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from sbon_node.placement.model.instance import Instance
from sbon_node.placement.solvers.exact import penalised, solve
from sbon_node.placement.solvers.sensitivity import FARTHEST_MS, paths_of, turns, with_each
from sbon_protocol.api.strategies import Bounds, Objective
from tests.placement.test_hybrid import TREE, made, world


def instance(seed: int, **fields: Any) -> Instance:
    """Three operators, five candidates each."""
    problem, view = made(TREE, seed, **fields), world(seed)
    rng = np.random.default_rng(seed)
    nodes = sorted(view.points)
    number = {node: i for i, node in enumerate(nodes)}
    ends = [number[node] for node in problem.pinned.values()]
    candidates = [np.array(sorted({*rng.choice(40, 3, replace=False).tolist(), *ends[:2]})) for _ in problem.operators]
    latency_ms = np.array([[0.0 if a == b else view.truth(a, b) for b in nodes] for a in nodes])
    return Instance(problem, nodes, latency_ms, candidates)


def costs(of: Instance, way: tuple[int, int] | None = None, ms: float = 0.0) -> dict[tuple[int, ...], float]:
    """By all placements over the candidates; of those beyond a bound far more than of those within."""
    latency_ms = of.latency_ms.copy()
    if way is not None:
        latency_ms[way] = latency_ms[way[::-1]] = ms
    changed = of.narrowed(of.candidates, latency_ms)
    every = np.array(list(product(*(c.tolist() for c in of.candidates))))
    return dict(zip(map(tuple, every.tolist()), penalised(changed, every).tolist(), strict=True))


@pytest.mark.parametrize("fields", [{}, {"bounds": Bounds(max_delay_ms=170.0)}, {"objective": Objective(bandwidth=0.2)}])
def test_the_least_cost_with_an_operator_at_a_candidate_is_the_least_of_all_placements_with_it_there(fields: Any) -> None:
    for seed in range(3):
        of = instance(seed, **fields)
        every = costs(of)
        for operator, row in enumerate(with_each(of)):
            for candidate, found in zip(of.candidates[operator].tolist(), row, strict=True):
                least = min(cost for hosts, cost in every.items() if hosts[operator] == candidate)
                if found.feasible:
                    assert found.cost == pytest.approx(least)
                else:
                    assert least > 1e6, "no placement with it there keeps to the bound"


@pytest.mark.one_part_per_commit("random placements", parts=6)
@pytest.mark.parametrize("fields", [{}, {"objective": Objective(bandwidth=0.2)}])
def test_another_placement_is_the_best_beyond_a_turning_point_and_none_before(fields: Any) -> None:
    turned = 0
    for seed in range(3):
        of = instance(seed, **fields)
        best = solve(of).hosts
        rivals = [one for row in with_each(of) for one in row]
        latencies = sorted({way for one in rivals for way in paths_of(of, one.hosts)})
        chosen = tuple(best.tolist())
        for turn in turns(of, best, latencies):
            now_ms = float(of.latency_ms[turn.nodes])
            for at_ms, rival, end_ms in ((turn.below_ms, turn.below, 0.0), (turn.above_ms, turn.above, FARTHEST_MS)):
                if at_ms is None:
                    every = costs(of, turn.nodes, end_ms)
                    assert every[chosen] == pytest.approx(min(every.values())), "even at the end nothing is better"
                    continue
                turned += 1
                assert rival is not None
                assert tuple(rival.tolist()) != chosen
                before, beyond = (costs(of, turn.nodes, at_ms + (now_ms - at_ms) * part) for part in (0.02, -0.02))
                assert before[chosen] == pytest.approx(min(before.values()))
                if beyond[chosen] > min(beyond.values()) * (1 + 1e-9):
                    assert beyond[tuple(rival.tolist())] < beyond[chosen]
                else:
                    assert at_ms == pytest.approx(end_ms, abs=1.0)
    assert turned > 10


def test_the_ways_of_a_placement_are_those_of_its_links_between_nodes() -> None:
    of = instance(1)
    hosts = solve(of).hosts
    at = {**of.problem.pinned, **of.named(hosts.tolist())}
    ends = [sorted((of.number[at[edge.source]], of.number[at[edge.target]])) for edge in of.problem.edges]
    assert paths_of(of, hosts) == sorted({(a, b) for a, b in ends if a != b})

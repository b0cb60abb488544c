"""Zones of several operators, which one coordinator places together (SAND, section 4)."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest

from sbon_node.papers.sand.algorithm.by_zones import Proxy, roots_of
from sbon_node.papers.sand.algorithm.strategies import RULES
from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.instance import Instance
from sbon_node.placement.model.objective import network_usage
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.strategies.sbon.optimal import optimum
from tests.papers.sand.trees import SETTINGS, direct_ms, everywhere, points, tree


def test_zones_are_subtrees_of_limited_size() -> None:
    problem = tree([f"n{i}" for i in range(9)], 16, 2, random.Random(1))
    for most in (1, 2, 3, 4, 7, 15, 99):
        roots = roots_of(problem, most)
        sizes = Counter(roots.values())
        assert max(sizes.values()) <= most
        assert all(roots[root] == root for root in sizes)
        readers = {edge.source: edge.target for edge in problem.edges}
        for operator, root in roots.items():
            assert operator == root or roots[readers[operator]] == root, "connected"
    assert len(set(roots_of(problem, 3).values())) == 5
    assert set(roots_of(problem, 15).values()) == {"o14"}


def test_long_chains_have_larger_zones() -> None:
    names = [f"o{i}" for i in range(100)]
    edges = tuple(Edge(a, b, 1.0) for a, b in itertools.pairwise(["s0", *names, "consumer"]))
    pinned = {"s0": "a", "consumer": "b"}
    chain = PlacementProblem(pinned=pinned, operators=tuple(Operator(id=name) for name in names), edges=edges)
    assert set(Counter(roots_of(chain, 1).values()).values()) == {8, 4}


def test_an_operator_of_several_readers_ends_its_zone() -> None:
    shared = tree([f"n{i}" for i in range(9)], 8, 2, random.Random(2), shared=True)
    roots = roots_of(shared, 99)
    assert {roots["o0"]} == {"o0"}
    assert {roots[name] for name in roots if name != "o0"} == {"o6"}


@pytest.mark.parametrize("fanout, sources", [(2, 8), (3, 9)])
async def test_one_zone_places_as_well_as_can_be(fanout: int, sources: int, plane: Any) -> None:
    """All operators together, wherever they want: no placement with the root at the chosen place costs less."""
    rng = random.Random(fanout)
    usages, messages = dict[int, float](), dict[int, int]()
    for _ in range(5):
        at = points(20, rng)
        problem = tree(sorted(at), sources, fanout, rng)
        for most in (1, 99):
            view = plane(at)
            nodes, settings = view.nodes(), msgspec.structs.replace(SETTINGS, zone_operators=most)
            hosts = await Proxy("in-network+", problem, view, settings).place(nodes, everywhere(problem, nodes), [])
            usage = network_usage(problem, hosts, view.latency_ms)
            usages[most] = usages.get(most, 0.0) + usage
            messages[most] = messages.get(most, 0) + view.coordinators.counts.total()
            told = {vertex: node for node in nodes for (_, vertex), _ in view.coordinators.at(node).mapped().items()}
            assert told == hosts
        root = problem.operators[-1].id
        chosen = np.array([nodes.index(hosts[root])])
        candidates = [chosen if one.id == root else np.arange(len(nodes)) for one in problem.operators]
        best = optimum(Instance(problem, nodes, view.latencies_ms(nodes, nodes), candidates))
        assert best is not None
        assert usage == pytest.approx(best.cost)
    assert usages[99] <= usages[1] + 1e-9
    assert messages[99] < messages[1]


@pytest.mark.parametrize("most", [2, 3, 99])
@pytest.mark.parametrize("rule", sorted(RULES))
async def test_larger_zones_keep_the_bound(rule: str, most: int, plane: Any) -> None:
    rng = random.Random(most)
    for shared in (False, True):
        view = plane(points(16, rng), capacity=dict.fromkeys(points(16, rng), 1e6))
        problem = tree(view.nodes(), 8, 2, rng, shared)
        bounds = msgspec.structs.replace(problem.bounds, max_delay_ms=1.05 * direct_ms(problem, view))
        bounded = msgspec.structs.replace(problem, bounds=bounds)
        settings = msgspec.structs.replace(SETTINGS, zone_operators=most)
        placement = await STRATEGIES[rule](bounded, view, settings)
        assert placement.delay_ms <= bounds.max_delay_ms + 1e-6
        assert "not all did" not in placement.assignments[0].reason, "the coordinators kept it themselves"

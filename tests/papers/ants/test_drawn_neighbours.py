"""Neighbours of ants on a ring and by lot: they lead everywhere where the nearest ones do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from sbon_node.papers.ants.algorithm.terrain import FEW, drawn_neighbours, own_neighbours, ring_neighbours

MEAN = 6.0
NEAREST = 16


def _names(many: int) -> list[str]:
    return [f"n{number}" for number in range(many)]


def test_both_nodes_of_a_pair_draw_the_same() -> None:
    names = _names(200)
    drawn = {name: set(drawn_neighbours(name, [other for other in names if other != name], MEAN)) for name in names}
    assert all(name in drawn[other] for name, others in drawn.items() for other in others)
    assert math.isclose(sum(map(len, drawn.values())) / len(names), MEAN, rel_tol=0.2)


def test_a_newcomer_changes_few_lots() -> None:
    names = _names(200)
    before, after = (set(drawn_neighbours("n0", names[1:many], MEAN)) for many in (199, 200))
    assert len(before ^ after) <= 2


def test_small_clusters_draw_none() -> None:
    assert not drawn_neighbours("n0", _names(FEW)[1:], MEAN)
    assert not drawn_neighbours("n0", _names(200)[1:], 0.0)


@pytest.mark.parametrize("many", [1, 2, 3, 10, 200])
def test_the_ring_connects_all_nodes_and_both_ways(many: int) -> None:
    names = _names(many)
    ring = {name: set(ring_neighbours(name, [other for other in names if other != name])) for name in names}
    assert all(name in ring[other] and name != other for name, others in ring.items() for other in others)
    assert {len(others) for others in ring.values()} == {min(2, many - 1)}
    reached = ["n0"]
    for name in reached:
        reached += sorted(ring[name] - set(reached))
    assert sorted(reached) == sorted(names)


def test_a_newcomer_changes_two_links_of_the_ring() -> None:
    names = _names(50)
    changed = [name for name in names if ring_neighbours(name, names) != ring_neighbours(name, [*names, "newcomer"])]
    assert len(changed) == 2


@pytest.mark.parametrize("seed", range(3))
def test_all_nodes_can_be_reached_although_each_keeps_the_nearest_ones(seed: int) -> None:
    """Each node is behind a link of its own, but one: it is the only neighbour of all, and keeps a few of them."""
    rng, many = np.random.default_rng(seed), 200
    at = rng.uniform(0, 10, (many, 2))
    heights = rng.uniform(20, 200, many)
    heights[0] = 0.0
    latency_ms = np.linalg.norm(at[:, None] - at[None], axis=2) + heights[:, None] + heights[None]
    assert _reached(latency_ms, 0.0) < many
    assert _reached(latency_ms, MEAN) == many


def _reached(latency_ms: NDArray[np.float64], mean: float) -> int:
    """Return the least number of nodes that can be reached from one of the first ten nodes, itself included."""
    names = _names(len(latency_ms))
    number = {name: position for position, name in enumerate(names)}
    links = []
    for node, name in enumerate(names):
        others = np.argsort(latency_ms[node], kind="stable")
        others = others[others != node]
        near = np.flatnonzero(own_neighbours(latency_ms[node, others], latency_ms[np.ix_(others, others)]))[:NEAREST]
        drawn = drawn_neighbours(name, [other for other in names if other != name], mean)
        links.append({*others[near].tolist(), *(number[other] for other in drawn)})
    counts = []
    for start in range(10):
        reached, added = {start}, {start}
        while added:
            added = set().union(*(links[node] for node in added)) - reached
            reached |= added
        counts.append(len(reached))
    return min(counts)

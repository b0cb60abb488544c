"""The tree on which NES's strategies place: shortest paths over an overlay, and parents that are configured."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from sbon_lab.experiments.harness.network import lightest_paths
from sbon_node.papers.nes.hierarchy import Hierarchy, configured, hierarchy
from tests.placement.conftest import Plane

TREE = Hierarchy("cloud", {"fog1": "cloud", "fog2": "cloud", "a": "fog1", "b": "fog1", "c": "fog2"})


def plane_of(seed: int, many: int = 30) -> Plane:
    rng = random.Random(seed)
    return Plane({f"n{i:02}": (rng.uniform(0, 100), rng.uniform(0, 100)) for i in range(many)})


def overlay(view: Plane, neighbours: int) -> np.ndarray:
    """Each with its nearest, and whatever pair is needed to join what does not hang together, the shortest first."""
    nodes = view.nodes()
    linked = {
        frozenset((a, b)) for a in nodes for b in sorted(set(nodes) - {a}, key=lambda b: view.latency_ms(a, b))[:neighbours]
    }
    part = {node: {node} for node in nodes}
    for a, b in sorted(itertools.combinations(nodes, 2), key=lambda pair: view.latency_ms(*pair)):
        if part[a] is not part[b]:
            linked.add(frozenset((a, b)))
            part[a] |= part[b]
            for node in part[b]:
                part[node] = part[a]
    return np.array([[view.latency_ms(a, b) if frozenset((a, b)) in linked else np.inf for b in nodes] for a in nodes])


@pytest.mark.parametrize("neighbours", [1, 3])
@pytest.mark.parametrize("seed", range(3))
async def test_ways_to_the_sink_are_the_shortest_over_the_overlay(seed: int, neighbours: int) -> None:
    view, weights = plane_of(seed), overlay(plane_of(seed), neighbours)
    shortest = lightest_paths(weights, weights).latency_ms
    tree = await hierarchy(view, "n07", ["n03"], neighbours)
    nodes = view.nodes()
    for node in nodes:
        path = tree.path(node)
        links = [weights[nodes.index(a), nodes.index(b)] for a, b in itertools.pairwise(path)]
        assert sum(links) == pytest.approx(shortest[nodes.index(node), 7])
    assert max(len(tree.path(node)) for node in nodes) > 3, "not everybody is next to the sink"


async def test_a_node_without_a_coordinate_is_a_leaf_far_away() -> None:
    view = plane_of(1)
    view.points["lost"] = None
    tree = await hierarchy(view, "n07", [], 4)
    assert tree.path("lost")[-1] == "n07"
    assert not any("lost" in tree.path(node) for node in plane_of(1).nodes())


async def test_configured_parents_are_the_ways_up_and_those_without_are_meshed(plane: Any) -> None:
    view = plane({"a": (0, 0), "b": (0, 1), "c": (50, 0), "fog1": (9, 0), "fog2": (40, 0), "cloud": (20, 20), "far": (900, 0)})
    view.parents = {"a": "fog1", "b": "fog1", "c": "fog2", "fog1": "cloud", "fog2": "cloud", "far": "nobody"}
    up = await hierarchy(view, "cloud", [], 1)
    assert up.path("a") == ["a", "fog1", "cloud"]
    assert up.path("far") == ["far", "cloud"], "its parent is not there: it is linked with the nearest that has none"
    down = await hierarchy(view, "c", ["a"], 1)
    assert down.path("b") == ["b", "fog1", "cloud", "fog2", "c"]
    view.parents |= {"cloud": "a", "fog2": "fog2"}
    assert configured(view, view.nodes()) == {"b": "fog1", "c": "fog2", "fog1": "cloud", "cloud": "a"}


@pytest.mark.parametrize(
    ("nodes", "meeting"),
    [(["a"], "a"), (["a", "b"], "fog1"), (["a", "fog1"], "fog1"), (["a", "c"], "cloud"), (["a", "a"], "a"), ([], "cloud")],
)
def test_ways_meet_at_the_first_node_they_share(nodes: list[str], meeting: str) -> None:
    assert TREE.meeting(nodes) == meeting

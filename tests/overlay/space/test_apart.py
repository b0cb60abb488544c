"""Distances of many places at once."""

from __future__ import annotations

import math

import numpy as np

from sbon_node.overlay.space.cost import apart


def test_all_distances_are_euclidean() -> None:
    rng = np.random.default_rng(5)
    sources, targets = rng.normal(0, 40, (7, 5)), rng.normal(0, 40, (4, 5))
    expected = [[math.dist(one, other) for other in targets.tolist()] for one in sources.tolist()]
    np.testing.assert_allclose(apart(sources, targets), expected, rtol=1e-12)


def test_a_place_is_at_no_distance_from_itself() -> None:
    places = np.random.default_rng(6).normal(0, 1e5, (9, 3))
    assert (np.diagonal(apart(places, places)) == 0.0).all()

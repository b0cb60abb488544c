"""Virtual places that minimise the network usage itself: the weighted geometric median of a whole query.

RELAXATION minimises sum DR x Lat^2, whose rest is easy to find and 40 to 70 % off on trees of operators. The sum DR x Lat is
convex as well, so that it has no false minima; iteratively re-weighted least squares (Weiszfeld, 1937; Vardi, Zhang, 2000) find
it: each round solves the springs' linear system with rates divided by the lengths of the last round.

A node's height is on the way to it wherever an operator is, so it does not move the median; an operator's virtual place has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.network_view import Point
from sbon_node.placement.problem import Edge

Floats = NDArray[np.float64]

LEAST_RATE_BYTES_S = 1.0
"""A link without a rate pulls with a byte a second, so that every operator has a place."""
ROUNDS = 60
SETTLED_MS = 0.01
_SMOOTH_MS = 0.05
"""Shorter links count as this: at a node itself the pull has no direction."""


def median_places(operators: Sequence[str], edges: Sequence[Edge], pinned: Mapping[str, Point]) -> dict[str, Point]:
    """Where each operator minimises sum rate x distance, all of them together; milliseconds in the dimensions of ``pinned``.

    Vertices that are neither operators nor in ``pinned`` exert no force; operators that nothing pulls stay in the middle of all
    that is pinned.
    """
    if not operators:
        return {}
    fixed = {name: number for number, name in enumerate(pinned)}
    free = {name: number for number, name in enumerate(operators)}
    anchors = np.array([pinned[name] for name in fixed], dtype=np.float64)
    inner = [(free[e.source], free[e.target], e.rate_bytes_s) for e in edges if e.source in free and e.target in free]
    outer = [
        (free[one], fixed[other], edge.rate_bytes_s)
        for edge in edges
        for one, other in ((edge.source, edge.target), (edge.target, edge.source))
        if one in free and other in fixed
    ]
    places = _settle(
        np.tile(anchors.mean(axis=0), (len(operators), 1)),
        anchors,
        np.array([(one, other) for one, other, _ in inner], dtype=int).reshape(-1, 2),
        np.array([(one, other) for one, other, _ in outer], dtype=int).reshape(-1, 2),
        np.maximum([rate for *_, rate in inner], LEAST_RATE_BYTES_S),
        np.maximum([rate for *_, rate in outer], LEAST_RATE_BYTES_S),
    )
    return {name: tuple(places[number].tolist()) for name, number in free.items()}


def _settle(
    places: Floats, anchors: Floats, inner: NDArray[np.int_], outer: NDArray[np.int_], inner_rates: Floats, outer_rates: Floats
) -> Floats:
    """Rounds of least squares: places [n, d], anchors [m, d], ``inner`` pairs of places, ``outer`` of place and anchor."""
    inner_pull, outer_pull = inner_rates, outer_rates
    middle = places[0]
    faint = 1e-9 * max(inner_rates.max(initial=0.0), outer_rates.max(initial=LEAST_RATE_BYTES_S))
    for _ in range(ROUNDS):
        system = np.zeros((len(places), len(places)))
        right = np.zeros_like(places)
        one, other = inner.T
        np.add.at(system, (one, one), inner_pull)
        np.add.at(system, (other, other), inner_pull)
        np.add.at(system, (one, other), -inner_pull)
        np.add.at(system, (other, one), -inner_pull)
        np.add.at(system, (outer[:, 0], outer[:, 0]), outer_pull)
        np.add.at(right, outer[:, 0], outer_pull[:, None] * anchors[outer[:, 1]])
        system[np.diag_indices_from(system)] += faint
        moved = np.linalg.solve(system, right + faint * middle)
        still = float(np.abs(moved - places).max()) < SETTLED_MS
        places = moved
        if still:
            break
        inner_pull = inner_rates / np.maximum(np.linalg.norm(places[one] - places[other], axis=1), _SMOOTH_MS)
        outer_pull = outer_rates / np.maximum(np.linalg.norm(places[outer[:, 0]] - anchors[outer[:, 1]], axis=1), _SMOOTH_MS)
    return places

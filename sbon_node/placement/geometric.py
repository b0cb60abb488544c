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
    number = {name: i for i, name in enumerate(operators)}
    anchors = {name: np.asarray(point, dtype=np.float64) for name, point in pinned.items()}
    middle: Floats = np.mean(list(anchors.values()), axis=0)
    pulling = [
        edge
        for edge in edges
        if (edge.source in number or edge.target in number)
        and all(end in number or end in anchors for end in (edge.source, edge.target))
    ]
    ends = np.zeros((len(pulling), len(operators)))
    offsets = np.zeros((len(pulling), len(middle)))
    for row, edge in enumerate(pulling):
        for end, sign in ((edge.source, 1.0), (edge.target, -1.0)):
            if end in number:
                ends[row, number[end]] = sign
            else:
                offsets[row] = sign * anchors[end]
    rates = np.maximum([edge.rate_bytes_s for edge in pulling], LEAST_RATE_BYTES_S)
    places = _settle(ends, offsets, rates, middle)
    return {name: tuple(places[i].tolist()) for name, i in number.items()}


def _settle(ends: Floats, offsets: Floats, rates: Floats, middle: Floats) -> Floats:
    """Places [n, d] that minimise sum rates |ends @ places + offsets| in rounds of least squares, where ``ends`` [links, n] is 1
    for a link's source and -1 for its target, and ``offsets`` [links, d] are the ends that are pinned, with that sign."""
    pull, places = rates, np.tile(middle, (ends.shape[1], 1))
    faint = 1e-9 * rates.max(initial=LEAST_RATE_BYTES_S)
    for _ in range(ROUNDS):
        weighed = ends.T * pull
        system = weighed @ ends
        system[np.diag_indices_from(system)] += faint
        moved = np.linalg.solve(system, faint * middle - weighed @ offsets)
        still = float(np.abs(moved - places).max()) < SETTLED_MS
        places = moved
        if still:
            break
        apart = ends @ places + offsets
        pull = rates / np.maximum(np.sqrt(np.einsum("ld,ld->l", apart, apart)), _SMOOTH_MS)
    return places

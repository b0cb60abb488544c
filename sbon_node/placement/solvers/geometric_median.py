"""Virtual coordinates that minimise the network usage itself: the weighted geometric median of a whole query.

RELAXATION minimises sum DR x Lat^2, whose minimum is easy to compute but 40 to 70 % off on trees of operators. The sum DR x Lat
is convex as well, so it has no false minima. Iteratively re-weighted least squares (Weiszfeld, 1937; Vardi, Zhang, 2000) minimise
it: each round solves the springs' linear system with rates divided by the lengths of the last round.

A node's height adds to every path to it, wherever an operator is, so it does not move the median; virtual coordinates have none.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.model.network_view import Point
from sbon_node.placement.model.problem import Edge

Floats = NDArray[np.float64]

LEAST_RATE_BYTES_S = 1.0
"""Pull of a link without a rate, so that every operator has a coordinate."""
ROUNDS = 60
SETTLED_MS = 0.01
_SMOOTH_MS = 0.05
"""Shorter links count as this, because the pull has no direction at a node itself."""


def median_positions(operators: Sequence[str], edges: Sequence[Edge], pinned: Mapping[str, Point]) -> dict[str, Point]:
    """Return the coordinates of all operators that together minimise sum rate x distance.

    They are in milliseconds, in the dimensions of ``pinned``. Vertices that are neither operators nor in ``pinned`` exert no
    force. Operators without any pull stay at the mean of all pinned coordinates.
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
    positions = _settle(ends, offsets, rates, middle)
    return {name: tuple(positions[i].tolist()) for name, i in number.items()}


def _settle(ends: Floats, offsets: Floats, rates: Floats, middle: Floats) -> Floats:
    """Return the positions [n, d] that minimise sum rates |ends @ places + offsets|.

    Each round solves a least-squares problem. ``ends`` [links, n] is 1 for a link's source and -1 for its target. ``offsets``
    [links, d] are the pinned ends, with that sign.
    """
    pull, positions = rates, np.tile(middle, (ends.shape[1], 1))
    faint = 1e-9 * rates.max(initial=LEAST_RATE_BYTES_S)
    for _ in range(ROUNDS):
        weighed = ends.T * pull
        system = weighed @ ends
        system[np.diag_indices_from(system)] += faint
        moved = np.linalg.solve(system, faint * middle - weighed @ offsets)
        still = float(np.abs(moved - positions).max()) < SETTLED_MS
        positions = moved
        if still:
            break
        apart = ends @ positions + offsets
        pull = rates / np.maximum(np.sqrt(np.einsum("ld,ld->l", apart, apart)), _SMOOTH_MS)
    return positions

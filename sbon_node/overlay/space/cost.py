"""Distance in the cost space (SBON, sections 3.1.1 and 3.1.3): latency dimensions and load together.

An operator's virtual point has load zero, so a loaded node is as far from it as if it lay off to the side by its load.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def cost_distances(point: Sequence[float], vectors: Floats, heights: Floats, loads: Floats) -> Floats:
    """Return milliseconds from a virtual point (load zero, no height) to n nodes: vectors [n, d], heights [n], loads [n]."""
    latency = np.linalg.norm(vectors - np.asarray(point, dtype=np.float64), axis=1)
    distances: Floats = np.hypot(latency, loads) + heights
    return distances


def apart(sources: Floats, targets: Floats) -> Floats:
    """Return Euclidean distances [n, m] of places [n, d] and [m, d].

    It sums dimension by dimension: no array of all three axes, and no matrix product, whose threads would wait for each other
    on a busy machine.
    """
    squares = np.zeros((len(sources), len(targets)))
    difference = np.empty_like(squares)
    for from_axis, other in zip(sources.T, targets.T, strict=True):
        np.subtract(from_axis[:, None], other, out=difference)
        np.square(difference, out=difference)
        squares += difference
    return np.sqrt(squares, out=squares)

"""Distances between many places at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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

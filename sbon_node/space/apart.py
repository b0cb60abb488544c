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
    found = np.zeros((len(sources), len(targets)))
    part = np.empty_like(found)
    for one, other in zip(sources.T, targets.T, strict=True):
        np.subtract(one[:, None], other, out=part)
        np.square(part, out=part)
        found += part
    return np.sqrt(found, out=found)

"""Distance in the cost space (SBON, sections 3.1.1 and 3.1.3): latency dimensions and load together.

An operator's virtual point has load zero, so a loaded node is as far from it as if it lay off to the side by its load.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def cost_distances(
    point: Sequence[float], vectors: NDArray[np.float64], heights: NDArray[np.float64], loads: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return milliseconds from a virtual point (load zero, no height) to n nodes: vectors [n, d], heights [n], loads [n]."""
    latency = np.linalg.norm(vectors - np.asarray(point, dtype=np.float64), axis=1)
    distances: NDArray[np.float64] = np.hypot(latency, loads) + heights
    return distances

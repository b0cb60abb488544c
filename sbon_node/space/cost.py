"""Distance in the cost space (SBON, sections 3.1.1 and 3.1.3): latency dimensions and load together.

An operator's virtual point has load zero, so a loaded node is as far from it as if it lay off to the side by its load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sbon_node.space.coordinate import Coordinate


def cost_distance(point: Sequence[float], node: Coordinate, *, with_load: bool = True) -> float:
    """Milliseconds from a virtual point (load zero, no height) to a node."""
    load = node.load if with_load else 0.0
    return math.hypot(math.dist(point, node.vector), load) + node.height


def cost_distances(
    point: Sequence[float], vectors: NDArray[np.float64], heights: NDArray[np.float64], loads: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The same for many nodes: vectors [n, d], heights [n], loads [n]; returns [n], milliseconds."""
    latency = np.linalg.norm(vectors - np.asarray(point, dtype=np.float64), axis=1)
    distances: NDArray[np.float64] = np.hypot(latency, loads) + heights
    return distances

"""Round-trip times as they truly are, generated: what coordinates are measured against where no measured ones are at hand.

Each is a symmetric matrix in milliseconds with a zero diagonal, the same for the same seed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def space(n: int, rng: np.random.Generator) -> Matrix:
    """Points in a cube with edges of 150 ms: coordinates of three dimensions can be exact."""
    return _distances(rng.uniform(0, 150, size=(n, 3)))


def access(n: int, rng: np.random.Generator) -> Matrix:
    """The same, and everybody's own way to the network, 6 ms in the mean, is on every path: no point in the cube says that."""
    heights = rng.exponential(6, size=n)
    return _without_diagonal(space(n, rng) + heights[:, None] + heights[None, :])


def continents(n: int, rng: np.random.Generator) -> Matrix:
    """Four crowds, some 10 ms wide and up to 200 ms apart: a small error far away is a large one at home."""
    centres = rng.uniform(0, 150, size=(4, 3))
    return _distances(centres[np.arange(n) % 4] + rng.normal(0, 5, size=(n, 3)))


def detours(n: int, rng: np.random.Generator) -> Matrix:
    """:func:`access`, and routing makes each path longer by a share of its own (lognormal, sigma 0.15): the triangle inequality
    does not hold."""
    longer = np.exp(np.abs(rng.normal(0, 0.15, size=(n, n))))
    return access(n, rng) * np.maximum(longer, longer.T)


TRUTHS: dict[str, Callable[[int, np.random.Generator], Matrix]] = {
    made.__name__: made for made in (space, access, continents, detours)
}


def _distances(places: Matrix) -> Matrix:
    return np.linalg.norm(places[:, None] - places[None, :], axis=2)


def _without_diagonal(matrix: Matrix) -> Matrix:
    np.fill_diagonal(matrix, 0.0)
    return matrix

"""Generated true round-trip times, for tests of coordinates without measured data.

Each is a matrix in milliseconds with a zero diagonal, the same for the same seed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def space(n: int, rng: np.random.Generator) -> Matrix:
    """Return distances of points in a cube with edges of 150 ms: coordinates of three dimensions can be exact."""
    return _distances(rng.uniform(0, 150, size=(n, 3)))


def access(n: int, rng: np.random.Generator) -> Matrix:
    """Return :func:`space` plus each node's access link, 6 ms in the mean, on every path: no point in the cube covers it."""
    heights = rng.exponential(6, size=n)
    return _without_diagonal(space(n, rng) + heights[:, None] + heights[None, :])


def continents(n: int, rng: np.random.Generator) -> Matrix:
    """Return four clusters, some 10 ms wide and up to 200 ms apart: a small relative error afar is a large error at home."""
    centres = rng.uniform(0, 150, size=(4, 3))
    return _distances(centres[np.arange(n) % 4] + rng.normal(0, 5, size=(n, 3)))


def detours(n: int, rng: np.random.Generator) -> Matrix:
    """Return :func:`access` with each path longer by its own share (lognormal, sigma 0.15), due to routing.

    The triangle inequality does not hold.
    """
    longer = np.exp(np.abs(rng.normal(0, 0.15, size=(n, n))))
    return np.asarray(access(n, rng) * np.maximum(longer, longer.T))


def inflated(n: int, rng: np.random.Generator) -> Matrix:
    """Return :func:`access` with 62 % of the paths longer by 40 % in the mean (exponential), due to routing."""
    longer = np.where(rng.random((n, n)) < 0.62, 1 + rng.exponential(0.4, (n, n)), 1.0)
    longer = np.triu(longer, 1)
    return np.asarray(access(n, rng) * (longer + longer.T))


def lopsided(n: int, rng: np.random.Generator) -> Matrix:
    """Return :func:`access` with a constant error of each direction (lognormal, sigma 0.1).

    No coordinates can express it.
    """
    return np.asarray(access(n, rng) * np.exp(rng.normal(0, 0.1, size=(n, n))))


def sparse(n: int, rng: np.random.Generator) -> Matrix:
    """Return :func:`access`; 30 % of the pairs cannot reach each other (NaN)."""
    missing = np.triu(rng.random((n, n)) < 0.3, 1)
    return np.where(missing | missing.T, np.nan, access(n, rng))


TRUTHS: dict[str, Callable[[int, np.random.Generator], Matrix]] = {
    make.__name__: make for make in (space, access, continents, detours)
}
"""Symmetric matrices without gaps."""
MADE = TRUTHS | {make.__name__: make for make in (inflated, lopsided, sparse)}


def _distances(positions: Matrix) -> Matrix:
    return np.asarray(np.linalg.norm(positions[:, None] - positions[None, :], axis=2))


def _without_diagonal(matrix: Matrix) -> Matrix:
    np.fill_diagonal(matrix, 0.0)
    return matrix

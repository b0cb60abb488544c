"""Round-trip times as they truly are, generated: what coordinates are measured against where no measured ones are at hand.

Each is a matrix in milliseconds with a zero diagonal, the same for the same seed.
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
    return np.asarray(access(n, rng) * np.maximum(longer, longer.T))


def inflated(n: int, rng: np.random.Generator) -> Matrix:
    """:func:`access`, and routing makes 62 % of the paths longer, by 40 % in the mean (exponential)."""
    longer = np.where(rng.random((n, n)) < 0.62, 1 + rng.exponential(0.4, (n, n)), 1.0)
    longer = np.triu(longer, 1)
    return np.asarray(access(n, rng) * (longer + longer.T))


def lopsided(n: int, rng: np.random.Generator) -> Matrix:
    """:func:`access` with an error of each direction's own that stays (lognormal, sigma 0.1): no coordinates can tell it."""
    return np.asarray(access(n, rng) * np.exp(rng.normal(0, 0.1, size=(n, n))))


def sparse(n: int, rng: np.random.Generator) -> Matrix:
    """:func:`access`; 30 % of the pairs cannot reach each other (NaN)."""
    missing = np.triu(rng.random((n, n)) < 0.3, 1)
    return np.where(missing | missing.T, np.nan, access(n, rng))


TRUTHS: dict[str, Callable[[int, np.random.Generator], Matrix]] = {
    made.__name__: made for made in (space, access, continents, detours)
}
"""Symmetric, without gaps."""
MADE = TRUTHS | {made.__name__: made for made in (inflated, lopsided, sparse)}


def _distances(places: Matrix) -> Matrix:
    return np.asarray(np.linalg.norm(places[:, None] - places[None, :], axis=2))


def _without_diagonal(matrix: Matrix) -> Matrix:
    np.fill_diagonal(matrix, 0.0)
    return matrix

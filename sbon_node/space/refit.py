"""Refit: a node's coordinate from all of its neighbours at once, with no more packets than one at a time takes.

For every neighbour the node keeps the filtered round-trip time R and the coordinate it last told. After each probe it takes a
damped Gauss-Newton step (Levenberg 1944, Marquardt 1963) on the whole cache. With x the vector and h the height,

    p   = |x_i - x_j| + h_i + h_j                        what the coordinates say
    r   = R - p,  rel = |r| / R                          what they miss, and the share of it
    w   = R^-1.4 / max(rel, 0.1)                         near neighbours count more; beyond 10 % the loss is |r|, not r^2
        * 1 / (1 + (rel / (20 median rel))^2)            redescending: who fits far worse than the others hardly counts,
        * 1 / (1 + (|r| / (6 median |r|))^4)             neither by its share nor in milliseconds
    A   = sum w J J^T,  b = sum w J r                    J the unit vector from j to i, and 1 for the height
    dx  = 0.4 (A + trace(A) / dim I)^-1 b

The error a neighbour claims for itself plays no part: a liar would claim none. The first redescending factor alone lets 15 % of
liars raise the error by 30 %; made sharp enough to stop them, it throws out near neighbours, whose shares are large by nature.
In milliseconds these are small and lies are not.

Bounds, whatever peers say: a step is no longer than ``REACH`` of the longest round-trip time in the cache, which the node has
measured itself; components stay within ``MAX_MS``, heights within [0, ``MAX_MS``].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_node.space.coordinate import MAX_MS

Floats = NDArray[np.float64]

STEP = 0.4
"""Part of the damped step that is taken: others move as well, and noise should not carry over."""
DAMPING = 1.0
"""Times trace / dim. With a tenth of it heights collapse to zero and the fit is half as good."""
WEIGHT_POWER = -1.4
MIN_RTT_MS = 1.0
"""Shorter times count as this in weights and shares: below it a share says nothing."""
LINEAR_BEYOND = 0.1
SHARE_CUT = 20.0
CUT = 6.0
MIN_SHARE, MIN_MS = 0.01, 1.0
"""Medians are taken for no less, so that a perfect fit throws nobody out."""
_LEAST, _CUTS = np.array([[MIN_SHARE], [MIN_MS]]), np.array([[SHARE_CUT], [CUT]])
REACH = 0.5
COLD_PROBES, COLD_STEPS = 200, 4
"""A node's first so many probes are followed by so many more steps each: they cost nothing but time of the processor."""
JOIN_PROBES, JOIN_STEPS = 10, 24
"""The same for a node that joins others who have found their places; where all are new, it would fold the map."""
PLACED = 0.3
"""Neighbours have found their places if these are that far from their middle, as a share of the round-trip times to them."""
_TOGETHER_MS = 1e-9
_ALMOST_NOTHING = 1e-15


class Fit(NamedTuple):
    """``position`` [..., dimensions + 1], the height last; ``share`` [...], the median of the neighbours' relative errors."""

    position: Floats
    share: Floats


class NeighbourCache:
    """What a node knows of its neighbours, by slot: where they said they are, how far they were measured to be."""

    def __init__(self, slots: int, dimensions: int) -> None:
        self.places: Floats = np.zeros((slots, dimensions + 1))
        self.rtt_ms: Floats = np.full(slots, MIN_RTT_MS)
        self.known: NDArray[np.bool_] = np.zeros(slots, dtype=np.bool_)

    def put(self, slot: int, place: tuple[float, ...], rtt_ms: float) -> None:
        """``place`` is the vector and the height."""
        self.places[slot] = place
        self.rtt_ms[slot] = rtt_ms if rtt_ms > MIN_RTT_MS else MIN_RTT_MS
        self.known[slot] = True

    def clear(self, slot: int) -> None:
        self.known[slot] = False


def extra_steps(probes: int, cache: NeighbourCache) -> int:
    """How many steps follow the one of a node's next probe, after so many."""
    if probes < JOIN_PROBES:
        places, rtt_ms = cache.places[cache.known, :-1], cache.rtt_ms[cache.known]
        spread_ms = np.linalg.norm(places - places.mean(axis=0), axis=1).mean()
        if spread_ms >= PLACED * rtt_ms.mean():
            return JOIN_STEPS
    return COLD_STEPS if probes < COLD_PROBES else 0


def step(position: Floats, places: Floats, rtt_ms: Floats, known: NDArray[np.bool_], *, height: bool = True) -> Fit:
    """One step of a node, or of many at once with leading axes: position [..., d + 1], places [..., s, d + 1], rtt_ms and
    known [..., s], at least one of them known. Without ``height`` the last component stays."""
    rows = np.empty((*rtt_ms.shape, places.shape[-1] + 1))
    slopes, missed = rows[..., :-1], rows[..., -1]
    """J of each neighbour, and beside it what it misses: both sums of the normal equations are one product."""
    away = np.subtract(position[..., None, :-1], places[..., :-1], out=slopes[..., :-1])
    apart = np.sqrt(np.vecdot(away, away))
    away /= np.maximum(apart, _TOGETHER_MS)[..., None]
    slopes[..., -1] = 1.0 if height else 0.0
    np.subtract(rtt_ms, apart, out=missed)
    missed -= places[..., -1]
    missed -= position[..., -1:]

    weight, median_share = _weights(np.abs(missed), rtt_ms, known)
    sums = (slopes * weight[..., None]).swapaxes(-1, -2) @ rows
    diagonal = np.einsum("...ii->...i", sums[..., :-1])
    diagonal += DAMPING / (slopes.shape[-1] - (not height)) * diagonal.sum(axis=-1, keepdims=True) + _ALMOST_NOTHING
    move = STEP * np.linalg.solve(sums[..., :-1], sums[..., -1:])[..., 0]

    reach = REACH * (rtt_ms * known).max(axis=-1)
    move *= np.minimum(1.0, reach / (np.sqrt(np.vecdot(move, move)) + _ALMOST_NOTHING))[..., None]
    moved = np.minimum(np.maximum(position + move, -MAX_MS), MAX_MS)
    np.maximum(moved[..., -1], 0.0, out=moved[..., -1])
    return Fit(moved, median_share)


def _weights(size: Floats, rtt_ms: Floats, known: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """``w`` of neighbours that miss so many milliseconds, nothing of those that are not known; and the median of the shares."""
    misses = np.empty((*size.shape[:-1], 2, size.shape[-1]))
    by_share, by_size = misses[..., 0, :], misses[..., 1, :]
    np.divide(size, rtt_ms, out=by_share)
    by_size[...] = size
    medians = np.maximum(_medians(misses, known), _LEAST)
    weight = known * rtt_ms**WEIGHT_POWER / np.maximum(by_share, LINEAR_BEYOND)
    misses /= _CUTS * medians
    misses *= misses
    by_size *= by_size
    misses += 1
    weight /= by_share * by_size
    return weight, medians[..., 0, 0]


def _medians(values: Floats, known: NDArray[np.bool_]) -> Floats:
    """The (lower) medians of the known ones: values [..., k, s], known [..., s]; [..., k, 1]."""
    ordered = np.where(known[..., None, :], values, np.inf)
    ordered.sort(axis=-1)
    middle = (known.sum(axis=-1) - 1) // 2
    found: Floats = ordered[:, middle, None] if known.ndim == 1 else np.take_along_axis(ordered, middle[..., None, None], axis=-1)
    return found

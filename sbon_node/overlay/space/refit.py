"""Refit: a node's coordinate from all of its neighbours at once, without additional packets.

For every neighbour the node keeps the filtered round-trip time R and the coordinate it last sent. After each probe the node
takes a damped Gauss-Newton step (Levenberg 1944, Marquardt 1963) on the whole cache. With x the vector and h the height,

    p   = |x_i - x_j| + h_i + h_j                        prediction of the coordinates
    r   = R - p,  rel = |r| / R                          residual, and its share of R
    w   = R^-1.4 / max(rel, 0.08)                        near neighbours count more; beyond 8 % the loss is |r|, not r^2
        * 1 / (1 + (rel / (40 median rel))^2)            redescending: neighbours that fit far worse than the others hardly
        * 1 / (1 + (|r| / (6 median |r|))^4)             count, neither by their share nor in milliseconds
    A   = sum w J J^T,  b = sum w J r                    J the unit vector from j to i, and 1 for the height
    dx  = 0.4 (A + trace(A) / dim I)^-1 b

The error that a neighbour claims for itself does not count: a liar would claim none. The first redescending factor alone lets
15 % of liars raise the error by 30 %; made sharp enough to stop them, it rejects near neighbours, whose shares are large by
nature. In milliseconds these are small and lies are not.

Among fewer than ``FEW`` neighbours both factors end as 1 and heights as 0: in six cities the nearest pair was taken for liars,
at twelve times its distance.

Bounds, whatever peers say: a step is no longer than ``REACH`` of the longest round-trip time in the cache, which the node has
measured itself; components stay within ``MAX_MS``, heights within [0, ``MAX_MS``].
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_node.overlay.space.coordinate import MAX_MS

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Known = Flags | None

STEP = 0.4
"""Share of the damped step that is taken: others move as well, and noise should not carry over."""
DAMPING = 1.0
"""Factor of trace / dim. With a tenth of it heights collapse to zero and the fit is half as good."""
WEIGHT_POWER = -1.4
MIN_RTT_MS = 1.0
"""Shorter times count as this in weights and shares: below it a share is meaningless."""
LINEAR_BEYOND = 0.08
SHARE_CUT = 40.0
CUT = 6.0
MIN_SHARE, MIN_MS = 0.01, 1.0
"""Smallest median, so that a perfect fit rejects no neighbour."""
_LEAST, _CUTS = np.array([[MIN_SHARE], [MIN_MS]]), np.array([[SHARE_CUT], [CUT]])
FEW, SETTLED_AMONG_FEW, LOST_HEIGHT = 12, 24, 0.1
"""Probes after which a node with still fewer neighbours rejects none, and shrinks its height by that share with each step.

It cannot tell a near neighbour that fits badly from a liar, nor a height from distance.
"""
REACH = 0.5
COLD_PROBES, COLD_STEPS = 200, 4
"""Number of a node's first probes, and of the additional steps after each; steps cost only CPU time."""
JOIN_PROBES, JOIN_STEPS = 20, 24
"""The same for a node that joins settled nodes; among new nodes it would fold the map."""
JOIN_STARTS = 10
"""Number of probes after which the node restarts from :func:`middle`: few neighbours allow several good fits."""
PLACED = 0.3
"""Least distance of settled neighbours from their middle, as a share of the round-trip times to them."""
_TOGETHER_MS = 1e-9
_ALMOST_NOTHING = 1e-15


class Fit(NamedTuple):
    """``position`` [..., dimensions + 1], the height last; ``share`` [...], the median of the neighbours' relative errors."""

    position: Floats
    share: Floats


class NeighbourCache:
    """Coordinates and round-trip times of a node's neighbours, by slot."""

    def __init__(self, slots: int, dimensions: int) -> None:
        self.positions: Floats = np.zeros((slots, dimensions + 1))
        self.rtt_ms: Floats = np.full(slots, MIN_RTT_MS)
        self.known: NDArray[np.bool_] = np.zeros(slots, dtype=np.bool_)
        self._unknown = slots

    @property
    def count(self) -> int:
        """The number of known neighbours."""
        return len(self.known) - self._unknown

    @property
    def whole(self) -> bool:
        """Whether every slot has a neighbour."""
        return not self._unknown

    def put(self, slot: int, position: tuple[float, ...], rtt_ms: float) -> None:
        """Store a neighbour's position, the vector and the height, and its round-trip time."""
        self.positions[slot] = position
        self.rtt_ms[slot] = rtt_ms if rtt_ms > MIN_RTT_MS else MIN_RTT_MS
        self._unknown -= not self.known[slot]
        self.known[slot] = True

    def clear(self, slot: int) -> None:
        self._unknown += bool(self.known[slot])
        self.known[slot] = False


def joins(probes: int, cache: NeighbourCache) -> bool:
    """Return whether a node with so many earlier probes is new among others with settled coordinates."""
    if probes >= JOIN_PROBES:
        return False
    positions, rtt_ms = cache.positions[cache.known, :-1], cache.rtt_ms[cache.known]
    spread_ms = np.linalg.norm(positions - positions.mean(axis=0), axis=1).mean()
    return bool(spread_ms >= PLACED * rtt_ms.mean())


def middle(cache: NeighbourCache) -> Floats:
    """Return a starting point among the neighbours, nearer ones counting more; shape [dimensions + 1], the height zero.

    In each dimension a position counts as no further from their median than the longest round-trip time, whatever it claims.
    """
    positions, rtt_ms = cache.positions[cache.known, :-1], cache.rtt_ms[cache.known]
    median, longest = np.median(positions, axis=0), rtt_ms.max()
    within = median + np.clip(positions - median, -longest, longest)
    return np.append(np.average(within, axis=0, weights=1 / rtt_ms), 0.0)


def extra_steps(probes: int, *, joining: bool) -> int:
    """Return how many steps follow the first one of a node's next probe, after ``probes``."""
    if joining:
        return JOIN_STEPS
    return COLD_STEPS if probes < COLD_PROBES else 0


def step(
    position: Floats, positions: Floats, rtt_ms: Floats, known: Known, *, height: bool = True, few: bool | Flags = False
) -> Fit:
    """Compute one step of a node, or of many at once with leading axes.

    Shapes: position [..., d + 1], positions [..., s, d + 1], rtt_ms and known [..., s], at least one of them known; ``known`` is
    None where all are. ``few`` [...] marks nodes settled among few neighbours. Without ``height`` the last component stays.
    """
    rows = np.empty((*rtt_ms.shape, positions.shape[-1] + 1))
    slopes, missed = rows[..., :-1], rows[..., -1]
    """J of each neighbour, and beside it the residual: one product gives both sums."""
    away = np.subtract(position[..., None, :-1], positions[..., :-1], out=slopes[..., :-1])
    apart = np.sqrt(np.vecdot(away, away))
    away /= np.maximum(apart, _TOGETHER_MS)[..., None]
    few = np.asarray(few) if position.ndim == 1 else np.broadcast_to(few, position.shape[:-1])
    upward: Flags = ~few if height else np.zeros_like(few)
    slopes[..., -1] = upward[..., None]
    np.subtract(rtt_ms, apart, out=missed)
    missed -= positions[..., -1]
    missed -= position[..., -1:]

    weight, median_share = _weights(np.abs(missed), rtt_ms, known, few)
    sums = (slopes * weight[..., None]).swapaxes(-1, -2) @ rows
    longest_ms = (rtt_ms if known is None else rtt_ms * known).max(axis=-1)
    if position.ndim == 1:
        moved = np.array(_moved(position.tolist(), sums.tolist(), float(longest_ms), bool(upward)))
    else:
        moved = _moved_together(position, sums, longest_ms, upward)
    moved[..., -1] *= 1.0 - LOST_HEIGHT * few
    return Fit(moved, median_share)


def _weights(size: Floats, rtt_ms: Floats, known: Known, few: Flags) -> tuple[Floats, Floats]:
    """Return ``w`` for residuals in milliseconds, 0 for unknown neighbours, and the median of the shares.

    The worst-fitting neighbours are rejected, except among few.
    """
    misses = np.empty((*size.shape[:-1], 2, size.shape[-1]))
    by_share, by_size = misses[..., 0, :], misses[..., 1, :]
    np.divide(size, rtt_ms, out=by_share)
    by_size[...] = size
    medians = np.maximum(_medians(misses, known), _LEAST)
    weight = rtt_ms**WEIGHT_POWER / np.maximum(by_share, LINEAR_BEYOND)
    misses /= _CUTS * medians
    misses *= misses
    by_size *= by_size
    misses += 1
    if few.ndim:
        weight /= np.where(few[..., None], 1.0, by_share * by_size)
    elif not few:  # One node, and enough links to weigh them.
        weight /= by_share * by_size
    return weight if known is None else weight * known, medians[..., 0, 0]


def _medians(values: Floats, known: Known) -> Floats:
    """Return the (lower) medians of the known values: values [..., k, s], known [..., s]; result [..., k, 1]."""
    if known is None:
        return np.sort(values, axis=-1)[..., (values.shape[-1] - 1) // 2, None]
    ordered = np.where(known[..., None, :], values, np.inf)
    ordered.sort(axis=-1)
    if known.ndim == 1:  # One node: plain indexing gives the same numbers in a fraction of the time.
        middle_of_known = (int(np.count_nonzero(known)) - 1) // 2
        return ordered[:, middle_of_known : middle_of_known + 1]
    return np.take_along_axis(ordered, (known.sum(axis=-1)[..., None, None] - 1) // 2, axis=-1)


def _moved(position: list[float], sums: list[list[float]], longest_ms: float, height: bool) -> list[float]:
    """Return the position after the damped step; ``sums`` are the rows of A, each with its b.

    Plain Python is faster than a library for a dozen numbers, and damping makes A positive definite.
    """
    size = len(sums)
    damping = DAMPING / (size - (not height)) * sum(sums[i][i] for i in range(size)) + _ALMOST_NOTHING
    for i, row in enumerate(sums):
        row[i] += damping
        for below in sums[i + 1 :]:
            share = below[i] / row[i]
            for k in range(i + 1, size + 1):
                below[k] -= share * row[k]
    move = [0.0] * size
    for i in reversed(range(size)):
        row = sums[i]
        move[i] = (row[size] - sum(row[k] * move[k] for k in range(i + 1, size))) / row[i]
    length = STEP * math.hypot(*move)
    step = STEP * min(1.0, REACH * longest_ms / (length + _ALMOST_NOTHING))
    moved = [min(max(x + step * dx, -MAX_MS), MAX_MS) for x, dx in zip(position, move, strict=True)]
    moved[-1] = max(moved[-1], 0.0)
    return moved


def _moved_together(position: Floats, sums: Floats, longest_ms: Floats, height: Flags) -> Floats:
    """Return :func:`_moved` of many nodes: position [..., n], sums [..., n, n + 1], longest_ms and height [...]."""
    normal, right = sums[..., :-1], sums[..., -1:]
    diagonal = np.einsum("...ii->...i", normal)
    diagonal += (DAMPING / (diagonal.shape[-1] - ~height) * diagonal.sum(axis=-1) + _ALMOST_NOTHING)[..., None]
    move = STEP * np.linalg.solve(normal, right)[..., 0]
    length = np.sqrt(np.vecdot(move, move))
    step = np.minimum(1.0, REACH * longest_ms / (length + _ALMOST_NOTHING))
    moved: Floats = np.clip(position + step[..., None] * move, -MAX_MS, MAX_MS)
    np.maximum(moved[..., -1], 0.0, out=moved[..., -1])
    return moved

"""Vivaldi (Dabek, Cox, Kaashoek, Morris, SIGCOMM 2004, section 3.5): springs between nodes, weighed by confidence.

For a sample of ``rtt`` to a node at ``x_j`` with error ``e_j``, a node at ``x_i`` with error ``e_i`` computes

    w   = e_i / (e_i + e_j)                      confidence in itself against the peer
    e_s = | |x_i - x_j| - rtt | / rtt            relative error of this sample
    e_i = e_s c_e w + e_i (1 - c_e w)            c_e = 0.25
    x_i = x_i + c_c w (rtt - |x_i - x_j|) u      c_c = 0.25, u the unit vector from x_j to x_i

Departures: errors are kept within [0.01, 2] and components within ``MAX_MS``, so that no peer's claim weighs without bound, and
no sequence of samples leads out of what others accept.
"""

import math
import random

import msgspec
import numpy as np
from numpy.typing import NDArray

from sbon_node.overlay.space.coordinate import MAX_MS, Coordinate

Floats = NDArray[np.float64]

MIN_RTT_MS = 0.1
"""Shorter samples count as this: below it the relative error is meaningless."""
MIN_ERROR, MAX_ERROR = 0.01, 2.0
_TOGETHER_MS = 1e-6
"""Two nodes closer than this have no direction between them."""


def update(
    local: Coordinate, remote: Coordinate, rtt_ms: float, rng: random.Random, *, error_gain: float = 0.25, step_gain: float = 0.25
) -> Coordinate:
    """Return the local coordinate after one (filtered) sample. Two nodes at one point push apart in a random direction."""
    rtt = max(rtt_ms, MIN_RTT_MS)
    own = min(max(local.error, MIN_ERROR), MAX_ERROR)
    remote_error = min(max(remote.error, MIN_ERROR), MAX_ERROR)
    weight = own / (own + remote_error)
    span = length = math.dist(local.vector, remote.vector)
    away = tuple(a - b for a, b in zip(local.vector, remote.vector, strict=True))
    while span < _TOGETHER_MS:
        away = tuple(rng.gauss(0, 1) for _ in local.vector)
        span = math.hypot(*away)
    error = abs(length - rtt) / rtt * error_gain * weight + own * (1 - error_gain * weight)
    step = step_gain * weight * (rtt - length) / span
    return msgspec.structs.replace(
        local,
        vector=tuple(min(max(x + step * a, -MAX_MS), MAX_MS) for x, a in zip(local.vector, away, strict=True)),
        error=min(max(error, MIN_ERROR), MAX_ERROR),
    )

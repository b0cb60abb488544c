"""Serf's network coordinates, for comparison, from its documentation ("Network Coordinates") and the papers cited there.

Vivaldi (Dabek et al., SIGCOMM 2004) in eight dimensions with a height, a median over the last three samples of a link
(Ledlie, Gardner, Seltzer, NSDI 2007), an adjustment added to every distance (Lee et al., "On Suitability of Euclidean
Embedding", 2009, over a window of 20), and a gravity that keeps the map from drifting (Ledlie again, rho = 150). Units are
seconds, as in its constants.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import deque
from typing import NamedTuple

DIMENSIONS = 8
MAX_ERROR = 1.5
ERROR_GAIN = 0.25
STEP_GAIN = 0.25
ADJUSTMENT_WINDOW = 20
MIN_HEIGHT_S = 10e-6
FILTER_SAMPLES = 3
GRAVITY_RHO = 150.0
_ZERO_S = 1e-6


class SerfCoordinate(NamedTuple):
    """A Serf coordinate in seconds; ``error`` is relative."""

    vector: tuple[float, ...] = (0.0,) * DIMENSIONS
    height: float = MIN_HEIGHT_S
    adjustment: float = 0.0
    error: float = MAX_ERROR


ORIGIN = SerfCoordinate()


class SerfClient:
    """The Serf coordinate of a node, with its samples."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.coordinate = ORIGIN
        self._samples: dict[str, deque[float]] = {}
        self._misses = [0.0] * ADJUSTMENT_WINDOW
        self._turn = 0

    def update(self, peer: str, remote: SerfCoordinate, rtt_s: float) -> None:
        samples = self._samples.setdefault(peer, deque(maxlen=FILTER_SAMPLES))
        samples.append(rtt_s)
        rtt_s = max(statistics.median_high(samples), _ZERO_S)
        self._pull(remote, rtt_s)
        self._adjust(remote, rtt_s)
        to_origin = distance_s(self.coordinate, ORIGIN)
        self._push(-((to_origin / GRAVITY_RHO) ** 2), ORIGIN)

    def _pull(self, remote: SerfCoordinate, rtt_s: float) -> None:
        own = self.coordinate
        apart = distance_s(own, remote)
        weight = own.error / max(own.error + remote.error, _ZERO_S)
        error = ERROR_GAIN * weight * abs(apart - rtt_s) / rtt_s + own.error * (1 - ERROR_GAIN * weight)
        self.coordinate = own._replace(error=min(error, MAX_ERROR))
        self._push(STEP_GAIN * weight * (rtt_s - apart), remote)

    def _adjust(self, remote: SerfCoordinate, rtt_s: float) -> None:
        self._misses[self._turn] = rtt_s - _raw_s(self.coordinate, remote)
        self._turn = (self._turn + 1) % ADJUSTMENT_WINDOW
        self.coordinate = self.coordinate._replace(adjustment=sum(self._misses) / (2 * ADJUSTMENT_WINDOW))

    def _push(self, force_s: float, other: SerfCoordinate) -> None:
        own = self.coordinate
        away = [a - b for a, b in zip(own.vector, other.vector, strict=True)]
        span = apart = math.hypot(*away)
        while span < _ZERO_S:
            away = [self._rng.uniform(-0.5, 0.5) for _ in own.vector]
            span = math.hypot(*away)
        height = own.height
        if apart > _ZERO_S:
            height = max((own.height + other.height) * force_s / apart + own.height, MIN_HEIGHT_S)
        vector = tuple(x + force_s * a / span for x, a in zip(own.vector, away, strict=True))
        self.coordinate = own._replace(vector=vector, height=height)


def distance_s(near: SerfCoordinate, other: SerfCoordinate) -> float:
    """Return the adjusted distance if it is positive, else the raw distance."""
    raw = _raw_s(near, other)
    adjusted = raw + near.adjustment + other.adjustment
    return adjusted if adjusted > 0 else raw


def _raw_s(near: SerfCoordinate, other: SerfCoordinate) -> float:
    return math.dist(near.vector, other.vector) + near.height + other.height

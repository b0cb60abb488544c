"""A node's place in the cost space (SBON, section 3.1.1): latency dimensions in milliseconds, and what surrounds them."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from sbon_protocol import messages

MAX_MS = messages.MAX_COORDINATE_MS


class Coordinate(msgspec.Struct, frozen=True, kw_only=True):
    """``vector`` and ``height`` in milliseconds of round-trip time; ``error`` relative; ``load`` in milliseconds."""

    vector: tuple[float, ...]
    height: float = 0.0
    error: float = 1.0
    load: float = 0.0

    @classmethod
    def origin(cls, dimensions: int) -> Coordinate:
        return cls(vector=(0.0,) * dimensions)

    @property
    def array(self) -> NDArray[np.float64]:
        """Shape [dimensions], milliseconds."""
        return np.asarray(self.vector, dtype=np.float64)

    def distance_ms(self, other: Coordinate) -> float:
        """See :func:`distance_ms`."""
        return distance_ms(self, other)

    def to_wire(self) -> messages.Coordinate:
        return messages.Coordinate(vector=self.vector, height=self.height, error=self.error, load=self.load)


Claim = Coordinate | messages.Coordinate
"""A node's own coordinate, or the one it states."""


def distance_ms(one: Claim, other: Claim) -> float:
    """Return the estimated round-trip time |x - y| + h_x + h_y; the load dimension does not count."""
    return math.dist(one.vector, other.vector) + one.height + other.height


def plausible(claim: Claim, dimensions: int) -> bool:
    """Return whether a coordinate is possible: right dimension, finite, within ``MAX_MS``, no impossible negative values."""
    vector = claim.vector
    if len(vector) != dimensions:
        return False
    for component in vector:
        if not -MAX_MS <= component <= MAX_MS:  # nor is NaN
            return False
    return 0 <= claim.height <= MAX_MS and 0 <= claim.error <= MAX_MS and 0 <= claim.load <= MAX_MS


def from_wire(wire: messages.Coordinate, dimensions: int) -> Coordinate | None:
    """The coordinate a peer claims, or None where it is not :func:`plausible`."""
    if not plausible(wire, dimensions):
        return None
    return Coordinate(vector=wire.vector, height=wire.height, error=wire.error, load=wire.load)

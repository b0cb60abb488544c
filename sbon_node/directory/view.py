"""Who is near a point, and who owns a key: an interface, since partial views are to follow (docs/design.md, section 5)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from sbon_node.space.coordinate import Coordinate
from sbon_node.space.cost import cost_distances


class Directory(Protocol):
    """What everything above asks; the answers may be partial and a little old."""

    def coordinate(self, node: str) -> Coordinate | None: ...

    def nearest(
        self, point: Sequence[float], k: int, *, exclude: frozenset[str] = frozenset(), load: bool = True
    ) -> list[tuple[str, float]]:
        """The k nodes nearest to a virtual point, with their distance in the cost space (ms); ties by name."""
        ...

    def owner(self, key: str, r: int = 1) -> list[str]:
        """The r nodes that own a key, by rendezvous hashing (Thaler, Ravishankar, 1998), the first one first."""
        ...

    def estimate_rtt_ms(self, a: str, b: str) -> tuple[float, bool]:
        """Milliseconds, and whether they were measured directly; a fresh measurement beats the coordinates.

        0 and False where nothing is known of one of them.
        """
        ...


class Known(Protocol):
    """What the full view needs of :class:`~sbon_node.membership.service.Membership`."""

    @property
    def own_name(self) -> str: ...

    def alive(self) -> list[str]: ...

    def coordinate_of(self, name: str) -> Coordinate | None: ...

    def rtt_ms(self, name: str) -> float | None: ...


class FullView(Directory):
    """Every node knows all others by gossip: k-nearest is a scan."""

    def __init__(self, membership: Known) -> None:
        self._membership = membership

    def coordinate(self, node: str) -> Coordinate | None:
        return self._membership.coordinate_of(node)

    def nearest(
        self, point: Sequence[float], k: int, *, exclude: frozenset[str] = frozenset(), load: bool = True
    ) -> list[tuple[str, float]]:
        placed = [(name, c) for name in self._nodes() if name not in exclude and (c := self.coordinate(name)) is not None]
        if not placed or k <= 0:
            return []
        distances = cost_distances(
            point,
            np.array([c.vector for _, c in placed]),
            np.array([c.height for _, c in placed]),
            np.array([c.load if load else 0.0 for _, c in placed]),
        )
        order = sorted(range(len(placed)), key=lambda i: (float(distances[i]), placed[i][0]))
        return [(placed[i][0], float(distances[i])) for i in order[:k]]

    def owner(self, key: str, r: int = 1) -> list[str]:
        def weight(name: str) -> bytes:
            return hashlib.sha256(f"{len(name)}:{name}{key}".encode()).digest()

        return sorted(self._nodes(), key=lambda name: (weight(name), name), reverse=True)[:r]

    def estimate_rtt_ms(self, a: str, b: str) -> tuple[float, bool]:
        if a == b:
            return 0.0, True
        own = self._membership.own_name
        if own in (a, b):
            measured = self._membership.rtt_ms(b if a == own else a)
            if measured is not None:
                return measured, True
        first, second = self.coordinate(a), self.coordinate(b)
        if first is None or second is None:
            return 0.0, False
        return first.distance_ms(second), False

    def _nodes(self) -> list[str]:
        return sorted({self._membership.own_name, *self._membership.alive()})

"""Coordinate algorithms to compare: the daemon's code as configured, and Serf's, with three choices of neighbours."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sbon_node.experiments.coordinates.serf import MAX_ERROR, SerfClient, SerfCoordinate, distance_s
from sbon_node.experiments.coordinates.side_by_side import SideBySide
from sbon_node.space.coordinate import Coordinate
from sbon_node.space.neighbours import Neighbours
from sbon_node.space.settings import SpaceSettings

Floats = NDArray[np.float64]


class Space(Protocol):
    """All nodes of a run, named ``str(number)``; a node learns another's coordinate as a ``place``."""

    def take(self, node: int, peer: int, rtt_ms: float, coordinate: object, now: float) -> None: ...

    def settle(self, nodes: Sequence[int]) -> None:
        """Update after each of ``nodes`` has taken a sample."""
        ...

    def place(self, node: int) -> object: ...

    def lie(self, vector: Sequence[float]) -> object:
        """Return a false claim of ``vector`` [3] in milliseconds with almost no error."""
        ...

    def arrays(self, coordinates: Sequence[object] | None = None) -> Floats:
        """Return vector, height and adjustment of ``coordinates``, by default of all nodes: shape [n, d + 2], milliseconds."""
        ...

    def choose(self, node: int, candidates: Mapping[int, object]) -> None: ...

    def next(self, node: int) -> int | None: ...

    def neighbours(self, node: int) -> list[int]: ...

    def measured_ms(self, node: int) -> dict[int, float]:
        """Return the node's remembered measurements of other nodes."""
        ...

    def anew(self, count: int, seed: int) -> Space:
        """Return a space of so many nodes that have just started."""
        ...


class OwnSpace:
    """The daemon's :class:`~sbon_node.space.local.LocalCoordinate`, one instance for each node, stepping side by side."""

    def __init__(self, count: int, seed: int, settings: SpaceSettings) -> None:
        rng = random.Random(seed)
        self._settings = settings
        self._nodes = [SideBySide(settings, rng) for _ in range(count)]

    def take(self, node: int, peer: int, rtt_ms: float, coordinate: object, now: float) -> None:
        assert isinstance(coordinate, Coordinate)
        self._nodes[node].observe(str(peer), rtt_ms, coordinate, now)

    def settle(self, nodes: Sequence[int]) -> None:
        SideBySide.settle([self._nodes[node] for node in nodes])

    def place(self, node: int) -> Coordinate:
        return self._nodes[node].coordinate

    def lie(self, vector: Sequence[float]) -> Coordinate:
        spread = (*vector, *(0.0,) * self._settings.dimensions)[: self._settings.dimensions]
        return Coordinate(vector=tuple(spread), height=0.0, error=0.0)

    def arrays(self, coordinates: Sequence[object] | None = None) -> Floats:
        chosen = [node.coordinate for node in self._nodes] if coordinates is None else coordinates
        return np.array([(*c.vector, c.height, 0.0) for c in chosen if isinstance(c, Coordinate)])

    def choose(self, node: int, candidates: Mapping[int, object]) -> None:
        coordinates = {
            str(peer): coordinate if isinstance(coordinate, Coordinate) else None for peer, coordinate in candidates.items()
        }
        self._nodes[node].choose_neighbours(coordinates)

    def next(self, node: int) -> int | None:
        name = self._nodes[node].next_neighbour()
        return None if name is None else int(name)

    def neighbours(self, node: int) -> list[int]:
        return [int(name) for name in self._nodes[node].neighbours()]

    def measured_ms(self, node: int) -> dict[int, float]:
        return {int(name): rtt_ms for name, rtt_ms in self._nodes[node].remembered_ms().items()}

    def anew(self, count: int, seed: int) -> OwnSpace:
        return OwnSpace(count, seed, self._settings)


class SerfSpace:
    """Serf's coordinates with our neighbours: 32 at random, and the ``near`` nearest by its estimates."""

    def __init__(self, count: int, seed: int, near: int) -> None:
        rng = random.Random(seed)
        self._near = near
        self._nodes = [SerfClient(random.Random(rng.getrandbits(64))) for _ in range(count)]
        self._rtt_ms: list[dict[str, float]] = [{} for _ in range(count)]
        self._samples = [0] * count
        self._slots = [
            Neighbours(SpaceSettings().random_neighbours, near, random.Random(rng.getrandbits(64))) for _ in range(count)
        ]

    def take(self, node: int, peer: int, rtt_ms: float, coordinate: object, now: float) -> None:
        assert isinstance(coordinate, SerfCoordinate)
        name = str(peer)
        self._samples[node] += 1
        self._rtt_ms[node][name] = min(rtt_ms, self._rtt_ms[node].get(name, rtt_ms))
        self._nodes[node].update(name, coordinate, rtt_ms / 1000)

    def settle(self, nodes: Sequence[int]) -> None:
        """Do nothing: Serf updates with each sample."""

    def place(self, node: int) -> SerfCoordinate:
        return self._nodes[node].coordinate

    def lie(self, vector: Sequence[float]) -> SerfCoordinate:
        spread = (*(x / 1000 for x in vector), *(0.0,) * 5)
        return SerfCoordinate(vector=spread, error=MAX_ERROR / 1000)

    def arrays(self, coordinates: Sequence[object] | None = None) -> Floats:
        chosen = [node.coordinate for node in self._nodes] if coordinates is None else coordinates
        return 1000 * np.array([(*c.vector, c.height, c.adjustment) for c in chosen if isinstance(c, SerfCoordinate)])

    def choose(self, node: int, candidates: Mapping[int, object]) -> None:
        own, measured = self.place(node), self._rtt_ms[node]
        estimates: dict[str, float] = {}
        for peer, coordinate in candidates.items():
            assert isinstance(coordinate, SerfCoordinate)
            estimates[str(peer)] = measured.get(str(peer), distance_s(own, coordinate) * 1000)
        # Estimates show near nodes only once a node has left the origin: after a turn of its random neighbours.
        has_samples = self._samples[node] >= SpaceSettings().random_neighbours
        self._slots[node].renew(estimates, near=has_samples, measured=measured)

    def next(self, node: int) -> int | None:
        name = self._slots[node].next()
        return None if name is None else int(name)

    def neighbours(self, node: int) -> list[int]:
        return [int(name) for name in self._slots[node].names()]

    def measured_ms(self, node: int) -> dict[int, float]:
        return {int(name): rtt_ms for name, rtt_ms in self._rtt_ms[node].items()}

    def anew(self, count: int, seed: int) -> SerfSpace:
        return SerfSpace(count, seed, self._near)


class SerfEverybody(SerfSpace):
    """Serf's own schedule: each node probes every other once in a random order, then in another order."""

    def __init__(self, count: int, seed: int) -> None:
        super().__init__(count, seed, 0)
        self._rng = random.Random(seed)
        self._others: list[tuple[int, ...]] = [()] * count
        self._left: list[list[int]] = [[] for _ in range(count)]

    def choose(self, node: int, candidates: Mapping[int, object]) -> None:
        """Take all nodes, which are the first candidates; near nodes do not matter."""
        if not self._others[node]:
            self._others[node] = tuple(sorted(candidates))

    def next(self, node: int) -> int | None:
        if not self._left[node]:
            self._left[node] = self._rng.sample(self._others[node], len(self._others[node]))
        return self._left[node].pop() if self._left[node] else None

    def neighbours(self, node: int) -> list[int]:
        return sorted(self.measured_ms(node))

    def anew(self, count: int, seed: int) -> SerfEverybody:
        return SerfEverybody(count, seed)


def distances_ms(coordinates: Floats, others: Floats | None = None) -> Floats:
    """Return distances from :meth:`Space.arrays` [n, d + 2] to others [m, d + 2]: shape [n, m]."""
    others = coordinates if others is None else others
    near, other = coordinates[:, :-2], others[:, :-2]
    squares = (near * near).sum(axis=1)[:, None] + (other * other).sum(axis=1)[None] - 2 * near @ other.T
    raw = np.sqrt(np.maximum(squares, 0.0)) + coordinates[:, -2, None] + others[None, :, -2]
    adjusted = raw + coordinates[:, -1, None] + others[None, :, -1]
    distances: Floats = np.where(adjusted > 0, adjusted, raw)
    return distances


def _own(**settings: object) -> Callable[[int, int], Space]:
    space_settings = SpaceSettings(**settings)  # type: ignore[arg-type]
    return lambda count, seed: OwnSpace(count, seed, space_settings)


CONTENDERS: dict[str, Callable[[int, int], Space]] = {
    "refit": _own(),
    "refit-32": _own(near_neighbours=0),
    "refit-5d": _own(dimensions=5),
    "vivaldi": _own(algorithm="vivaldi"),
    "vivaldi-32": _own(algorithm="vivaldi", near_neighbours=0),
    "serf": lambda count, seed: SerfSpace(count, seed, SpaceSettings().near_neighbours),
    "serf-32": lambda count, seed: SerfSpace(count, seed, 0),
    "serf-all": SerfEverybody,
}
"""Contenders by name: with the daemon's default neighbours (32 at random, 16 nearest), the 32 alone, or all members."""

"""Coordinate algorithms to compare: the daemon's code as configured, and Serf's, with three choices of neighbours."""

from __future__ import annotations

import math
import random
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sbon_node.overlay.space import refit
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.overlay.space.local import LocalCoordinate, Neighbours
from sbon_node.overlay.space.settings import SpaceSettings

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
    """The daemon's :class:`~sbon_node.overlay.space.local.LocalCoordinate`, one instance for each node, stepping side by side."""

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


# -- Many nodes of one process that take their steps of ``refit`` at once: the daemon's code, several times as fast ---


class SideBySide(LocalCoordinate):
    """A node's coordinate whose steps of ``refit`` wait for :meth:`settle`; all else is the daemon's."""

    def __init__(self, settings: SpaceSettings, rng: random.Random) -> None:
        super().__init__(settings, rng)
        self._due_steps = 0

    def _advance(self, steps: int) -> None:
        self._due_steps += steps

    @staticmethod
    def settle(nodes: Sequence[SideBySide]) -> None:
        """Take the due steps of nodes with the same settings; each moves as it would alone."""
        while due := [node for node in nodes if node._due_steps]:
            position, positions, rtt_ms, known = (
                np.stack(arrays)
                for arrays in zip(*((n._position, n._cache.positions, n._cache.rtt_ms, n._cache.known) for n in due), strict=True)
            )
            all_known = None if all(node._cache.whole for node in due) else known
            few = np.array([node._among_few for node in due])
            steps = min(node._due_steps for node in due)
            for _ in range(steps):
                fit = refit.step(position, positions, rtt_ms, all_known, height=due[0]._settings.height, few=few)
                position = fit.position
            for node, *fit_of_node in zip(due, fit.position, fit.share, strict=True):
                node._due_steps -= steps
                node._place(refit.Fit(*fit_of_node))


# -- Serf's network coordinates, for comparison, from its documentation ("Network Coordinates") and the papers cited there --

# Vivaldi (Dabek et al., SIGCOMM 2004) in eight dimensions with a height, a median over the last three samples of a link
# (Ledlie, Gardner, Seltzer, NSDI 2007), an adjustment added to every distance (Lee et al., "On Suitability of Euclidean
# Embedding", 2009, over a window of 20), and a gravity that keeps the map from drifting (Ledlie again, rho = 150). Units are
# seconds, as in its constants.

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

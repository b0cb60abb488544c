"""Nearest nodes, key owners and latency estimates: an interface, since partial views follow (docs/design.md, section 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sbon_node.overlay.directory.keys import owners
from sbon_node.overlay.directory.measuring import Outcome
from sbon_node.overlay.directory.pairs import Measurement, Pair
from sbon_node.overlay.directory.prefix_routing import PrefixRouting
from sbon_node.overlay.membership.views import MemberView
from sbon_node.overlay.space.apart import apart
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.overlay.space.cost import cost_distances

Condition = Callable[[MemberView], bool]
"""Tests a member's name, state, tags, capacity and the rest."""

Source = Literal["self", "probes", "measured", "coordinates", "unknown"]
"""Source of an estimate: the same node, this node's own probes, a measured pair, the coordinates, or nothing."""


class Estimate(NamedTuple):
    """A round-trip time in milliseconds, None if unknown, and its source."""

    rtt_ms: float | None
    source: Source

    @property
    def measured(self) -> bool:
        """Whether it has a better source than coordinates."""
        return self.source in ("self", "probes", "measured")

    @property
    def one_way_ms(self) -> float | None:
        return None if self.rtt_ms is None else self.rtt_ms / 2


class Directory(Protocol):
    """The view of the network that other packages use; the answers may be partial and a little old."""

    def coordinate(self, node: str) -> Coordinate | None: ...

    def coordinate_age_s(self, node: str) -> float | None:
        """Return the seconds since that coordinate was heard; None where there is none."""
        ...

    def nearest(
        self,
        point: Sequence[float],
        k: int,
        condition: Condition | None = None,
        *,
        exclude: frozenset[str] = frozenset(),
    ) -> list[tuple[str, float]]:
        """Return the k nearest nodes to a virtual point that fulfil the condition, and their distances (ms in cost space).

        Ties are broken by name.
        """
        ...

    def owner(self, key: str, r: int = 1) -> list[str]:
        """Return the r nodes that own a key, the first one first (see :mod:`sbon_node.overlay.directory.keys`)."""
        ...

    def route(self, key: str, start: str | None = None) -> list[str]:
        """Return the route of a message from ``start``, by default this node, to the key's first owner, both included.

        See :mod:`sbon_node.overlay.directory.prefix_routing`.
        """
        ...

    def route_to(self, node: str, start: str | None = None) -> list[str]:
        """Return the route to a node likewise."""
        ...

    def estimate_rtt_ms(self, a: str, b: str) -> Estimate:
        """Return the best estimate: own fresh probes, then a fresh measurement of the pair, then the coordinates."""
        ...

    def estimates_ms(self, sources: Sequence[str], targets: Sequence[str], *, measured: bool = True) -> NDArray[np.float64]:
        """Return the round-trip times of :meth:`estimate_rtt_ms` from each to each, shape [sources, targets]; NaN if unknown.

        Without ``measured`` only the coordinates count.
        """
        ...

    def known(self, pair: Pair) -> Measurement | None:
        """Return the measurement of a pair, while it is fresh."""
        ...

    async def measure(
        self, pairs: Sequence[Pair], *, max_age_s: float | None = None, sparing: bool = False
    ) -> Mapping[Pair, Outcome]:
        """See :meth:`sbon_node.overlay.directory.measuring.Measurer.measure`."""
        ...


class Known(Protocol):
    """The methods of :class:`~sbon_node.overlay.membership.service.Membership` that the full view needs."""

    @property
    def own_name(self) -> str: ...

    def alive(self) -> list[str]: ...

    def get(self, name: str) -> MemberView | None: ...

    def coordinate_of(self, name: str) -> Coordinate | None: ...

    def coordinate_age_s(self, name: str) -> float | None: ...

    def rtt_ms(self, name: str) -> float | None: ...


class Measuring(Protocol):
    """The methods of :class:`~sbon_node.overlay.directory.measuring.Measurer` that the full view needs."""

    def known(self, pair: Pair) -> Measurement | None: ...

    def fresh(self) -> Iterable[tuple[Pair, Measurement]]: ...

    async def measure(
        self, pairs: Sequence[Pair], *, max_age_s: float | None = None, sparing: bool = False
    ) -> Mapping[Pair, Outcome]: ...


class FullView(Directory):
    """The view of a node that knows all others by gossip: k-nearest is a scan."""

    def __init__(self, membership: Known, measuring: Measuring) -> None:
        self._membership, self._measuring = membership, measuring

    def coordinate(self, node: str) -> Coordinate | None:
        return self._membership.coordinate_of(node)

    def coordinate_age_s(self, node: str) -> float | None:
        return self._membership.coordinate_age_s(node)

    def nearest(
        self,
        point: Sequence[float],
        k: int,
        condition: Condition | None = None,
        *,
        exclude: frozenset[str] = frozenset(),
    ) -> list[tuple[str, float]]:
        known = [(name, c) for name in self._nodes() if name not in exclude and (c := self.coordinate(name)) is not None]
        if not known or k <= 0:
            return []
        distances = cost_distances(
            point,
            np.array([c.vector for _, c in known]),
            np.array([c.height for _, c in known]),
            np.array([c.load for _, c in known]),
        )
        nearest: list[tuple[str, float]] = []
        for i in np.argsort(distances, kind="stable"):  # The sort is stable and the names are sorted: ties go by name.
            name = known[i][0]
            if condition is None or ((member := self._membership.get(name)) is not None and condition(member)):
                nearest.append((name, float(distances[i])))
                if len(nearest) == k:
                    break
        return nearest

    def owner(self, key: str, r: int = 1) -> list[str]:
        return owners(key, self._nodes(), r)

    def route(self, key: str, start: str | None = None) -> list[str]:
        return self.route_to(self.owner(key)[0], start)

    def route_to(self, node: str, start: str | None = None) -> list[str]:
        """Return the route, computed from this node's latencies: the hops on it are not asked."""
        source = self._membership.own_name if start is None else start
        return PrefixRouting([*self._nodes(), source, node], self._latencies_ms).route(source, node)

    def estimate_rtt_ms(self, a: str, b: str) -> Estimate:
        if a == b:
            return Estimate(0.0, "self")
        own = self._membership.own_name
        if own in (a, b):
            probed = self._membership.rtt_ms(b if a == own else a)
            if probed is not None:
                return Estimate(probed, "probes")
        measured = self.known((a, b))
        if measured is not None:
            return Estimate(measured.rtt_ms, "measured")
        first, second = self.coordinate(a), self.coordinate(b)
        if first is None or second is None:
            return Estimate(None, "unknown")
        return Estimate(first.distance_ms(second), "coordinates")

    def estimates_ms(self, sources: Sequence[str], targets: Sequence[str], *, measured: bool = True) -> NDArray[np.float64]:
        coordinates = {node: self.coordinate(node) for node in {*sources, *targets}}
        estimates_ms = apart_ms([coordinates[node] for node in sources], [coordinates[node] for node in targets])
        rows, columns = positions(sources), positions(targets)
        if measured:
            for pair, result in self._measuring.fresh():
                put_ms(estimates_ms, rows, columns, pair, result.rtt_ms)
            own = self._membership.own_name
            for node in coordinates if own in coordinates else ():
                if (probed := self._membership.rtt_ms(node)) is not None:
                    put_ms(estimates_ms, rows, columns, (own, node), probed)
        for node in coordinates:
            put_ms(estimates_ms, rows, columns, (node, node), 0.0)
        return estimates_ms

    def known(self, pair: Pair) -> Measurement | None:
        return self._measuring.known(pair)

    async def measure(
        self, pairs: Sequence[Pair], *, max_age_s: float | None = None, sparing: bool = False
    ) -> Mapping[Pair, Outcome]:
        return await self._measuring.measure(pairs, max_age_s=max_age_s, sparing=sparing)

    def _latencies_ms(self, node: str, others: Sequence[str]) -> list[float]:
        estimates_ms = (self.estimate_rtt_ms(node, other).one_way_ms for other in others)
        return [math.inf if ms is None else ms for ms in estimates_ms]

    def _nodes(self) -> list[str]:
        return sorted({self._membership.own_name, *self._membership.alive()})


# -- Matrices of round-trip times between many nodes ------------------------------------------------------------------


def apart_ms(sources: Sequence[Coordinate | None], targets: Sequence[Coordinate | None]) -> NDArray[np.float64]:
    """Return the distance in latency from each to each; NaN where either has no coordinate."""
    estimates_ms = np.full((len(sources), len(targets)), np.nan)
    rows = [i for i, coordinate in enumerate(sources) if coordinate is not None]
    columns = [i for i, coordinate in enumerate(targets) if coordinate is not None]
    if rows and columns:
        start_coordinates, other = (
            [coordinate for coordinate in coordinates if coordinate is not None] for coordinates in (sources, targets)
        )
        ends = [np.array([coordinate.vector for coordinate in coordinates]) for coordinates in (start_coordinates, other)]
        heights = [np.array([coordinate.height for coordinate in coordinates]) for coordinates in (start_coordinates, other)]
        estimates_ms[np.ix_(rows, columns)] = apart(*ends) + heights[0][:, None] + heights[1][None, :]
    return estimates_ms


def positions(nodes: Sequence[str]) -> dict[str, list[int]]:
    """Return the indices of each node; a node may be named twice."""
    positions: dict[str, list[int]] = {}
    for position, node in enumerate(nodes):
        positions.setdefault(node, []).append(position)
    return positions


def put_ms(
    matrix_ms: NDArray[np.float64], rows: Mapping[str, list[int]], columns: Mapping[str, list[int]], pair: Pair, rtt_ms: float
) -> None:
    """Store a pair's value in both directions, where its nodes are a row and a column."""
    for a, b in (pair, pair[::-1]):
        for row in rows.get(a, ()):
            for column in columns.get(b, ()):
                matrix_ms[row, column] = rtt_ms

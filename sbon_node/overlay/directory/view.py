"""Nearest nodes, key owners, routes and latency estimates (docs/design.md, section 5)."""

import bisect
import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_node.overlay.directory.measuring import Measurement, Measurer, Outcome, Pair
from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.membership.views import MemberView
from sbon_node.overlay.space.coordinate import MAX_MS, Coordinate
from sbon_node.overlay.space.cost import apart, cost_distances

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


class FullView:
    """The view of a node that knows all others by gossip: k-nearest is a scan. The answers may be a little old."""

    def __init__(self, membership: Membership, measuring: Measurer, load_weight_ms: float) -> None:
        self._membership, self._measuring, self._load_weight_ms = membership, measuring, load_weight_ms

    def coordinate(self, node: str) -> Coordinate | None:
        return self._membership.coordinate_of(node)

    def coordinate_age_s(self, node: str) -> float | None:
        """Return the seconds since that coordinate was heard; None where there is none."""
        return self._membership.coordinate_age_s(node)

    def load_ms(self, per_core: float) -> float:
        """Return the place of a load, runnable processes per core, in the load dimension of the cost space."""
        return min(max(per_core, 0.0) * self._load_weight_ms, MAX_MS)

    def loads_ms(self) -> dict[str, float]:
        """Return the places of all nodes with a coordinate in the load dimension, as they were heard last."""
        return {node: known.load for node in self._nodes() if (known := self.coordinate(node)) is not None}

    def nearest(
        self,
        point: Sequence[float],
        k: int,
        condition: Condition | None = None,
        *,
        exclude: frozenset[str] = frozenset(),
        loads_ms: Mapping[str, float] | None = None,
    ) -> list[tuple[str, float]]:
        """Return the k nearest nodes to a virtual point that fulfil the condition, and their distances (ms); ties go by name.

        ``loads_ms`` are present loads, of the nodes of which more is known than they have published.
        """
        known = [(name, c) for name in self._nodes() if name not in exclude and (c := self.coordinate(name)) is not None]
        if not known or k <= 0:
            return []
        vectors, heights = (np.array([getattr(c, part) for _, c in known]) for part in ("vector", "height"))
        loads = np.array([(loads_ms or {}).get(name, c.load) for name, c in known])
        distances = cost_distances(point, vectors, heights, loads)
        nearest: list[tuple[str, float]] = []
        for i in np.argsort(distances, kind="stable"):  # The sort is stable and the names are sorted: ties go by name.
            name = known[i][0]
            if condition is None or ((member := self._membership.get(name)) is not None and condition(member)):
                nearest.append((name, float(distances[i])))
                if len(nearest) == k:
                    break
        return nearest

    def owner(self, key: str, r: int = 1) -> list[str]:
        """Return the r nodes that own a key, the first one first, as :func:`owners`."""
        return owners(key, self._nodes(), r)

    def route(self, key: str, start: str | None = None) -> list[str]:
        """Return the route of a message from ``start``, by default this node, to the key's first owner, both included."""
        return self.route_to(self.owner(key)[0], start)

    def route_to(self, node: str, start: str | None = None) -> list[str]:
        """Return the route to a node likewise, computed from this node's latencies: the hops on it are not asked."""
        source = self._membership.own_name if start is None else start
        return PrefixRouting([*self._nodes(), source, node], self._latencies_ms).route(source, node)

    def estimate_rtt_ms(self, a: str, b: str) -> Estimate:
        """Return the best estimate: own fresh probes, then a fresh measurement of the pair, then the coordinates."""
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
        """Return the round-trip times of :meth:`estimate_rtt_ms` from each to each, shape [sources, targets]; NaN if unknown.

        Without ``measured`` only the coordinates count.
        """
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
        """Return the measurement of a pair, while it is fresh."""
        return self._measuring.known(pair)

    async def measure(
        self, pairs: Sequence[Pair], *, max_age_s: float | None = None, sparing: bool = False
    ) -> Mapping[Pair, Outcome]:
        """See :meth:`sbon_node.overlay.directory.measuring.Measurer.measure`."""
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
        known = [[coordinate for coordinate in coordinates if coordinate is not None] for coordinates in (sources, targets)]
        ends = [np.array([coordinate.vector for coordinate in coordinates]) for coordinates in known]
        heights = [np.array([coordinate.height for coordinate in coordinates]) for coordinates in known]
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


# -- Key ownership by rendezvous hashing, or highest random weight (Thaler, Ravishankar, IEEE/ACM ToN 1998, section 3) --

# Each node has a weight of its own for each key, and the key belongs to the greatest; so nodes that know the same members name
# the same owners, and a node that leaves moves no keys but its own. All nodes count alike, however large they are.

WEIGHT_BYTES = 16


def owners(key: str, names: Iterable[str], r: int) -> list[str]:
    """Return the ``r`` names of the greatest weights for ``key``, the first owner first; all names if there are fewer.

    The second to r-th nodes own the key when those before them are gone.
    """
    return sorted(names, key=lambda name: (weight(key, name), name), reverse=True)[: max(0, r)]


def weight(key: str, name: str) -> bytes:
    """Return the 16-byte BLAKE2b of the name's length in decimal, a colon, the name and the key, in UTF-8: big-endian numbers."""
    return hashlib.blake2b(f"{len(name)}:{name}{key}".encode(), digest_size=WEIGHT_BYTES).digest()


# -- Prefix routing over near neighbours (Rowstron, Druschel, Middleware 2001, sections 2.2 and 2.5; Tapestry likewise) --

# A node's identifier is a hash of its name, read as digits. Its routing table has, in row r and column c, the nearest of all
# nodes that share its first r digits and have c for the next. A message for a node goes from table to table. Each hop leads to a
# node that shares at least a digit more with the target's identifier, so the message arrives after at most as many hops as there
# are rows in use, on average some log n to the base of the digits. Its first hops, with many nodes to choose from, are short.
#
# Where every node knows all others, a table is a function of the members and the latencies. A node that knows these can compute
# another node's table, except where the two know different latencies. So no node is asked along the route.

ID_BITS = 128
DIGIT_BITS = 2
"""Bits of a digit, here of base 4: small tables, and some five hops among a thousand nodes. Pastry has base 16."""

Latencies = Callable[[str, Sequence[str]], Sequence[float]]
"""Latencies from one node to each of some others; milliseconds, infinite where unknown."""


@functools.lru_cache(maxsize=16_384)
def identifier(name: str) -> int:
    """Return BLAKE2b of the name in UTF-8, 16 bytes long, as a big-endian number."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=ID_BITS // 8).digest(), "big")


class PrefixRouting:
    """The routing tables of the nodes ``names``, computed from the latencies ``latencies_ms`` between them.

    An entry is computed when it is needed. ``digit_bits`` is the number of bits of a digit, a divisor of ``ID_BITS``.
    """

    def __init__(self, names: Iterable[str], latencies_ms: Latencies, digit_bits: int = DIGIT_BITS) -> None:
        self._members = sorted((identifier(name), name) for name in set(names))
        self._latencies_ms, self._bits = latencies_ms, digit_bits

    def entry(self, node: str, row: int, column: int) -> str | None:
        """Return the nearest node that shares the first ``row`` digits of ``node`` and has ``column`` for the next.

        Ties go to the first by name. The result is ``node`` itself, where that is its own digit, and None where there is none.
        """
        rest = ID_BITS - (row + 1) * self._bits
        first = ((identifier(node) >> (rest + self._bits) << self._bits) | column) << rest
        start, end = (bisect.bisect_left(self._members, (bound, "")) for bound in (first, first + (1 << rest)))
        names = sorted(name for _, name in self._members[start:end])
        if node in names or not names:
            return node if names else None
        latencies_ms = self._latencies_ms(node, names)
        return names[min(range(len(names)), key=lambda i: latencies_ms[i])]

    def table(self, node: str) -> dict[tuple[int, int], str]:
        """Return all entries by row and column, but for the node itself."""
        entries: dict[tuple[int, int], str] = {}
        for row in range(self._rows(node)):
            for column in range(1 << self._bits):
                entry = self.entry(node, row, column)
                if entry is not None and entry != node:
                    entries[row, column] = entry
        return entries

    def route(self, source: str, target: str) -> list[str]:
        """Return the nodes on the route to ``target``, a member, both ends included."""
        route, target_id = [source], identifier(target)
        while route[-1] != target:
            row = self._shared(identifier(route[-1]), target_id)
            column = (target_id >> (ID_BITS - (row + 1) * self._bits)) & ((1 << self._bits) - 1)
            hop = self.entry(route[-1], row, column)
            if hop is None:
                raise ValueError(f"{target} is not among the nodes")
            route.append(hop)
        return route

    def _shared(self, first: int, other: int) -> int:
        """Return the number of equal leading digits."""
        return (ID_BITS - (first ^ other).bit_length()) // self._bits

    def _rows(self, node: str) -> int:
        """Return one more than the longest prefix that the node shares with another."""
        own = identifier(node)
        return 1 + max((self._shared(own, other) for other, name in self._members if name != node), default=-1)

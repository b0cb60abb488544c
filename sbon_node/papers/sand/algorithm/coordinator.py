"""The coordinator of some of a query's zones: a table and a step (SAND, section 4).

A zone is a subtree of operators; the paper studies zones of a single operator. Its coordinator is the node that owns the id of
its last operator, the root. A message comes in, and messages to other nodes go out;
:mod:`~sbon_node.papers.sand.algorithm.coordinators` carries them. A zone is placed with the last of its operators: they are
where all together cost least, and only then are nodes told, as the paper batches it.

Departures from the paper: ADDSUBTREE names the readers of an operator and their coordinators; the paper sends the path to the
root along with MAP, but a query need not be a tree. An operator that several others read stays where it was placed. All
coordinators know the considered locations, so each knows its operator's cost at all of them, and not only at its own sources'
places. The alternatives of an operator stay with its coordinator, which OPERATOR REMAPPED goes to; the operator's node is only
informed that the operator is placed there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sbon_node.papers.sand.algorithm.configurations import Bools, Configurations, DeadEndError, Locations, fixed
from sbon_node.placement.model.instance import Floats
from sbon_node.placement.model.network_view import Sent
from sbon_protocol.errors import SbonError
from sbon_protocol.papers.sand import (
    AddSubtree,
    InvalidateMap,
    MapOperator,
    OperatorConfigurations,
    OperatorMapped,
    OperatorPlace,
    OperatorRemapped,
    ZoneVertex,
)

Choose = Callable[[ZoneVertex, Sequence[Configurations], Locations, Bools], Configurations]
"""Function that returns the configurations of a zone's operator with one place chosen.

It takes its children's configurations and the allowed locations.
"""
Charge = Callable[[Floats], Floats]
"""Function from latencies [n, n] to the cost of a byte per second between two locations."""

SHARE = 0.9
"""Share of its own time that a node gives to each message it sends, so that it gives up before its caller does."""
MAX_COST = 1e15
"""Greatest cost that a message can carry; a location that costs more counts as impossible."""


class Rule(NamedTuple):
    """A strategy's rule: how it charges a link, and how it chooses a place."""

    choose: Choose
    charge: Charge


class Step(NamedTuple):
    """The result of a message: messages to send, one after another, and the operators placed."""

    sent: list[Sent]
    placed: list[OperatorPlace]


@dataclass(slots=True)
class _Mapping:
    """A vertex and what is known of it.

    ``placed`` has its place, ``told`` is the place that the nodes know, and ``generation`` counts these.
    """

    vertex: ZoneVertex
    allowed: Bools
    children: dict[str, Configurations] = field(default_factory=dict)
    placed: Configurations | None = None
    told: int | None = None
    generation: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether all children have sent their configurations."""
        return len(self.children) == len(self.vertex.children)


class Coordinator:
    """The part of the node ``name`` in one round of a placement.

    Every method raises :class:`SbonError` ``bad-zone`` for a message that does not fit the round, and :class:`DeadEndError` where
    the rule does.
    """

    def __init__(self, name: str, subtree: AddSubtree, rule: Rule, locations: Locations) -> None:
        self._name, self._rule, self._locations = name, rule, locations
        self._placement, self.round = subtree.placement, subtree.round
        count = len(locations.nodes)
        self._mappings = {vertex.vertex: _Mapping(vertex, allowed_of(vertex, count)) for vertex in subtree.vertices}

    def is_source(self, vertex: str) -> bool:
        """Return whether the vertex is a source of this node."""
        mapping = self._mappings.get(vertex)
        return mapping is not None and not mapping.vertex.children

    def inform(self, vertex: str) -> Step:
        """Inform the readers of a source of this node."""
        if self._name not in self._locations.nodes:
            raise bad(f"{self._name}, the node of {vertex}, is no considered location", vertex)
        place = list(self._locations.nodes).index(self._name)
        return Step(self._upward(self._mappings[vertex].vertex, fixed(place, 0.0, len(self._locations.nodes))), [])

    def map(self, call: MapOperator, caller: str) -> Step:
        """Take a child's configurations; place the operator with those of its last child, and its zone with the last operator.

        Operators below move where that costs less.
        """
        mapping = self._mapping(call.vertex)
        link = next((link for link in mapping.vertex.children if link.vertex == call.child), None)
        if link is None or link.coordinator != caller or self._is_inner(link.vertex):
            raise bad(f"{caller} does not place {call.child} for {call.vertex}", call.vertex)
        if call.child in mapping.children:
            raise bad(f"{call.child} is placed already", call.vertex)
        mapping.children[call.child] = received(call.configurations, len(self._locations.nodes), call.vertex)
        while mapping.is_complete:
            vertex = mapping.vertex
            children = [mapping.children[link.vertex] for link in vertex.children]
            placed = mapping.placed = self._rule.choose(vertex, children, self._locations, mapping.allowed)
            if vertex.vertex == vertex.root:
                settled = self._settle(mapping)
                if vertex.shared:
                    placed = fixed(placed.place, float(placed.delay_ms[placed.place]), len(placed.cost))
                return Step([*settled.sent, *self._upward(vertex, placed)], settled.placed)
            mapping = self._mappings[vertex.readers[0].vertex]
            mapping.children[vertex.vertex] = placed._replace(free=True)
        return Step([], [])

    def remap(self, call: OperatorRemapped, caller: str) -> Step:
        """Move an operator to an alternative (backtracked placement); its children follow where that differs."""
        mapping, vertex = self._mapping(call.vertex), call.vertex
        placed = mapping.placed
        if caller not in {reader.coordinator for reader in mapping.vertex.readers}:
            raise bad(f"{caller} does not place a reader of {vertex}", vertex)
        if mapping.told is None or placed is None or mapping.vertex.shared:
            raise bad(f"{vertex} cannot move", vertex)
        if call.place >= len(placed.cost) or not np.isfinite(placed.cost[call.place]):
            raise bad(f"location {call.place} is no alternative of {vertex}", vertex)
        mapping.placed = placed._replace(place=call.place)
        return self._settle(mapping)

    def _settle(self, root: _Mapping) -> Step:
        """Tell the nodes of a zone's operators where these are, as far as that is new, and move the children of the zone."""
        step = Step([], [])
        waiting = [root]
        while waiting:
            mapping = waiting.pop()
            vertex, placed = mapping.vertex.vertex, mapping.placed
            assert placed is not None
            if mapping.told == placed.place:
                continue
            if mapping.told is not None:
                former = InvalidateMap(self._placement, self.round, vertex, mapping.generation)
                step.sent.append(Sent(self._locations.nodes[mapping.told], former))
                mapping.generation += 1
            mapping.told = placed.place
            notice = OperatorMapped(self._placement, self.round, vertex, mapping.generation, 0.0)
            step.sent.append(Sent(self._locations.nodes[placed.place], notice))
            step.placed.append(OperatorPlace(vertex, placed.place, mapping.generation))
            for row, link in enumerate(mapping.vertex.children):
                wanted, known = int(placed.children[row, placed.place]), mapping.children[link.vertex]
                if self._is_inner(link.vertex):
                    inner = self._mappings[link.vertex]
                    assert inner.placed is not None
                    inner.placed = inner.placed._replace(place=wanted)
                    waiting.append(inner)
                elif wanted != known.place:
                    mapping.children[link.vertex] = known._replace(place=wanted)
                    moved = OperatorRemapped(self._placement, self.round, link.vertex, wanted, 0.0)
                    step.sent.append(Sent(link.coordinator, moved))
        return step

    def _upward(self, vertex: ZoneVertex, configurations: Configurations) -> list[Sent]:
        told = sendable(configurations, vertex.vertex)
        return [
            Sent(reader.coordinator, MapOperator(self._placement, self.round, reader.vertex, vertex.vertex, told, 0.0))
            for reader in vertex.readers
        ]

    def _is_inner(self, vertex: str) -> bool:
        """Return whether the reader of a vertex is in the same zone of this coordinator."""
        mapping = self._mappings.get(vertex)
        return mapping is not None and mapping.vertex.root != vertex

    def _mapping(self, vertex: str) -> _Mapping:
        mapping = self._mappings.get(vertex)
        if mapping is None or not mapping.vertex.children:
            raise bad(f"{self._name} does not place {vertex} in this round", vertex)
        return mapping


def sendable(configurations: Configurations, vertex: str) -> OperatorConfigurations:
    """Return the configurations as a message carries them: the possible locations alone, without the children's places."""
    places = np.flatnonzero(configurations.cost <= MAX_COST)
    if configurations.place not in places:
        raise DeadEndError(vertex)
    return OperatorConfigurations(
        places=tuple(places.tolist()),
        costs=tuple(configurations.cost[places].tolist()),
        delays_ms=tuple(configurations.delay_ms[places].tolist()),
        place=configurations.place,
        leaves=tuple(configurations.leaves.tolist()),
    )


def received(told: OperatorConfigurations, count: int, vertex: str) -> Configurations:
    """Return a child's configurations over ``count`` locations; raise :class:`SbonError` ``bad-zone`` for impossible ones."""
    places, leaves = np.array(told.places, dtype=int), np.array(told.leaves, dtype=int)
    if not len(places) == len(told.costs) == len(told.delays_ms):
        raise bad(f"{len(places)} places with {len(told.costs)} costs and {len(told.delays_ms)} delays", vertex)
    for numbers in (places, leaves):
        if not len(numbers) or numbers[-1] >= count or (np.diff(numbers) <= 0).any():
            raise bad(f"places are not ascending numbers below {count}", vertex)
    if told.place not in told.places:
        raise bad(f"{told.place} is not among the possible places", vertex)
    cost, delay_ms = np.full(count, np.inf), np.zeros(count)
    cost[places], delay_ms[places] = told.costs, told.delays_ms
    return Configurations(cost, delay_ms, np.empty((0, count), dtype=int), told.place, leaves)


def bits(allowed: Bools) -> bytes:
    """Return the form of ``allowed`` [n] that a message carries."""
    return np.packbits(allowed).tobytes()


def allowed_of(vertex: ZoneVertex, count: int) -> Bools:
    """Return the locations [count] where the operator may be. Raises :class:`SbonError` ``bad-zone``."""
    packed = np.frombuffer(vertex.allowed, dtype=np.uint8)
    if vertex.children and len(packed) != (count + 7) // 8:
        raise bad(f"{len(packed)} bytes of allowed locations for {count} locations", vertex.vertex)
    allowed: Bools = np.unpackbits(packed, count=count).astype(np.bool_)
    return allowed


def bad(message: str, vertex: str) -> SbonError:
    """Return the error of a message about ``vertex`` that does not fit the round."""
    return SbonError("bad-zone", message, where=vertex)


def failed(node: str, why: str, by: str = "") -> SbonError:
    """Return the error of a placement that ``node`` ended, as the node ``by`` says."""
    hint = "see `sbon doctor`, or take a strategy without coordinators, like hybrid"
    message = f"{node} does not place its part of the query: {why}"
    return SbonError("zone-failed", message, where=node, hint=hint, details=(by,) if by else ())


def newer(placed: dict[str, OperatorPlace], others: tuple[OperatorPlace, ...]) -> None:
    """Add the places of ``others`` whose generation is greater than the known one."""
    for place in others:
        known = placed.get(place.vertex)
        if known is None or known.generation < place.generation:
            placed[place.vertex] = place

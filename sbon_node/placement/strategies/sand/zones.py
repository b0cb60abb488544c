"""Zones of a query, and the proxy that has their coordinators place them from the sources upwards (SAND, section 4).

The proxy sends every coordinator its zones, then informs the nodes of the sources. When these messages are answered, every
operator is placed. Nothing is reserved meanwhile. If a node fails, the proxy begins again with the next owner in its place, a
limited number of times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sbon_node.errors import SbonError
from sbon_node.placement.model.network_view import Answered, NetworkView, Sent
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.sand.configurations import Bools, DeadEndError
from sbon_node.placement.strategies.sand.coordinator import SHARE, bits, failed, newer
from sbon_node.placement.strategies.sbon.consumer import consumer_of
from sbon_protocol.zones import (
    MAX_TOLD_PAIRS,
    MAX_VERTICES,
    AddSubtree,
    MeasuredPair,
    OperatorMapped,
    OperatorPlace,
    PlacedOperators,
    ZoneLink,
    ZoneVertex,
)

MAX_LEVELS = 16
"""Most zones between a source and the consumer."""


class Proxy:
    """The node that places a query by coordinators.

    A node that another one says has failed is asked no more to coordinate or to host. The other one does not coordinate either:
    it may be the one at fault. So each round that fails has fewer such nodes, unless a third one forged the error.
    """

    def __init__(self, rule: str, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> None:
        self._rule, self._problem, self._view, self._settings = rule, problem, view, settings
        self._placement, self._round, self._tries = f"{view.rng.getrandbits(64):016x}", 0, 0
        self._roots = roots_of(problem, settings.zone_operators)
        self._failed: dict[str, None] = {}
        self._unasked: dict[str, None] = {}
        """Nodes that coordinate no more."""
        self.coordinators: dict[str, str] = {}
        """The coordinator of each operator in the last round."""

    async def place(
        self, nodes: Sequence[str], allowed: Mapping[str, Bools], measured: Sequence[tuple[int, int, float]]
    ) -> dict[str, str]:
        """Return the node of each operator.

        ``allowed`` are the locations [nodes] where an operator may be, ``measured`` the measurements by location. Raises
        :class:`DeadEndError`, and :class:`SbonError` ``zone-failed``, which names the node, once too many have failed.
        """
        operators = len(self._problem.operators)
        if operators + len(self._problem.pinned) > MAX_VERTICES:
            hint = "take another strategy, like hybrid"
            raise SbonError("too-large", f"coordinators place at most {MAX_VERTICES} vertices", where="strategy", hint=hint)
        number = {node: place for place, node in enumerate(nodes)}
        while operators:
            for node in self._failed.keys() & number.keys() - set(self._problem.pinned.values()):
                for places in allowed.values():
                    places[number[node]] = False
            try:
                return await self._round_over(nodes, allowed, measured)
            except SbonError as error:
                self._tries += 1
                if error.code != "zone-failed" or self._tries >= self._settings.zone_tries:
                    raise
                self._failed[error.where] = None
                self._unasked |= dict.fromkeys([error.where, *error.details])
        return {}

    async def _round_over(
        self, nodes: Sequence[str], allowed: Mapping[str, Bools], measured: Sequence[tuple[int, int, float]]
    ) -> dict[str, str]:
        self._round += 1
        owners = {root: self._view.owner(root, exclude=self._unasked) for root in dict.fromkeys(self._roots.values())}
        self.coordinators = {operator.id: owners[self._roots[operator.id]] for operator in self._problem.operators}
        vertices = vertices_of(self._problem, self.coordinators, allowed, self._roots)
        by_node: dict[str, list[ZoneVertex]] = {}
        for vertex in vertices:
            by_node.setdefault(self._node(vertex.vertex), []).append(vertex)
        pairs = tuple(MeasuredPair(a, b, ms) for a, b, ms in measured[-MAX_TOLD_PAIRS:])
        proxy, bound = nodes.index(consumer_of(self._problem)), self._problem.bounds.max_delay_ms
        await self._answers(
            [
                Sent(node, AddSubtree(self._placement, self._round, self._rule, tuple(nodes), proxy, bound, pairs, tuple(own)))
                for node, own in by_node.items()
            ]
        )
        left_s = self._settings.zone_s * SHARE
        answers = await self._answers(
            [
                Sent(self._node(vertex.vertex), OperatorMapped(self._placement, self._round, vertex.vertex, 0, left_s))
                for vertex in vertices
                if not vertex.children
            ]
        )
        return self._hosts(answers, nodes, allowed)

    async def _answers(self, sent: Sequence[Sent]) -> list[PlacedOperators]:
        """Send messages, and return the answers that are not empty. Raises :class:`SbonError` ``zone-failed``."""
        answers: list[Answered] = await self._view.send_all(sent, self._settings.zone_s)
        errors = [(node, answer) for (node, _), answer in zip(sent, answers, strict=True) if isinstance(answer, SbonError)]
        named = {*self.coordinators.values(), *self._problem.pinned.values(), *self._view.nodes()}
        for _, error in errors:
            if error.code == "zone-failed" and error.where in named:
                raise error
        for node, error in errors:
            raise failed(node, error.message) from error
        return [answer for answer in answers if isinstance(answer, PlacedOperators)]

    def _hosts(self, answers: Sequence[PlacedOperators], nodes: Sequence[str], allowed: Mapping[str, Bools]) -> dict[str, str]:
        """Return the operators' nodes by the newest places; coordinators are not trusted to keep to the allowed ones."""
        placed: dict[str, OperatorPlace] = {}
        for answer in answers:
            newer(placed, answer.placed)
        for answer in answers:
            if answer.dead_end in self.coordinators:
                raise DeadEndError(answer.dead_end)
        hosts = {}
        for operator, coordinator in self.coordinators.items():
            at = placed.get(operator)
            if at is None:
                raise failed(coordinator, f"it placed no {operator}")
            if at.place >= len(nodes) or not allowed[operator][at.place]:
                raise failed(coordinator, f"it placed {operator} where it may not be")
            hosts[operator] = nodes[at.place]
        return hosts

    def _node(self, vertex: str) -> str:
        return self._problem.pinned.get(vertex) or self.coordinators[vertex]


def vertices_of(
    problem: PlacementProblem, coordinators: Mapping[str, str], allowed: Mapping[str, Bools], roots: Mapping[str, str]
) -> list[ZoneVertex]:
    """Return the vertices: first the sources, which have no children, then the operators in the problem's order.

    The rates of a vertex that reads another twice are added. ``roots`` are the operators' zones.
    """
    at = {**coordinators, **problem.pinned}
    sources = [vertex for vertex in problem.pinned if any(edge.source == vertex for edge in problem.edges)]
    vertices = []
    for vertex in [*sources, *(operator.id for operator in problem.operators)]:
        read: dict[str, float] = {}
        for edge in problem.edges:
            if edge.target == vertex:
                read[edge.source] = read.get(edge.source, 0.0) + edge.rate_bytes_s
        out = [edge for edge in problem.edges if edge.source == vertex]
        targets = _readers(problem, vertex)
        vertices.append(
            ZoneVertex(
                vertex=vertex,
                children=tuple(ZoneLink(child, at[child], rate) for child, rate in read.items()),
                readers=tuple(ZoneLink(target, at[target]) for target in targets if target in coordinators),
                sent_bytes_s=sum(edge.rate_bytes_s for edge in out),
                shared=len(targets) > 1,
                allowed=bits(allowed[vertex]) if read else b"",
                root=roots.get(vertex, vertex),
            )
        )
    return vertices


def roots_of(problem: PlacementProblem, most: int) -> dict[str, str]:
    """Return the zone of each operator by its last operator; a zone has at most ``most`` operators.

    From the sources upwards, an operator takes the zones of its children into its own, the smallest first. Where paths would
    still pass more than ``MAX_LEVELS`` zones, zones are larger: a message waits for those of all zones above it.
    """
    operators = [operator.id for operator in problem.operators]
    children: dict[str, list[str]] = {operator: [] for operator in operators}
    for operator in operators:
        if len(readers := _readers(problem, operator)) == 1 and readers[0] in children:
            children[readers[0]].append(operator)
    while True:
        roots: dict[str, str] = {}
        members: dict[str, list[str]] = {}
        level: dict[str, int] = {}
        for operator in operators:
            own = [operator]
            for child in sorted(children[operator], key=lambda child: len(members[child])):
                if len(own) + len(members[child]) <= most:
                    own += members.pop(child)
            members[operator] = own
            roots |= dict.fromkeys(own, operator)
        for operator in operators:
            below = [edge.source for edge in problem.edges if edge.target == operator and edge.source in level]
            level[operator] = max((level[child] + (roots[child] != roots[operator]) for child in below), default=1)
        if max(level.values(), default=1) <= MAX_LEVELS or most >= len(operators):
            return roots
        most *= 2


def _readers(problem: PlacementProblem, vertex: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(edge.target for edge in problem.edges if edge.source == vertex))

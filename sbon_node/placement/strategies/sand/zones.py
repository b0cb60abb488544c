"""Zones of a query, and the messages by which their coordinators place it from the sources upwards (SAND, section 4).

Every operator is a zone of its own, the extreme that the paper studies. Its coordinator is the node that owns its id. A
coordinator is a table and a step: a message comes in, messages to other nodes go out. :func:`run` delivers them until there are
none. So a node that knows the network places a query by itself, as its coordinators would. The same steps would work over a real
network, which also needs an encoding, recovery from the death of coordinators, and each coordinator's own latencies, measured or
received (the network view that MAP carries in the paper). Here all coordinators see what one node knows.

Departures from the paper: ADDSUBTREE names an operator's readers to its coordinator; the paper sends the path to the root along
with MAP, but a query need not be a tree. An operator that several others read stays where it was placed. All coordinators know
the considered locations, so each knows its operator's cost at all of them, and not only at its own sources' places.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.strategies.sand.configurations import Bools, Configurations, Locations, fixed


class Zone(NamedTuple):
    """An operator as a zone.

    ``children`` are the operators and sources it reads, each once. ``rates`` are what these send it (bytes/s). ``readers`` are
    the operators that read it. It sends ``sent_bytes_s`` to these and the consumer together. ``shared`` says whether they are
    more than one.
    """

    operator: str
    children: tuple[str, ...]
    rates: tuple[float, ...]
    readers: tuple[str, ...]
    sent_bytes_s: float
    shared: bool


class AddSubtree(NamedTuple):
    """To a coordinator: it places this zone. To the node of a source: the source's readers."""

    zone: Zone


class OperatorMapped(NamedTuple):
    """To the node on which an operator or source is placed, with the alternatives."""

    operator: str
    configurations: Configurations


class Map(NamedTuple):
    """To the coordinator of ``operator``: its child is placed."""

    operator: str
    child: str
    configurations: Configurations


class InvalidateMap(NamedTuple):
    """To the former node of an operator: the operator goes elsewhere."""

    operator: str


class OperatorRemapped(NamedTuple):
    """To the coordinator of ``operator``: its reader has chosen ``place``, one of its alternatives."""

    operator: str
    place: int


Message = AddSubtree | OperatorMapped | Map | InvalidateMap | OperatorRemapped
Sent = tuple[str, Message]
"""A message and the node it goes to."""
Rule = Callable[[Zone, Sequence[Configurations], Locations, Bools], Configurations]
"""A strategy's rule.

It returns the configurations of a zone's operator with one place chosen, from its children's configurations and the allowed
locations.
"""


class Step(NamedTuple):
    """Knowledge of all coordinators of a query.

    It holds the strategy's rule, the locations, the allowed locations of each operator, and the coordinators.
    """

    rule: Rule
    locations: Locations
    allowed: Mapping[str, Bools]
    coordinator: Callable[[str], str]


class Coordinator:
    """A node's part in placing one query. ``mapped`` are the operators and sources that are placed on it."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._zones: dict[str, Zone] = {}
        self._children: dict[str, dict[str, Configurations]] = {}
        self._placed: dict[str, Configurations] = {}
        self.mapped: dict[str, Configurations] = {}

    def receive(self, message: Message) -> list[Sent]:
        match message:
            case AddSubtree(zone):
                self._zones[zone.operator] = zone
                self._children[zone.operator] = {}
            case OperatorMapped(operator, configurations):
                self.mapped[operator] = configurations
                if operator in self._zones and not self._zones[operator].children:
                    return self._upward(self._zones[operator], configurations)
            case Map(operator, child, configurations):
                self._children[operator][child] = configurations
                zone = self._zones[operator]
                if len(self._children[operator]) == len(zone.children):
                    return self._place(zone)
            case InvalidateMap(operator):
                del self.mapped[operator]
            case OperatorRemapped(operator, place):
                return self._move(self._zones[operator], place)
        return []

    def _place(self, zone: Zone) -> list[Sent]:
        """Place the operator once the last of its children is placed. The children move where it wants them."""
        children = [self._children[zone.operator][child] for child in zone.children]
        configurations = self._step.rule(zone, children, self._step.locations, self._step.allowed[zone.operator])
        moves = self._adjust(zone, configurations)
        if zone.shared:
            configurations = fixed(
                configurations.place, float(configurations.delay_ms[configurations.place]), len(configurations.cost)
            )
        self._placed[zone.operator] = configurations
        return [
            *moves,
            (self._node(configurations.place), OperatorMapped(zone.operator, configurations)),
            *self._upward(zone, configurations),
        ]

    def _move(self, zone: Zone, place: int) -> list[Sent]:
        """Move the operator to an alternative (backtracked placement); its children follow where that differs."""
        before = self._placed[zone.operator]
        after = self._placed[zone.operator] = before._replace(place=place)
        return [
            (self._node(before.place), InvalidateMap(zone.operator)),
            (self._node(place), OperatorMapped(zone.operator, after)),
            *self._adjust(zone, after),
        ]

    def _adjust(self, zone: Zone, configurations: Configurations) -> list[Sent]:
        moves: list[Sent] = []
        for row, child in enumerate(zone.children):
            known = self._children[zone.operator][child]
            wanted = int(configurations.children[row, configurations.place])
            if wanted != known.place:
                self._children[zone.operator][child] = known._replace(place=wanted)
                moves.append((self._step.coordinator(child), OperatorRemapped(child, wanted)))
        return moves

    def _upward(self, zone: Zone, configurations: Configurations) -> list[Sent]:
        return [(self._step.coordinator(reader), Map(reader, zone.operator, configurations)) for reader in zone.readers]

    def _node(self, place: int) -> str:
        return self._step.locations.nodes[place]


class Outcome(NamedTuple):
    """The result of the coordinators: ``hosts`` by operator, and the messages of each kind between nodes."""

    hosts: dict[str, str]
    messages: Counter[str]


def run(problem: PlacementProblem, step: Step) -> Outcome:
    """Deliver messages until there are none, and return the outcome.

    The proxy first sends every coordinator its zone, then informs the nodes of the sources. Raises
    :class:`~sbon_node.placement.strategies.sand.configurations.DeadEndError` where a rule does.
    """
    zones = zones_of(problem)
    number = {node: place for place, node in enumerate(step.locations.nodes)}
    nodes: dict[str, Coordinator] = {}
    sent: deque[Sent] = deque()
    for zone in zones:
        sent.append((problem.pinned.get(zone.operator) or step.coordinator(zone.operator), AddSubtree(zone)))
    for zone in zones:
        if not zone.children:
            place = number[problem.pinned[zone.operator]]
            sent.append((problem.pinned[zone.operator], OperatorMapped(zone.operator, fixed(place, 0.0, len(number)))))
    counts: Counter[str] = Counter()
    while sent:
        node, message = sent.popleft()
        counts[type(message).__name__] += 1
        sent += nodes.setdefault(node, Coordinator(step)).receive(message)
    hosts = {operator: node for node, coordinator in nodes.items() for operator in coordinator.mapped}
    return Outcome({operator.id: hosts[operator.id] for operator in problem.operators}, counts)


def zones_of(problem: PlacementProblem) -> list[Zone]:
    """Return the zones: first the sources, which have no children, then the operators in the problem's order.

    The rates of a vertex that reads another twice are added.
    """
    operators = {operator.id for operator in problem.operators}
    sources = [vertex for vertex in problem.pinned if any(edge.source == vertex for edge in problem.edges)]
    zones = []
    for vertex in [*sources, *(operator.id for operator in problem.operators)]:
        read: dict[str, float] = {}
        for edge in problem.edges:
            if edge.target == vertex:
                read[edge.source] = read.get(edge.source, 0.0) + edge.rate_bytes_s
        out = [edge for edge in problem.edges if edge.source == vertex]
        targets = tuple(dict.fromkeys(edge.target for edge in out))
        readers = tuple(target for target in targets if target in operators)
        sent = sum(edge.rate_bytes_s for edge in out)
        zones.append(Zone(vertex, tuple(read), tuple(read.values()), readers, sent, len(targets) > 1))
    return zones

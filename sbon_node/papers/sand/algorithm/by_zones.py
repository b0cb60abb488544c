"""The search that SAND's strategies share: locations considered, measurements, and capacity probes.

The coordinators of the query's zones (see below) place it. They consider the nodes of the query's ends and, where a strategy
asks for them, the nodes on the overlay's routes between the proxy and the sources. Estimated links of the result are measured
and the query is placed again, until no link is an estimate; so a bound on delay is kept by measurements. A coordinator that
breaks the bound all the same is not believed: the proxy then places the query by itself.

Hosts are asked for capacity. Where a host has too little for all its operators, those that fit stay, and the others are placed
around them; otherwise all would move together from one full host to the next. Where no considered node has capacity, all nodes
are considered, if they are not too many to name them in a message. If that gives no placement within the bounds either, because
earlier choices took the capacity, operators are moved until the bounds are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sbon_node.papers.sand.algorithm.configurations import Bools, DeadEndError
from sbon_node.papers.sand.algorithm.coordinator import SHARE, bits, failed, newer
from sbon_node.placement.model.instance import Instance, numbers
from sbon_node.placement.model.latency_matrix import LatencyMatrix, check_pairs
from sbon_node.placement.model.network_view import Answered, NetworkView, Sent
from sbon_node.placement.model.objective import longest_delay_ms
from sbon_node.placement.model.problem import PlacementProblem, total
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.selection.mapping import delay_bound, finish, nowhere_in_time
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.exact import repaired
from sbon_node.placement.strategies.sbon.baselines import consumer_of
from sbon_protocol.api.placement import Assignment, Placement
from sbon_protocol.errors import SbonError
from sbon_protocol.papers.sand import (
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

Between = Callable[[PlacementProblem, NetworkView], set[str]]
"""Function that returns the nodes considered besides the query's ends."""

MEASURED_ROUNDS = 20
"""Most rounds that measure estimated links of the placement; then it stays as it is."""
LATE_MS = 1e-6
"""Tolerance of a bound on delay."""


async def place_by_zones(
    name: str, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, *, between: Between | None = None
) -> Placement:
    """Place the query by its zones; ``name`` is the strategy, whose rule the coordinators know.

    Raises :class:`SbonError` ``no-capacity``, ``delay-bound`` where no placement keeps the bound, ``zone-failed`` where too many
    coordinators fail, or ``too-large`` where none of the nodes considered first has capacity and there are too many nodes in all.
    """
    before = view.probes
    capacity, proxy = KnownCapacity(problem, view), Proxy(name, problem, view, settings)
    ends = set(problem.pinned.values())
    others = sorted((between(problem, view) if between else set()) - ends)
    nodes = sorted(ends.union(_nearest(others, ends, view, settings.zone_locations - len(ends))))
    everyone = sorted({*view.nodes(), *ends})
    for considered in (nodes, everyone):
        check_pairs(considered, name)
        search = _Search(problem, view, settings, proxy, capacity, considered)
        if len(considered) <= settings.zone_locations and await search.run():
            break
    else:
        if not await search.repaired():
            raise await search.refusal()
    return finish(name, problem, search.assignments(), view, before)


def _nearest(nodes: Sequence[str], ends: set[str], view: NetworkView, most: int) -> Sequence[str]:
    """Return the ``most`` nodes whose latencies to the query's ends sum to the least; all where there are fewer."""
    if len(nodes) <= most:
        return nodes
    order = np.argsort(view.latencies_ms(sorted(ends), nodes).sum(axis=0), kind="stable")
    return [nodes[i] for i in order[: max(most, 0)].tolist()]


def on_routes(problem: PlacementProblem, view: NetworkView) -> set[str]:
    """Return the nodes on the overlay's routes between the proxy and the sources (section 4.4), both ways."""
    proxy, nodes = consumer_of(problem), set[str]()
    for node in sorted(set(problem.pinned.values()) - {proxy}):
        nodes.update(view.overlay_route(proxy, node), view.overlay_route(node, proxy))
    return nodes


class _Search:
    """A search over the locations ``nodes``."""

    def __init__(
        self,
        problem: PlacementProblem,
        view: NetworkView,
        settings: PlacementSettings,
        proxy: Proxy,
        capacity: KnownCapacity,
        nodes: Sequence[str],
    ) -> None:
        self._problem, self._view, self._settings, self._room = problem, view, settings, capacity
        self._proxy = proxy
        hosts = set(view.nodes())
        self._hosts = [node for node in nodes if node in hosts]
        ends = set(problem.pinned.values())
        lost = [node for node in nodes if node not in ends and view.coordinate(node) is None]
        self._latencies = LatencyMatrix(view, nodes, lost)
        self._number = {node: number for number, node in enumerate(nodes)}
        self._kept: dict[str, str] = {}
        self._crowded: dict[str, set[str]] = {operator.id: set() for operator in problem.operators}
        self._requested_links: set[tuple[int, int]] = set()
        self._dead_end = ""
        self._wished: Mapping[str, str] | None = None
        self._placed: Mapping[str, str] = {}
        self._moved = False

    async def run(self) -> bool:
        """Return whether the search finds a placement within the bound whose hosts have capacity."""
        rounds = 0
        while True:
            try:
                hosts = await self._mapped()
            except DeadEndError as error:
                self._dead_end = error.operator
                if await self._measured(self._direct()):
                    continue
                return False
            self._placed = self._wished = hosts
            if rounds < MEASURED_ROUNDS and await self._measured(self._links(hosts)):
                rounds += 1
            elif self._late(hosts):
                return False
            elif await self._room.grants(hosts):
                return True
            else:
                await self._room.learn(self._hosts)
                self._spread(hosts)
            await self._view.pause()

    async def repaired(self) -> bool:
        """Improve the result of :meth:`run`, or all operators at the proxy, by moves within capacity and bound."""
        wished = self._wished or dict.fromkeys(self._crowded, consumer_of(self._problem))
        self._moved = True
        for _ in range(MEASURED_ROUNDS):
            await self._room.learn(self._hosts)
            able = [[node for node in self._hosts if node not in self._room.rejected[operator]] for operator in self._crowded]
            if not all(able):
                return False
            nodes, candidates = self._latencies.nodes, [numbers(some, self._number) for some in able]
            instance = Instance(self._problem, nodes, self._latencies.believed_ms(), candidates, self._room.free(nodes))
            hosts = await repaired(self._view, instance, numbers([wished[operator] for operator in self._crowded], self._number))
            if hosts is None:
                return False
            self._placed = instance.named(hosts.tolist())
            if not await self._measured(self._links(self._placed)) and await self._room.grants(self._placed):
                return True
        return False

    def assignments(self) -> list[Assignment]:
        how = "measured" if self._settings.measure and not self._latencies.trouble else "estimated"
        trouble = f"; not all measured: {self._latencies.trouble}" if self._latencies.trouble else ""
        chosen = "moved to where all fit, one" if self._moved else "chosen"
        return [
            Assignment(
                operator=operator,
                node=node,
                reason=f"{chosen} of {len(self._hosts)} locations, links {how}, {self._why(operator)}{trouble}",
            )
            for operator, node in self._placed.items()
        ]

    def _why(self, operator: str) -> str:
        if self._moved:
            return "as where the coordinators chose, not all did"
        return f"by its coordinator {self._proxy.coordinators[operator]}"

    async def refusal(self) -> SbonError:
        """Return the error that states why no placement was accepted."""
        operators = self._problem.operators
        operator = next((operator for operator in operators if operator.id == self._dead_end), operators[0])
        full = all(node in self._room.rejected[operator.id] | self._crowded[operator.id] for node in self._hosts)
        if full or self._problem.bounds.max_delay_ms is None:
            return await self._room.refusal(operator, {})
        return _too_late(self._problem, self._view)

    def _late(self, hosts: Mapping[str, str]) -> bool:
        """Return whether the placement breaks the bound on delay by this node's latencies."""
        bound, ms = self._problem.bounds.max_delay_ms, self._latencies.ms
        if bound is None or not hosts:
            return False

        def latency_ms(a: str, b: str) -> float:
            return float(ms[self._number[a], self._number[b]])

        return longest_delay_ms(self._problem, dict(hosts), latency_ms) > bound + LATE_MS

    async def _mapped(self) -> dict[str, str]:
        allowed: dict[str, Bools] = {}
        for operator in self._crowded:
            allowed[operator] = np.zeros(len(self._latencies.nodes), dtype=np.bool_)
            refused = self._room.rejected[operator] | self._crowded[operator]
            hosts = [self._kept[operator]] if operator in self._kept else self._hosts
            allowed[operator][numbers([node for node in hosts if node not in refused], self._number)] = True
        return await self._proxy.place(self._latencies.nodes, allowed, self._latencies.measured_pairs())

    async def _measured(self, links: Sequence[tuple[int, int]]) -> bool:
        """Measure the estimated links among these, once. Return whether there were any and measuring was allowed."""
        unknown = [link for link in links if not self._latencies.measured[link] and link not in self._requested_links]
        if not unknown or not self._settings.measure or self._latencies.trouble:
            return False
        self._requested_links.update(unknown)
        await self._latencies.measure(unknown)
        return True

    def _links(self, hosts: Mapping[str, str]) -> list[tuple[int, int]]:
        at = {**self._problem.pinned, **hosts}
        return [(self._number[at[edge.source]], self._number[at[edge.target]]) for edge in self._problem.edges]

    def _direct(self) -> list[tuple[int, int]]:
        """Return the direct links from the sources to the proxy, where the delay is bounded.

        They are measured, so that no query is refused because of an estimate alone.
        """
        if self._problem.bounds.max_delay_ms is None:
            return []
        proxy = self._number[consumer_of(self._problem)]
        return [(self._number[node], proxy) for node in self._problem.pinned.values()]

    def _spread(self, hosts: Mapping[str, str]) -> None:
        """Exclude the node for each operator that does not fit there beside the earlier ones.

        Operators held at a node come first.
        """
        needs = {operator.id: operator.needs for operator in self._problem.operators}
        beside: dict[str, list[str]] = {}
        full: set[str] = set()
        for operator, node in sorted(hosts.items(), key=lambda pair: pair[0] not in self._kept):
            neighbours = beside.setdefault(node, [])
            both = total([needs[operator_id] for operator_id in (*neighbours, operator)])
            wanted = np.array([*both.amounts, len(neighbours) + 1.0])
            if (wanted > self._room.free([node])[0] + 1e-9).any():
                self._crowded[operator].add(node)
                full.add(node)
            else:
                neighbours.append(operator)
        self._kept |= {operator: node for node in sorted(full) for operator in beside[node]}


def _too_late(problem: PlacementProblem, view: NetworkView) -> SbonError:
    """Return the error if no placement keeps the bound on delay.

    Sources are too far from the consumer, or capacity within the bound is short.
    """
    bound, proxy = problem.bounds.max_delay_ms, consumer_of(problem)
    assert bound is not None
    sources = {edge.source for edge in problem.edges}
    direct_ms = max(view.latency_ms(node, proxy) for vertex, node in problem.pinned.items() if vertex in sources)
    if direct_ms > bound:
        return delay_bound(bound, direct_ms)
    return nowhere_in_time(bound)


# -- Zones of a query, and the proxy that has their coordinators place them from the sources upwards (SAND, section 4) --

# The proxy sends every coordinator its zones, then informs the nodes of the sources. When these messages are answered, every
# operator is placed. Nothing is reserved meanwhile. If a node fails, the proxy begins again with the next owner in its place, a
# limited number of times.

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

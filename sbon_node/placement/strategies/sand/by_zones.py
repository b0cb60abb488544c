"""The search that SAND's strategies share: locations considered, measurements, and capacity probes.

The coordinators of the query's zones (:mod:`~sbon_node.placement.strategies.sand.zones`) place it. They consider the nodes of the
query's ends and, where a strategy asks for them, the nodes on the overlay's routes between the proxy and the sources. Estimated
links of the result are measured and the query is placed again, until no link is an estimate; so a bound on delay is kept by
measurements.

Hosts are asked for capacity. Where a host has too little for all its operators, those that fit stay, and the others are placed
around them; otherwise all would move together from one full host to the next. Where no considered node has capacity, all nodes
are considered. If that gives no placement within the bounds either, because earlier choices took the capacity, operators are
moved until the bounds are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sbon_node.errors import SbonError
from sbon_node.model.placement import Assignment, Placement
from sbon_node.placement.model.all_pairs import check_pairs
from sbon_node.placement.model.instance import Floats, Instance, numbers
from sbon_node.placement.model.latency_matrix import LatencyMatrix
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem, total
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.selection.mapping import delay_bound, finish, nowhere_in_time
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.repair import repaired
from sbon_node.placement.strategies.sand.configurations import DeadEndError, Locations
from sbon_node.placement.strategies.sand.zones import Outcome, Rule, Step, run
from sbon_node.placement.strategies.sbon.consumer import consumer_of

Charge = Callable[[Floats], Floats]
"""Function from latencies [n, n] to the cost of a byte per second between two locations."""
Between = Callable[[PlacementProblem, NetworkView], set[str]]
"""Function that returns the nodes considered besides the query's ends."""

MEASURED_ROUNDS = 20
"""Most rounds that measure estimated links of the placement; then it stays as it is."""
ROUNDING_MS = 1e-9


def by_latency_charge(latency_ms: Floats) -> Floats:
    return latency_ms


async def place_by_zones(
    name: str,
    rule: Rule,
    problem: PlacementProblem,
    view: NetworkView,
    settings: PlacementSettings,
    *,
    charge: Charge,
    between: Between | None = None,
) -> Placement:
    """Place the query by its zones.

    Raises :class:`SbonError` ``no-capacity``, ``delay-bound`` where no placement keeps the bound, or ``too-large`` where none of
    the nodes considered first has capacity and there are too many nodes in all.
    """
    before = view.probes
    capacity = KnownCapacity(problem, view)
    nodes = sorted({*problem.pinned.values(), *(between(problem, view) if between else ())})
    everyone = sorted({*view.nodes(), *problem.pinned.values()})
    for considered in (nodes, everyone):
        check_pairs(considered, name)
        search = _Search(problem, view, settings, rule, charge, capacity, considered)
        if await search.run():
            break
    else:
        if not await search.repaired():
            raise await search.refusal()
    return finish(name, problem, search.assignments(), view, before)


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
        rule: Rule,
        charge: Charge,
        capacity: KnownCapacity,
        nodes: Sequence[str],
    ) -> None:
        self._problem, self._view, self._settings, self._room = problem, view, settings, capacity
        self._rule, self._charge = rule, charge
        hosts = set(view.nodes())
        self._hosts = [node for node in nodes if node in hosts]
        ends = set(problem.pinned.values())
        lost = [node for node in nodes if node not in ends and view.coordinate(node) is None]
        self._latencies = LatencyMatrix(view, nodes, lost)
        self._number = {node: number for number, node in enumerate(nodes)}
        self._kept: dict[str, str] = {}
        self._crowded: dict[str, set[str]] = {operator.id: set() for operator in problem.operators}
        self._coordinator = {operator.id: view.owner(operator.id) for operator in problem.operators}
        self._requested_links: set[tuple[int, int]] = set()
        self._dead_end = ""
        self._outcome: Outcome | None = None
        self._placed: Mapping[str, str] = {}
        self._moved = False

    async def run(self) -> bool:
        """Return whether the search finds a placement within the bound whose hosts have capacity."""
        rounds = 0
        while True:
            try:
                self._outcome = self._mapped()
            except DeadEndError as error:
                self._dead_end = error.operator
                if await self._measured(self._direct()):
                    continue
                return False
            self._placed = hosts = self._outcome.hosts
            if rounds < MEASURED_ROUNDS and await self._measured(self._links(hosts)):
                rounds += 1
            elif await self._room.grants(hosts):
                return True
            else:
                await self._room.learn(self._hosts)
                self._spread(hosts)
            await self._view.pause()

    async def repaired(self) -> bool:
        """Improve the result of :meth:`run`, or all operators at the proxy, by moves within capacity and bound."""
        wished = self._outcome.hosts if self._outcome else dict.fromkeys(self._crowded, consumer_of(self._problem))
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
        coordinator = f"coordinator {self._coordinator[operator]}"
        return f"as where {coordinator} and others chose, not all did" if self._moved else f"as {coordinator} would"

    async def refusal(self) -> SbonError:
        """Return the error that states why no placement was accepted."""
        operator = next(operator for operator in self._problem.operators if operator.id == self._dead_end)
        full = all(node in self._room.rejected[operator.id] | self._crowded[operator.id] for node in self._hosts)
        if full or self._problem.bounds.max_delay_ms is None:
            return await self._room.refusal(operator, {})
        return _late(self._problem, self._view)

    def _mapped(self) -> Outcome:
        latency_ms = self._latencies.believed_ms()
        proxy = self._number[consumer_of(self._problem)]
        bound = self._problem.bounds.max_delay_ms
        slack_ms = np.full(len(latency_ms), np.inf) if bound is None else bound + ROUNDING_MS - latency_ms[:, proxy]
        locations = Locations(self._latencies.nodes, latency_ms, self._charge(latency_ms), proxy, slack_ms)
        allowed = {}
        for operator in self._crowded:
            allowed[operator] = np.zeros(len(latency_ms), dtype=np.bool_)
            refused = self._room.rejected[operator] | self._crowded[operator]
            hosts = [self._kept[operator]] if operator in self._kept else self._hosts
            allowed[operator][numbers([node for node in hosts if node not in refused], self._number)] = True
        return run(self._problem, Step(self._rule, locations, allowed, self._coordinator.__getitem__))

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


def _late(problem: PlacementProblem, view: NetworkView) -> SbonError:
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

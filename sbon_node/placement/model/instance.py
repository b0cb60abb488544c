"""A placement problem over chosen hosts, as arrays for exact and approximate solvers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.model.problem import PlacementProblem, in_order
from sbon_node.placement.model.queueing import OVERLOADED_MS, Server, ThroughServers, side_by_side

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]

RESOURCES = 4
"""Cores, megabytes, bytes per second, and number of operators."""
TOO_LONG_MS = 1e9
"""Processing time where a host cannot keep up with the rows."""


class Cost(NamedTuple):
    """Costs of k placements, each array [k].

    ``additive`` is the part of the objective that is a sum over links. ``delay_ms`` is the delay. ``overload`` is the overload of
    hosts as shares of the demand, summed over operators and resources. ``latency_ms`` is the latency by queueing, 0 where the
    objective does not ask for it.
    """

    additive: Floats
    delay_ms: Floats
    overload: Floats
    latency_ms: Floats


class Instance:
    """A placement problem with numbered nodes, latencies and candidate hosts.

    ``latency_ms`` [n, n] is the one-way latency from row to column. ``candidates`` holds the numbers of each operator's candidate
    hosts, in the problem's order of operators. ``free`` [n, RESOURCES] is the capacity that each node has left, infinite where it
    is unknown. ``servers`` hold what each node serves already; without them all nodes are idle and have speed 1. ``loads_ms`` [n]
    is each node's place in the load dimension of the cost space, 0 by default.

    A link costs usage by its length in the cost space: its latency, and at right angles the loads of the hosts of operators at
    its ends (SBON, section 3.1.1). Delays are latencies alone. A placement is a vector with one node number for each operator.
    """

    def __init__(
        self,
        problem: PlacementProblem,
        nodes: Sequence[str],
        latency_ms: Floats,
        candidates: Sequence[Ints],
        free: Floats | None = None,
        servers: Sequence[Server] | None = None,
        loads_ms: Floats | None = None,
    ) -> None:
        self.problem, self.nodes, self.latency_ms, self.servers = problem, nodes, latency_ms, servers
        self._loads_ms = loads_ms if loads_ms is not None and loads_ms.any() else None
        self.candidates = list(candidates)
        self.operators = [operator.id for operator in problem.operators]
        self.number = {node: number for number, node in enumerate(nodes)}
        self.free = np.full((len(nodes), RESOURCES), np.inf) if free is None else free
        self.needs = np.array([(*operator.needs.amounts, 1.0) for operator in problem.operators]).reshape(-1, RESOURCES)
        self._row_core_ms = np.array([operator.row_core_ms for operator in problem.operators])
        self._load = np.array([operator.load for operator in problem.operators])
        self._vertex = {vertex: number for number, vertex in enumerate([*self.operators, *problem.pinned])}
        self._pinned_at = np.array([self.number[node] for node in problem.pinned.values()], dtype=int)
        self.sources = np.array([self._vertex[edge.source] for edge in problem.edges], dtype=int)
        self.targets = np.array([self._vertex[edge.target] for edge in problem.edges], dtype=int)
        self.rates = np.array([edge.rate_bytes_s for edge in problem.edges])
        self._loaded = (self.sources < len(self.operators)) * 1.0, (self.targets < len(self.operators)) * 1.0
        self._order = [self._vertex[vertex] for vertex in in_order(problem)]
        self._into: list[list[int]] = [[] for _ in self._vertex]
        for edge, target in enumerate(self.targets.tolist()):
            self._into[target].append(edge)
        count = len(self.operators)
        ends = list(zip(self.sources.tolist(), self.targets.tolist(), strict=True))
        self._inner = sorted({(min(s, t), max(s, t)) for s, t in ends if s < count and t < count})
        self._beside: list[Counter[int]] = [Counter() for _ in self.operators]
        for (source, target), rate in zip(ends, self.rates.tolist(), strict=True):
            for end, other in ((source, target), (target, source)):
                if end < count <= other:
                    self._beside[end][self.pinned_node(other)] += rate
        self._block: tuple[Ints, Ints, Floats] | None = None
        self._scale: float | None = None
        self._through = self._queueing()

    def narrowed(self, candidates: Sequence[Ints], latency_ms: Floats | None = None) -> Instance:
        """Return the same instance with other candidates, or other latencies."""
        other = copy(self)
        other.candidates, other._block = list(candidates), None
        if latency_ms is not None:
            other.latency_ms, other._scale = latency_ms, None
            other._through = other._queueing()
        return other

    def _queueing(self) -> ThroughServers | None:
        if not self.problem.objective.latency:
            return None
        known = () if self.servers is None else side_by_side(self.servers)
        return ThroughServers(self.problem, self.latency_ms, self._pinned_at.tolist(), *known)

    def lengths_ms(self, ms: Floats, links: int | slice, sources: Ints | int, targets: Ints | int) -> Floats:
        """Return the lengths in the cost space of links with latencies ``ms`` between ``sources`` and ``targets``, by numpy's
        rules of broadcasting.
        """
        if self._loads_ms is None:
            return ms
        at_source, at_target = (is_operator[links] for is_operator in self._loaded)
        lengths: Floats = np.hypot(ms, self._loads_ms[sources] * at_source + self._loads_ms[targets] * at_target)
        return lengths

    def link_cost(self, link: int, per_ms: float = 0.0) -> Floats:
        """Return the additive cost of a link by candidates of its ends, [sources, targets].

        ``per_ms`` is added for each millisecond.
        """
        weights, rate_bytes_s = self.problem.objective, float(self.rates[link])
        sources, targets = self._hosts(int(self.sources[link])), self._hosts(int(self.targets[link]))
        ms = self._block_ms(sources, targets)
        cost = self.lengths_ms(ms, link, sources[:, None], targets) * (weights.usage * rate_bytes_s / 1000.0) + ms * per_ms
        if weights.bandwidth:
            cost = cost + weights.bandwidth * rate_bytes_s * (sources[:, None] != targets[None, :])
        return cost

    def factors(self, per_ms: float = 0.0) -> tuple[list[Floats], dict[tuple[int, int], Floats]]:
        """Return the costs of single operators [candidates] and of pairs [candidates, candidates], the lower number first."""
        count = len(self.operators)
        unary = [np.zeros(len(candidates)) for candidates in self.candidates]
        pairwise: dict[tuple[int, int], Floats] = {}
        for link, (source, target) in enumerate(zip(self.sources.tolist(), self.targets.tolist(), strict=True)):
            if source >= count and target >= count:
                continue
            costs = self.link_cost(link, per_ms)
            if source >= count:
                unary[target] += costs[0]
            elif target >= count:
                unary[source] += costs[:, 0]
            else:
                key, costs = ((source, target), costs) if source < target else ((target, source), costs.T)
                pairwise[key] = pairwise[key] + costs if key in pairwise else costs
        return unary, pairwise

    def pinned_neighbours(self, operator: int) -> Ints:
        """Return the sorted node numbers of the pinned vertices linked with ``operator``."""
        return np.array(sorted(self._beside[operator]), dtype=int)

    def pinned_per_ms(self, operator: int, per_ms: float = 0.0) -> Floats:
        """Return the additive cost of a millisecond to each of :meth:`pinned_neighbours`, as in :meth:`link_cost`."""
        weight, rates = self.problem.objective.usage / 1000.0, self._beside[operator]
        return np.array([weight * rates[node] + per_ms for node in self.pinned_neighbours(operator).tolist()])

    def pinned_node(self, vertex: int) -> int:
        """Return the node number of a pinned vertex; these are numbered after the operators."""
        return int(self._pinned_at[vertex - len(self.operators)])

    def sinks(self) -> list[int]:
        """Return the node numbers of pinned vertices that send nothing."""
        return sorted({self.pinned_node(v) for v in range(len(self.operators), len(self._vertex)) if v not in self.sources})

    def at_home(self, hosts: Ints) -> Ints:
        """Return the consumers' nodes among ``hosts``, where the delay is bounded: these keep the bound if any placement does."""
        wanted = [] if self.problem.bounds.max_delay_ms is None else self.sinks()
        return np.intersect1d(np.array(wanted, dtype=int), hosts)

    def inner_links(self) -> list[tuple[int, int]]:
        """Return the pairs of linked operators, each once."""
        return self._inner

    def evaluate(self, hosts: Ints) -> Cost:
        """Return the costs of placements [k, operators]."""
        many = len(hosts)
        at = np.concatenate([hosts, np.broadcast_to(self._pinned_at, (many, len(self._pinned_at)))], axis=1)
        ends = at[:, self.sources], at[:, self.targets]
        ms = self.latency_ms[ends]
        weights = self.problem.objective
        additive = self.lengths_ms(ms, slice(None), *ends) @ (self.rates * weights.usage / 1000.0)
        if weights.bandwidth:
            additive = additive + weights.bandwidth * ((ends[0] != ends[1]) @ self.rates)
        queued = np.zeros(many) if self._through is None else np.sum(self._through.evaluate(hosts), axis=0)
        return Cost(additive, self._delay(ms, self._takes_ms(hosts)), self._overload(hosts), queued)

    def total(self, cost: Cost) -> Floats:
        """Return the objective of each placement, without overload."""
        weights = self.problem.objective
        total: Floats = cost.additive + weights.delay * cost.delay_ms + weights.latency * cost.latency_ms
        return total

    @property
    def scale(self) -> float:
        """An upper bound on the objective of any placement whose hosts keep up."""
        if self._scale is None:
            weights, rate = self.problem.objective, float(self.rates.sum())
            per_ms = weights.usage * rate / 1000.0 + (weights.delay + weights.latency) * len(self._vertex)
            longest_ms = float(self.latency_ms.max(initial=0.0))
            longest_ms += 0.0 if self._loads_ms is None else 2 * float(self._loads_ms.max(initial=0.0))
            self._scale = 1.0 + per_ms * longest_ms + weights.bandwidth * rate + weights.latency * OVERLOADED_MS
        return self._scale

    def named(self, hosts: Sequence[int]) -> dict[str, str]:
        """Return the name of each operator's node."""
        return {operator: self.nodes[host] for operator, host in zip(self.operators, hosts, strict=True)}

    def _block_ms(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latencies from each source to each target; cached, as operators with the same candidates ask alike."""
        if self._block is None or self._block[0] is not sources or self._block[1] is not targets:
            self._block = sources, targets, self.latency_ms[np.ix_(sources, targets)]
        return self._block[2]

    def _hosts(self, vertex: int) -> Ints:
        count = len(self.operators)
        return self.candidates[vertex] if vertex < count else self._pinned_at[vertex - count, None]

    def _takes_ms(self, hosts: Ints) -> Floats:
        """Return the times of :func:`~sbon_node.placement.model.objective.processing_ms`, [k, operators]."""
        if not self._row_core_ms.any() or np.isinf(self.free[:, 0]).all():
            return np.zeros(hosts.shape)
        together = hosts[:, :, None] == hosts[:, None, :]
        spare = self.free[hosts, 0] - together @ self._load
        takes_ms = np.where(spare > 0, self._row_core_ms / np.maximum(spare, 1e-12), TOO_LONG_MS)
        return np.where(self._row_core_ms == 0, 0.0, takes_ms)

    def _delay(self, ms: Floats, takes_ms: Floats) -> Floats:
        reached = np.zeros((len(self._vertex), len(ms)))
        for vertex in self._order:
            for edge in self._into[vertex]:
                np.maximum(reached[vertex], reached[self.sources[edge]] + ms[:, edge], out=reached[vertex])
            if vertex < len(self.operators):
                reached[vertex] += takes_ms[:, vertex]
        longest: Floats = reached.max(axis=0, initial=0.0)
        return longest

    def _overload(self, hosts: Ints) -> Floats:
        if np.isinf(self.free).all():
            return np.zeros(len(hosts))
        together = hosts[:, :, None] == hosts[:, None, :]
        demand = together @ self.needs
        excess = np.where(demand > self.free[hosts] + 1e-9, 1.0 - self.free[hosts] / np.maximum(demand, 1e-12), 0.0)
        overload: Floats = excess.sum(axis=(1, 2))
        return overload


def numbers(nodes: Sequence[str], among: Mapping[str, int]) -> Ints:
    return np.array([among[node] for node in nodes], dtype=int)

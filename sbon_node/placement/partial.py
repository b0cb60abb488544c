"""A placement under way: where operators are, what their hosts have left, how long ways are so far (OPB, section III)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sbon_node.engine.interface import Needs
from sbon_node.placement.network_view import Answer, NetworkView
from sbon_node.placement.objective import processing_ms, reached_ms
from sbon_node.placement.problem import Edge, Operator, PlacementProblem, total

Floats = NDArray[np.float64]


class Partial:
    """``hosts`` are those of the operators placed so far. What nodes have free is learnt from their answers; of one that has not
    answered, nothing is full and nothing takes time."""

    def __init__(self, problem: PlacementProblem, view: NetworkView) -> None:
        self._problem, self._view = problem, view
        self._operators = {operator.id: operator for operator in problem.operators}
        self.inputs: dict[str, list[Edge]] = {operator.id: [] for operator in problem.operators}
        self.outputs: dict[str, list[Edge]] = {operator.id: [] for operator in problem.operators}
        for edge in problem.edges:
            self.inputs.setdefault(edge.target, []).append(edge)
            self.outputs.setdefault(edge.source, []).append(edge)
        self._ends: dict[str, tuple[str, ...]] = {}
        for operator in reversed(problem.operators):
            targets = [edge.target for edge in self.outputs[operator.id]]
            ends = {problem.pinned[t] for t in targets if t in problem.pinned}
            self._ends[operator.id] = tuple(sorted(ends.union(*(self._ends.get(t, ()) for t in targets))))
        self._free: dict[str, Needs] = {}
        self.hosts: dict[str, str] = {}
        self.late = False
        """Whether a node was passed over because the way through it takes too long, since the last operator was placed."""

    def know(self, answers: Mapping[str, Answer]) -> None:
        """What nodes have free without this query."""
        self._free |= {node: answer.room for node, answer in answers.items()}

    def place(self, operator: str, node: str) -> None:
        self.hosts[operator], self.late = node, False

    def remove(self, operator: str) -> None:
        """It is to be placed anew."""
        self.hosts.pop(operator, None)

    def node(self, vertex: str) -> str | None:
        """Where it is pinned, or placed already."""
        return self._problem.pinned.get(vertex, self.hosts.get(vertex))

    def ends(self, operator: str) -> tuple[str, ...]:
        """Nodes of the consumers that what it sends comes to, sorted."""
        return self._ends[operator]

    def cores(self) -> dict[str, float]:
        """Free at each node that has answered, without this query."""
        return {node: free.cores for node, free in self._free.items()}

    def left(self, nodes: Sequence[str]) -> Floats:
        """Cores, megabytes and bytes a second [nodes, 3] that are left beside what is placed; infinite where not known."""
        found = np.full((len(nodes), 3), math.inf)
        crowd: dict[str, list[Needs]] = {}
        for operator, node in self.hosts.items():
            crowd.setdefault(node, []).append(self._operators[operator].needs)
        for row, node in enumerate(nodes):
            free = self._free.get(node)
            if free is not None:
                found[row] = np.subtract(_resources(free), _resources(total(crowd.get(node, ()))))
        return found

    def fits(self, operator: Operator, nodes: Sequence[str]) -> NDArray[np.bool_]:
        """Which have room for it, [nodes]; one whose cores it would take to the last keeps up with no row that comes by
        chance."""
        room = (np.array(_resources(operator.needs)) <= self.left(nodes) + 1e-9).all(axis=1)
        found: NDArray[np.bool_] = room & np.isfinite(self.takes_ms(operator, nodes))
        return found

    def takes_ms(self, operator: Operator, nodes: Sequence[str]) -> Floats:
        """What a row takes at each, [nodes] (OPB, equation 4), beside what is placed there; infinite where it cannot keep up."""
        if not operator.row_core_ms:
            return np.zeros(len(nodes))
        load = dict.fromkeys(nodes, operator.load)
        for one, node in self.hosts.items():
            if node in load:
                load[node] += self._operators[one].load
        spare = np.array([self._free[node].cores - load[node] if node in self._free else math.inf for node in nodes])
        return np.where(spare > 0, operator.row_core_ms / np.maximum(spare, 1e-12), math.inf)

    def arrived_ms(self, operator: Operator, nodes: Sequence[str]) -> Floats:
        """The longest way from a producer to what the operator has done at each of ``nodes``, [nodes]; all it reads from is
        placed. Others that are there already become slower by it, which :meth:`delay_ms` reckons with."""
        reached = self._reached(self.hosts)
        arrived = np.zeros(len(nodes))
        for edge in self.inputs[operator.id]:
            source = self.node(edge.source)
            assert source is not None
            arrived = np.maximum(arrived, reached.get(edge.source, 0.0) + self._view.latencies_ms([source], nodes)[0])
        found: Floats = arrived + self.takes_ms(operator, nodes)
        return found

    def through_ms(self, operator: Operator, nodes: Sequence[str]) -> Floats:
        """As :meth:`arrived_ms`, and straight on to the operator's consumers, [nodes]."""
        onward = self._view.latencies_ms(self.ends(operator.id), nodes)
        found: Floats = self.arrived_ms(operator, nodes) + (onward.max(axis=0) if len(onward) else 0.0)
        return found

    def delay_ms(self, operator: str | None = None, node: str = "") -> float:
        """The longest way through what is placed, with ``operator`` at ``node`` as well, and from each operator whose readers are
        not placed straight on to its consumers."""
        return max(self._ways_ms(operator, node), default=0.0)

    def excess_ms(self, operator: str | None = None, node: str = "") -> float:
        """By how much ways are longer than the bound, added up over those that end in different ones."""
        bound = self._problem.bounds.max_delay_ms
        return 0.0 if bound is None else sum(max(0.0, ms - bound - 1e-9) for ms in self._ways_ms(operator, node))

    def lateness(self, operator: Operator, node: str) -> str:
        """Why the bound on delay keeps the operator from ``node``; empty where it does not."""
        bound = self._problem.bounds.max_delay_ms
        if bound is None or (ms := self.delay_ms(operator.id, node)) <= bound + 1e-9:
            return ""
        self.late = True
        return f"ways through it take {ms:.1f} ms, {bound:g} are allowed"

    def links(self) -> list[tuple[str, str]]:
        """Pairs of nodes between which a stream goes, of what is placed."""
        ends = ((self.node(edge.source), self.node(edge.target)) for edge in self._problem.edges)
        return list(dict.fromkeys((a, b) for a, b in ends if a is not None and b is not None and a != b))

    def _ways_ms(self, operator: str | None, node: str) -> list[float]:
        """The longest way that ends in each operator that a consumer reads, or none that is placed."""
        hosts = self.hosts if operator is None else {**self.hosts, operator: node}
        reached, found = self._reached(hosts), []
        for one, host in hosts.items():
            if any(edge.target not in hosts for edge in self.outputs[one]):
                onward = max((self._view.latency_ms(host, end) for end in self._ends[one] if end != host), default=0.0)
                found.append(reached[one] + onward)
        return found

    def _reached(self, hosts: Mapping[str, str]) -> dict[str, float]:
        """The longest way to each vertex that is placed."""
        return reached_ms(self._problem, hosts, self._view.latency_ms, processing_ms(self._problem, hosts, self.cores()))


def _resources(needs: Needs) -> tuple[float, float, float]:
    return needs.cores, needs.memory_mb, needs.bandwidth_bytes_s

"""A partial placement: the chosen hosts, their free capacity, and the delays (OPB, section III)."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.model.network_view import Answer, NetworkView
from sbon_node.placement.model.objective import processing_ms, reached_ms
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem, total
from sbon_protocol.api.operators import Needs

Floats = NDArray[np.float64]


class Partial:
    """Hosts of the operators placed so far; a node that has not told its free capacity counts as free, and as infinitely fast."""

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
        """Whether the bound on delay has excluded a node since the last operator was placed."""

    def know(self, answers: Mapping[str, Answer]) -> None:
        """Store the free capacity of nodes, without this query."""
        self._free |= {node: answer.capacity for node, answer in answers.items()}

    def place(self, operator: str, node: str) -> None:
        self.hosts[operator], self.late = node, False

    def remove(self, operator: str) -> None:
        """Remove the operator, to be placed again."""
        self.hosts.pop(operator, None)

    def node(self, vertex: str) -> str | None:
        """Return the node where the vertex is pinned or placed; None if neither."""
        return self._problem.pinned.get(vertex, self.hosts.get(vertex))

    def ends(self, operator: str) -> tuple[str, ...]:
        """Return the nodes of the consumers that the operator's rows reach, sorted."""
        return self._ends[operator]

    def cores(self) -> dict[str, float]:
        """Return the free cores of each node that has answered, without this query."""
        return {node: free.cores for node, free in self._free.items()}

    def left(self, nodes: Sequence[str]) -> Floats:
        """Return the free cores, megabytes and bytes/s beside the placed operators, [nodes, 3]; infinite where unknown."""
        free_amounts = np.full((len(nodes), 3), math.inf)
        crowd: dict[str, list[Needs]] = {}
        for operator, node in self.hosts.items():
            crowd.setdefault(node, []).append(self._operators[operator].needs)
        for row, node in enumerate(nodes):
            free = self._free.get(node)
            if free is not None:
                free_amounts[row] = np.subtract(free.amounts, total(crowd.get(node, ())).amounts)
        return free_amounts

    def fits(self, operator: Operator, nodes: Sequence[str]) -> NDArray[np.bool_]:
        """Return which nodes have capacity for the operator, [nodes], and a free core, to keep up with rows at random times."""
        capacity = (np.array(operator.needs.amounts) <= self.left(nodes) + 1e-9).all(axis=1)
        fitting: NDArray[np.bool_] = capacity & np.isfinite(self.takes_ms(operator, nodes))
        return fitting

    def takes_ms(self, operator: Operator, nodes: Sequence[str]) -> Floats:
        """Return the processing time of a row at each node (OPB, equation 4), [nodes]; infinite where it cannot keep up."""
        if not operator.row_core_ms:
            return np.zeros(len(nodes))
        load = dict.fromkeys(nodes, operator.load)
        for operator_id, node in self.hosts.items():
            if node in load:
                load[node] += self._operators[operator_id].load
        spare = np.array([self._free[node].cores - load[node] if node in self._free else math.inf for node in nodes])
        return np.where(spare > 0, operator.row_core_ms / np.maximum(spare, 1e-12), math.inf)

    def arrived_ms(self, operator: Operator, nodes: Sequence[str]) -> Floats:
        """Return the longest delay from a producer through the operator at each of ``nodes``, [nodes].

        All its inputs are placed. The operator slows down others on the same node; only :meth:`delay_ms` includes that.
        """
        reached = self._reached(self.hosts)
        arrived = np.zeros(len(nodes))
        for edge in self.inputs[operator.id]:
            source = self.node(edge.source)
            assert source is not None
            arrived = np.maximum(arrived, reached.get(edge.source, 0.0) + self._view.latencies_ms([source], nodes)[0])
        arrival_ms: Floats = arrived + self.takes_ms(operator, nodes)
        return arrival_ms

    def through_ms(self, operator: Operator, nodes: Sequence[str]) -> Floats:
        """Return :meth:`arrived_ms` plus the direct latency to the operator's consumers, [nodes]."""
        onward = self._view.latencies_ms(self.ends(operator.id), nodes)
        through: Floats = self.arrived_ms(operator, nodes) + (onward.max(axis=0) if len(onward) else 0.0)
        return through

    def delay_ms(self, operator: str | None = None, node: str = "") -> float:
        """Return the longest delay of the partial placement, with ``operator`` at ``node`` as well.

        From each operator whose readers are not placed, the path goes directly to its consumers.
        """
        return max(self._paths_ms(operator, node), default=0.0)

    def excess_ms(self, operator: str | None = None, node: str = "") -> float:
        """Return the sum of the delays beyond the bound, over paths with different ends."""
        bound = self._problem.bounds.max_delay_ms
        return 0.0 if bound is None else sum(max(0.0, ms - bound - 1e-9) for ms in self._paths_ms(operator, node))

    def lateness(self, operator: Operator, node: str) -> str:
        """Return why the bound on delay excludes ``node`` for the operator; empty if it does not."""
        bound = self._problem.bounds.max_delay_ms
        if bound is None or (ms := self.delay_ms(operator.id, node)) <= bound + 1e-9:
            return ""
        self.late = True
        return f"paths through it take {ms:.1f} ms, {bound:g} are allowed"

    def links(self) -> list[tuple[str, str]]:
        """Return the pairs of different nodes between which a placed stream goes."""
        ends = ((self.node(edge.source), self.node(edge.target)) for edge in self._problem.edges)
        return list(dict.fromkeys((a, b) for a, b in ends if a is not None and b is not None and a != b))

    def _paths_ms(self, operator: str | None, node: str) -> list[float]:
        """Return the longest delay through each operator with a consumer or an unplaced operator as reader."""
        hosts = self.hosts if operator is None else {**self.hosts, operator: node}
        reached, paths_ms = self._reached(hosts), []
        for vertex, host in hosts.items():
            if any(edge.target not in hosts for edge in self.outputs[vertex]):
                onward = max((self._view.latency_ms(host, end) for end in self._ends[vertex] if end != host), default=0.0)
                paths_ms.append(reached[vertex] + onward)
        return paths_ms

    def _reached(self, hosts: Mapping[str, str]) -> dict[str, float]:
        """Return the longest delay to each placed vertex."""
        return reached_ms(self._problem, hosts, self._view.latency_ms, processing_ms(self._problem, hosts, self.cores()))

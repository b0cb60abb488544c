"""Comparison of placements of one problem over candidates of each operator, by current knowledge."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from sbon_node.placement.model.instance import RESOURCES, Instance, Ints, numbers
from sbon_node.placement.model.network_view import UNKNOWN_MS, Answer
from sbon_node.placement.model.objective import Latency, cost, longest_delay_ms, network_bandwidth, network_usage, processing_ms
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.model.queueing import Server
from sbon_node.placement.selection.discovery import server_of
from sbon_node.placement.solvers.exact import Solution, solve
from sbon_node.placement.solvers.sensitivity import Turn, paths_of, turns, with_each
from sbon_protocol.api.explanations import Alternative, TurningPoint, WeighedNode
from sbon_protocol.api.operators import Needs

MAX_PATHS = 40
"""Most links between nodes whose turning points are computed, those of the best placement first."""

Floats = NDArray[np.float64]


class Known(NamedTuple):
    """Known latencies and answers of ``nodes``.

    ``predicted_ms`` [n, n] comes from the coordinates alone, ``known_ms`` [n, n] from all knowledge; ``settled`` [n, n] is true
    for a recent measurement. ``answers`` and ``distances_ms`` are by operator and node. ``loads_ms`` are the nodes' loads in the
    cost space, above the least of them.
    """

    nodes: list[str]
    predicted_ms: Floats
    known_ms: Floats
    settled: NDArray[np.bool_]
    answers: Mapping[tuple[str, str], Answer]
    distances_ms: Mapping[tuple[str, str], float]
    loads_ms: Mapping[str, float]

    @property
    def cores(self) -> dict[str, float]:
        """Free cores of each node that accepts some operator."""
        return {node: answer.capacity.cores for (_, node), answer in self.answers.items() if answer.accepted}

    def servers(self, problem: PlacementProblem) -> dict[str, Server]:
        """Return the current load of each node that has answered."""
        return {node: server_of(problem, answer) for (_, node), answer in self.answers.items()}


class Weighed(NamedTuple):
    """Weighed ``candidates`` by operator; ``looked_at`` counts the links whose turning points were computed."""

    candidates: dict[str, list[WeighedNode]]
    best: dict[str, str]
    turning: list[Turn]
    looked_at: int


def weigh(problem: PlacementProblem, candidates: Mapping[str, Sequence[str]], known: Known, hosts: Mapping[str, str]) -> Weighed:
    """Weigh the candidates of each operator.

    ``hosts`` is the placement in question, whatever chose it, without operators that have no host now; each of its nodes is a
    candidate of its operator.
    """
    capacity = {
        operator.id: [node for node in candidates[operator.id] if known.answers[operator.id, node].accepted]
        for operator in problem.operators
    }
    number = {node: i for i, node in enumerate(known.nodes)}
    if not problem.operators or not all(capacity.values()):
        full = ", ".join(name for name, nodes in capacity.items() if not nodes)
        refused = {
            name: [
                replace(
                    weighed_node,
                    lost=weighed_node.lost or ("" if node == hosts.get(name) else f"no node has capacity for {full}"),
                )
                for node in nodes
                for weighed_node in [_weighed(name, node, known, None, None)]
            ]
            for name, nodes in candidates.items()
        }
        return Weighed(refused, {}, [], 0)
    chosen = [numbers(capacity[operator.id], number) for operator in problem.operators]
    servers = known.servers(problem)
    busy = [servers.get(node, Server()) for node in known.nodes]
    loads_ms = np.array([known.loads_ms[node] for node in known.nodes])
    measured = Instance(problem, known.nodes, known.known_ms, chosen, _free(known), busy, loads_ms)
    predicted = measured.narrowed(chosen, known.predicted_ms)
    best = solve(measured)
    costs = with_each(measured), with_each(predicted)
    by_operator: dict[str, list[WeighedNode]] = {}
    for index, operator in enumerate(problem.operators):
        weighed = {
            node: _weighed(operator.id, node, known, by_measured, by_predicted)
            for node, by_measured, by_predicted in zip(capacity[operator.id], costs[0][index], costs[1][index], strict=True)
        }
        weighed_nodes = [weighed.get(node) or _weighed(operator.id, node, known, None, None) for node in candidates[operator.id]]
        solutions = dict(zip(capacity[operator.id], costs[0][index], strict=True))
        at = hosts.get(operator.id, "")
        by_operator[operator.id] = sorted(
            (_with_reason(problem, weighed_node, at, solutions) for weighed_node in weighed_nodes),
            key=lambda weighed_node: (weighed_node.measured is None, weighed_node.measured or 0.0, weighed_node.node),
        )
    latencies = _open_paths(measured, best, costs[0], known)
    return Weighed(by_operator, measured.named(best.hosts.tolist()), turns(measured, best.hosts, latencies), len(latencies))


def alternative(
    strategy: str, problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency, known: Known, *, probes: int = 0
) -> Alternative:
    """Return the placement's cost by these latencies and by the hosts' current free capacity and load."""
    if not set(hosts) >= {operator.id for operator in problem.operators}:
        return Alternative(strategy=strategy, refused="no host was found for every operator")
    delay_ms = longest_delay_ms(problem, hosts, latency_ms, processing_ms(problem, hosts, known.cores))
    bound = problem.bounds.max_delay_ms
    breaks = f"{delay_ms - bound:.1f} ms over the {bound:g} ms allowed" if bound is not None and delay_ms > bound + 1e-9 else ""
    return Alternative(
        strategy=strategy,
        hosts=dict(hosts),
        cost=cost(problem, hosts, latency_ms, known.servers(problem), lambda node: known.loads_ms.get(node, 0.0)),
        usage=network_usage(problem, hosts, latency_ms),
        delay_ms=delay_ms,
        bandwidth_bytes_s=network_bandwidth(problem, hosts),
        probes=probes,
        breaks=breaks,
    )


def turning_point(turn: Turn, known: Known, best: Mapping[str, str], operators: Sequence[str]) -> TurningPoint:
    """Return the turning point with names; the caller fills in the source of the latency."""
    a, b = (known.nodes[node] for node in turn.nodes)
    ms = float(known.known_ms[turn.nodes])

    def moves(hosts: Ints | None) -> dict[str, str]:
        moved = [] if hosts is None else [known.nodes[host] for host in hosts.tolist()]
        return {operator: node for operator, node in zip(operators, moved, strict=False) if best[operator] != node}

    return TurningPoint(
        a=a,
        b=b,
        latency_ms=None if ms >= UNKNOWN_MS else ms,
        known="",
        age_s=None,
        below_ms=turn.below_ms,
        moves_below=moves(turn.below),
        above_ms=turn.above_ms,
        moves_above=moves(turn.above),
    )


def _free(known: Known) -> Floats:
    free = np.full((len(known.nodes), RESOURCES), np.inf)
    number = {node: i for i, node in enumerate(known.nodes)}
    for (_, node), answer in known.answers.items():
        if answer.accepted:
            free[number[node], :-1] = [getattr(answer.capacity, name) for name in Needs.__struct_fields__]
    return free


def _weighed(operator: str, node: str, known: Known, measured: Solution | None, predicted: Solution | None) -> WeighedNode:
    answer = known.answers[operator, node]
    return WeighedNode(
        node=node,
        distance_ms=known.distances_ms.get((operator, node)),
        predicted=predicted.cost if predicted is not None and predicted.feasible else None,
        measured=measured.cost if measured is not None and measured.feasible else None,
        delay_ms=measured.delay_ms if measured is not None else None,
        load_ms=known.loads_ms[node],
        free=answer.free,
        lost=answer.reason,
    )


def _with_reason(problem: PlacementProblem, candidate: WeighedNode, at: str, solutions: Mapping[str, Solution]) -> WeighedNode:
    """Add why the node lost against ``at``, the operator's host; empty if nothing was chosen."""
    if candidate.lost or candidate.node == at:
        return candidate
    bound, solution = problem.bounds.max_delay_ms, solutions[candidate.node]
    if not solution.feasible:
        late = bound is not None and solution.delay_ms > bound
        why = (
            f"{solution.delay_ms - (bound or 0.0):.1f} ms over the bound at least"
            if late
            else "no capacity for all operators that would go there"
        )
        return replace(candidate, lost=why)
    if at not in solutions:
        return replace(candidate, lost=f"{at}, the chosen node, has no capacity any more" if at else "nothing is chosen now")
    if not solutions[at].feasible:
        return replace(candidate, lost=f"would do: {at}, where it is, does not keep to the bounds")
    difference = solution.cost - solutions[at].cost
    if abs(difference) <= 1e-9 * max(1.0, abs(solution.cost)):
        return replace(candidate, lost="costs the same")
    if not solutions[at].cost:
        return replace(candidate, lost=f"costs something, {at} nothing")
    share = f"{abs(difference) / solutions[at].cost:.1%}"
    return replace(
        candidate, lost=f"costs {share} more" if difference > 0 else f"would cost {share} less: not what the strategy looks at"
    )


def _open_paths(instance: Instance, best: Solution, each: list[list[Solution]], known: Known) -> list[tuple[int, int]]:
    """Return links without a recent measurement: first the best placement's, then the rivals', by cost."""
    rivals = sorted((solution for row in each for solution in row if solution.feasible), key=lambda solution: solution.cost)
    latencies = dict.fromkeys(path for solution in [best, *rivals] for path in paths_of(instance, solution.hosts))
    return [path for path in latencies if not known.settled[path]][:MAX_PATHS]

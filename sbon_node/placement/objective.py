"""What a placement costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sbon_node.placement.names import OBJECTIVES as OBJECTIVES
from sbon_node.placement.names import objective_named as objective_named
from sbon_node.placement.problem import Edge, PlacementProblem, in_order
from sbon_node.placement.queueing import Server, side_by_side
from sbon_node.placement.through_servers import Latencies, ThroughServers

Latency = Callable[[str, str], float]
"""One way between two nodes, in milliseconds."""


def network_usage(problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency) -> float:
    """u(q) = sum over links of rate x one-way latency (SBON, section 2.1, equation 1), in bytes in flight.

    ``hosts`` names the node of every operator; a link inside one node costs nothing.
    """
    return sum(edge.rate_bytes_s * ms / 1000.0 for edge, ms in _links(problem.edges, {**problem.pinned, **hosts}, latency_ms))


def network_bandwidth(problem: PlacementProblem, hosts: Mapping[str, str]) -> float:
    """Bytes a second that leave one node for another, summed over links."""
    at = {**problem.pinned, **hosts}
    return sum(edge.rate_bytes_s for edge in problem.edges if at[edge.source] != at[edge.target])


def processing_ms(problem: PlacementProblem, hosts: Mapping[str, str], cores: Mapping[str, float]) -> dict[str, float]:
    """How long a row waits and is worked on at each operator that has a host (OPB, equation 4); infinite where it cannot keep up.

    ``cores`` are those a node has left without this query; at one that is not named nothing takes time. The equation's residual
    capacity is that before the operator is placed: here, whatever the order, what all others of the query leave.
    """
    load: dict[str, float] = {}
    for operator in problem.operators:
        if operator.id in hosts:
            load[hosts[operator.id]] = load.get(hosts[operator.id], 0.0) + operator.load
    found = {}
    for operator in problem.operators:
        node = hosts.get(operator.id)
        if node is not None:
            left = cores.get(node, math.inf) - load[node]
            found[operator.id] = 0.0 if not operator.row_core_ms else operator.row_core_ms / left if left > 0 else math.inf
    return found


def longest_delay_ms(
    problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency, processing: Mapping[str, float] | None = None
) -> float:
    """Of the longest way from a producer to a consumer, one-way latencies added up, and what operators take (``processing``, ms;
    nothing by default)."""
    return max(reached_ms(problem, hosts, latency_ms, processing or {}).values(), default=0.0)


def reached_ms(
    problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency, processing: Mapping[str, float]
) -> dict[str, float]:
    """The longest way from a producer to each vertex that has a node, what is done there included; where ``hosts`` are not all,
    over the links that have both ends."""
    reached: dict[str, float] = {}
    into: dict[str, list[tuple[str, float]]] = {}
    at = {**problem.pinned, **hosts}
    for edge, ms in _links([edge for edge in problem.edges if edge.source in at and edge.target in at], at, latency_ms):
        into.setdefault(edge.target, []).append((edge.source, ms))
    for vertex in in_order(problem):
        if vertex in at:
            arrived = max((reached[source] + ms for source, ms in into.get(vertex, ())), default=0.0)
            reached[vertex] = arrived + processing.get(vertex, 0.0)
    return reached


def longest_way(
    problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency, processing: Mapping[str, float] | None = None
) -> list[tuple[Edge, float]]:
    """The way of :func:`longest_delay_ms`, link by link with its latency; empty where nothing is linked."""
    reached = reached_ms(problem, hosts, latency_ms, processing or {})
    last: dict[str, tuple[Edge, float]] = {}
    for edge, ms in _links(problem.edges, {**problem.pinned, **hosts}, latency_ms):
        known = last.get(edge.target)
        if known is None or reached[edge.source] + ms > reached[known[0].source] + known[1]:
            last[edge.target] = (edge, ms)
    way: list[tuple[Edge, float]] = []
    end = max(reversed(reached), key=lambda vertex: reached[vertex], default="")  # of equals the last: a consumer
    while end in last:
        way.insert(0, last[end])
        end = last[end][0].source
    return way


def latency_by_queueing(
    problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency, servers: Mapping[str, Server]
) -> Latencies:
    """Of one placement, shape [1]; nodes that are not among ``servers`` are idle, and of speed 1."""
    nodes = sorted({*problem.pinned.values(), *hosts.values()})
    number = {node: i for i, node in enumerate(nodes)}
    between = np.array([[0.0 if a == b else latency_ms(a, b) for b in nodes] for a in nodes])
    known = side_by_side([servers.get(node, Server()) for node in nodes])
    through = ThroughServers(problem, between, [number[node] for node in problem.pinned.values()], *known)
    return through.evaluate(np.array([[number[hosts[operator.id]] for operator in problem.operators]], dtype=int))


def cost(
    problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency, servers: Mapping[str, Server] | None = None
) -> float:
    """By the problem's objective; ``servers`` tells of nodes' speeds and what they serve already, where that is known."""
    weights = problem.objective
    found = weights.usage * network_usage(problem, hosts, latency_ms)
    if weights.delay:
        found += weights.delay * longest_delay_ms(problem, hosts, latency_ms)
    if weights.bandwidth:
        found += weights.bandwidth * network_bandwidth(problem, hosts)
    if weights.latency:
        found += weights.latency * sum(float(ms[0]) for ms in latency_by_queueing(problem, hosts, latency_ms, servers or {}))
    return found


def _links(edges: Sequence[Edge], at: Mapping[str, str], latency_ms: Latency) -> list[tuple[Edge, float]]:
    return [(edge, 0.0 if at[edge.source] == at[edge.target] else latency_ms(at[edge.source], at[edge.target])) for edge in edges]

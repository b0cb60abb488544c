"""The cost of a placement."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sbon_node.placement.model.problem import Edge, PlacementProblem, in_order
from sbon_node.placement.model.queueing import Latencies, Server, ThroughServers, side_by_side
from sbon_protocol.api.strategies import OBJECTIVES as OBJECTIVES
from sbon_protocol.api.strategies import objective_named as objective_named

Latency = Callable[[str, str], float]
"""One-way latency between two nodes, in milliseconds."""


def network_usage(
    problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency, load_ms: Callable[[str], float] | None = None
) -> float:
    """Return u(q), the bytes in flight: the sum over links of rate x one-way latency.

    Source: SBON, section 2.3, equation 1. ``hosts`` names the node of every operator; a link inside a node costs nothing. With
    ``load_ms``, places of nodes in the load dimension, a link is as long as it is in the cost space: the loads of the hosts of
    operators at its ends stand at right angles to its latency (section 3.1.1).
    """
    usage, at = 0.0, {**problem.pinned, **hosts}
    for edge, ms in _links(problem.edges, at, latency_ms):
        loads_ms = sum(load_ms(hosts[end]) for end in (edge.source, edge.target) if end in hosts) if load_ms else 0.0
        usage += edge.rate_bytes_s * math.hypot(ms, loads_ms) / 1000.0
    return usage


def network_bandwidth(problem: PlacementProblem, hosts: Mapping[str, str]) -> float:
    """Return the bytes per second sent between different nodes, summed over links."""
    at = {**problem.pinned, **hosts}
    return sum(edge.rate_bytes_s for edge in problem.edges if at[edge.source] != at[edge.target])


def processing_ms(problem: PlacementProblem, hosts: Mapping[str, str], cores: Mapping[str, float]) -> dict[str, float]:
    """Return the time that a row waits and is processed at each placed operator (OPB, equation 4).

    It is infinite where a host cannot keep up. ``cores`` are the cores that nodes have left without this query; at nodes without
    an entry, processing takes no time. The equation uses the residual capacity before the operator is placed. Here it is the
    capacity that all other operators of the query leave, whatever the order.
    """
    load: dict[str, float] = {}
    for operator in problem.operators:
        if operator.id in hosts:
            load[hosts[operator.id]] = load.get(hosts[operator.id], 0.0) + operator.load
    delays_ms = {}
    for operator in problem.operators:
        node = hosts.get(operator.id)
        if node is not None:
            left = cores.get(node, math.inf) - load[node]
            delays_ms[operator.id] = 0.0 if not operator.row_core_ms else operator.row_core_ms / left if left > 0 else math.inf
    return delays_ms


def longest_delay_ms(
    problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency, processing: Mapping[str, float] | None = None
) -> float:
    """Return the longest delay of a path from producer to consumer: one-way latencies and ``processing`` (ms; 0 by default)."""
    return max(reached_ms(problem, hosts, latency_ms, processing or {}).values(), default=0.0)


def reached_ms(
    problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency, processing: Mapping[str, float]
) -> dict[str, float]:
    """Return the longest delay from a producer to each placed vertex, its processing included; only placed vertices count."""
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


def longest_path(
    problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency, processing: Mapping[str, float] | None = None
) -> list[tuple[Edge, float]]:
    """Return the path of :func:`longest_delay_ms`: its links with their latencies. It is empty without links."""
    reached = reached_ms(problem, hosts, latency_ms, processing or {})
    last: dict[str, tuple[Edge, float]] = {}
    for edge, ms in _links(problem.edges, {**problem.pinned, **hosts}, latency_ms):
        known = last.get(edge.target)
        if known is None or reached[edge.source] + ms > reached[known[0].source] + known[1]:
            last[edge.target] = (edge, ms)
    path: list[tuple[Edge, float]] = []
    end = max(reversed(reached), key=lambda vertex: reached[vertex], default="")  # the last of equals is a consumer
    while end in last:
        path.insert(0, last[end])
        end = last[end][0].source
    return path


def latency_by_queueing(
    problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency, servers: Mapping[str, Server]
) -> Latencies:
    """Return the latencies of one placement, shape [1]. Nodes without an entry in ``servers`` are idle and have speed 1."""
    nodes = sorted({*problem.pinned.values(), *hosts.values()})
    number = {node: i for i, node in enumerate(nodes)}
    between = np.array([[0.0 if a == b else latency_ms(a, b) for b in nodes] for a in nodes])
    known = side_by_side([servers.get(node, Server()) for node in nodes])
    through = ThroughServers(problem, between, [number[node] for node in problem.pinned.values()], *known)
    return through.evaluate(np.array([[number[hosts[operator.id]] for operator in problem.operators]], dtype=int))


def cost(
    problem: PlacementProblem,
    hosts: Mapping[str, str],
    latency_ms: Latency,
    servers: Mapping[str, Server] | None = None,
    load_ms: Callable[[str], float] | None = None,
) -> float:
    """Return the problem's objective. ``servers`` holds the known speeds and flows of nodes, ``load_ms`` their loads."""
    weights = problem.objective
    total = weights.usage * network_usage(problem, hosts, latency_ms, load_ms)
    if weights.delay:
        total += weights.delay * longest_delay_ms(problem, hosts, latency_ms)
    if weights.bandwidth:
        total += weights.bandwidth * network_bandwidth(problem, hosts)
    if weights.latency:
        total += weights.latency * sum(float(ms[0]) for ms in latency_by_queueing(problem, hosts, latency_ms, servers or {}))
    return total


def _links(edges: Sequence[Edge], at: Mapping[str, str], latency_ms: Latency) -> list[tuple[Edge, float]]:
    return [(edge, 0.0 if at[edge.source] == at[edge.target] else latency_ms(at[edge.source], at[edge.target])) for edge in edges]

"""What a placement costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sbon_node.errors import SbonError
from sbon_node.placement.problem import Edge, Objective, PlacementProblem

Latency = Callable[[str, str], float]
"""One way between two nodes, in milliseconds."""


OBJECTIVES: dict[str, Objective] = {
    "usage": Objective(),
    "delay": Objective(usage=1e-9, delay=1.0),
    "bandwidth": Objective(usage=1e-9, bandwidth=1.0),
}
"""By name; of placements equal in delay or bandwidth the one that uses the network less is the better."""


def objective_named(name: str) -> Objective:
    """A name, or weights such as ``usage=1,delay=50``. Raises :class:`SbonError` ``unknown-objective``."""
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    weights: dict[str, float] = dict.fromkeys(Objective.__struct_fields__, 0.0)
    for part in name.split(","):
        key, _, weight = part.partition("=")
        try:
            value = float(weight)
        except ValueError:
            value = -1.0
        if key.strip() not in weights or not 0 <= value < float("inf"):
            hint = f"there are {', '.join(OBJECTIVES)}, or weights such as usage=1,delay=50"
            raise SbonError("unknown-objective", f"there is no objective {name!r}", where="objective", hint=hint)
        weights[key.strip()] = value
    return Objective(**weights)


def network_usage(problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency) -> float:
    """u(q) = sum over links of rate x one-way latency (SBON, section 2.1, equation 1), in bytes in flight.

    ``hosts`` names the node of every operator; a link inside one node costs nothing.
    """
    return sum(edge.rate_bytes_s * ms / 1000.0 for edge, ms in _links(problem, hosts, latency_ms))


def network_bandwidth(problem: PlacementProblem, hosts: Mapping[str, str]) -> float:
    """Bytes a second that leave one node for another, summed over links."""
    at = {**problem.pinned, **hosts}
    return sum(edge.rate_bytes_s for edge in problem.edges if at[edge.source] != at[edge.target])


def longest_delay_ms(problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency) -> float:
    """Of the longest way from a producer to a consumer, one-way latencies added up; operators take no time."""
    reached: dict[str, float] = {}
    ms_of = {(edge.source, edge.target): ms for edge, ms in _links(problem, hosts, latency_ms)}
    for vertex in in_order(problem):
        into = [edge for edge in problem.edges if edge.target == vertex]
        reached[vertex] = max((reached[edge.source] + ms_of[edge.source, edge.target] for edge in into), default=0.0)
    return max(reached.values(), default=0.0)


def cost(problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency) -> float:
    """By the problem's objective."""
    weights = problem.objective
    found = weights.usage * network_usage(problem, hosts, latency_ms)
    if weights.delay:
        found += weights.delay * longest_delay_ms(problem, hosts, latency_ms)
    if weights.bandwidth:
        found += weights.bandwidth * network_bandwidth(problem, hosts)
    return found


def in_order(problem: PlacementProblem) -> Sequence[str]:
    """Vertices, each after all it reads from."""
    operators = [operator.id for operator in problem.operators]
    sources = {edge.source for edge in problem.edges}
    producers = [vertex for vertex in problem.pinned if vertex in sources]
    return [*producers, *operators, *(vertex for vertex in problem.pinned if vertex not in sources)]


def _links(problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Latency) -> list[tuple[Edge, float]]:
    at = {**problem.pinned, **hosts}
    return [
        (edge, 0.0 if at[edge.source] == at[edge.target] else latency_ms(at[edge.source], at[edge.target]))
        for edge in problem.edges
    ]

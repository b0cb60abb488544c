"""What a placement costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sbon_node.placement.problem import PlacementProblem


def network_usage(problem: PlacementProblem, hosts: Mapping[str, str], latency_ms: Callable[[str, str], float]) -> float:
    """u(q) = sum over links of rate x one-way latency (SBON, section 2.1, equation 1), in bytes in flight.

    ``hosts`` names the node of every operator; a link inside one node costs nothing.
    """
    at = {**problem.pinned, **hosts}
    usage = 0.0
    for edge in problem.edges:
        source, target = at[edge.source], at[edge.target]
        if source != target:
            usage += edge.rate_bytes_s * latency_ms(source, target) / 1000.0
    return usage

"""The reasons of a hybrid placement: every candidate with its estimated and its measured cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sbon_node.model.placement import Assignment, Candidate
from sbon_node.placement.model.instance import Instance, Ints
from sbon_node.placement.model.latency_matrix import LatencyMatrix
from sbon_node.placement.model.network_view import UNKNOWN_MS, Point
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.solvers.exact import Solution


class SearchResult(NamedTuple):
    """A placement and the instances that it came from.

    ``predicted`` solves ``wide``, the nodes of the pool that seemed best by the estimates. ``solution`` solves ``first``, the
    candidates. ``distances`` are milliseconds from each operator's virtual coordinate to the nodes near it. ``pooled`` is the
    number of nodes in the pool.
    """

    latencies: LatencyMatrix
    distances: Mapping[str, Mapping[str, float]]
    pooled: int
    wide: Instance
    predicted: Solution
    first: Instance
    solution: Solution

    def hosts(self) -> dict[str, str]:
        return self.first.named(self.solution.hosts.tolist())

    def estimated_ms(self, a: str, b: str) -> float:
        """Return the estimate from before any measurement."""
        return float(self.latencies.estimated_ms[self.first.number[a], self.first.number[b]])

    def measured(self, operator: int) -> Ints:
        """Return the operator's candidates whose latencies to pinned neighbours are measured.

        Without pinned neighbours, those to the hosts of linked operators count.
        """
        candidates, ends = self.first.candidates[operator], self.first.pinned_neighbours(operator)
        if not len(ends):
            ends = self.solution.hosts[[sum(link) - operator for link in self.first.inner_links() if operator in link]]
        return candidates[self.latencies.measured[ends[:, None], candidates].all(axis=0)]


def assignments(result: SearchResult, rests: Mapping[str, Point], capacity: KnownCapacity) -> list[Assignment]:
    """Return each operator's assignment with its reason and all candidates, best first."""
    return [
        Assignment(
            operator=name,
            node=node,
            reason=_reason(result, index, name, node),
            virtual=rests[name],
            candidates=tuple(_candidates(result, index, name, capacity)),
        )
        for index, (name, node) in enumerate(result.hosts().items())
    ]


def _candidates(result: SearchResult, index: int, name: str, capacity: KnownCapacity) -> list[Candidate]:
    predicted = dict(zip(result.wide.candidates[index].tolist(), result.predicted.least[index].tolist(), strict=True))
    known = dict(zip(result.first.candidates[index].tolist(), result.solution.least[index].tolist(), strict=True))
    measured = set(result.measured(index).tolist())
    candidates = []
    for host in sorted(known, key=lambda host: (known[host], result.first.nodes[host])):
        node = result.first.nodes[host]
        refused = capacity.reason(name, node)
        candidates.append(
            Candidate(
                node=node,
                distance_ms=result.distances[name].get(node, UNKNOWN_MS),
                accepted=not refused,
                reason=refused,
                predicted=predicted.get(host),
                measured=known[host] if host in measured else None,
            )
        )
    return candidates


def _reason(result: SearchResult, index: int, name: str, node: str) -> str:
    many, measured = len(result.first.candidates[index]), len(result.measured(index)) or "none"
    why = f"least cost of {many}, {measured} of them measured, of {result.pooled} near the best point for it"
    if node in result.distances[name]:
        why += f" ({result.distances[name][node]:.1f} ms from it in the cost space)"
    return f"{why}; not all measured: {result.latencies.trouble}" if result.latencies.trouble else why

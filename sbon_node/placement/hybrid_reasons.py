"""What a hybrid placement tells of itself: every candidate, with what it costs by the estimates and by what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sbon_node.placement.instance import Instance, Ints
from sbon_node.placement.network_view import UNKNOWN_MS, Point
from sbon_node.placement.problem import Assignment, Candidate
from sbon_node.placement.room import Room
from sbon_node.placement.solver import Solution
from sbon_node.placement.ways import Ways


class Found(NamedTuple):
    """A placement: ``predicted`` is of ``wide``, those of the pool that seemed best by the estimates, and ``solution`` of
    ``first``, the candidates. ``distances`` are milliseconds from each operator's virtual place, of the nodes near it; ``pooled``
    is how many nodes the pool had."""

    ways: Ways
    distances: Mapping[str, Mapping[str, float]]
    pooled: int
    wide: Instance
    predicted: Solution
    first: Instance
    solution: Solution

    def hosts(self) -> dict[str, str]:
        return self.first.named(self.solution.hosts.tolist())

    def estimated_ms(self, a: str, b: str) -> float:
        """As it was before anything was measured."""
        return float(self.ways.estimated_ms[self.first.number[a], self.first.number[b]])

    def measured(self, operator: int) -> Ints:
        """The candidates of an operator whose ways to what is pinned beside it are measured, or, where nothing is, those to the
        hosts of what is linked with it."""
        candidates, ends = self.first.candidates[operator], self.first.pinned_neighbours(operator)
        if not len(ends):
            ends = self.solution.hosts[[sum(link) - operator for link in self.first.inner_links() if operator in link]]
        return candidates[self.ways.measured[ends[:, None], candidates].all(axis=0)]


def assignments(found: Found, rests: Mapping[str, Point], room: Room) -> list[Assignment]:
    """Why each operator is where it is, with all candidates, the best one first."""
    return [
        Assignment(
            operator=name,
            node=node,
            reason=_reason(found, index, name, node),
            virtual=rests[name],
            candidates=tuple(_candidates(found, index, name, room)),
        )
        for index, (name, node) in enumerate(found.hosts().items())
    ]


def _candidates(found: Found, index: int, name: str, room: Room) -> list[Candidate]:
    predicted = dict(zip(found.wide.candidates[index].tolist(), found.predicted.least[index].tolist(), strict=True))
    known = dict(zip(found.first.candidates[index].tolist(), found.solution.least[index].tolist(), strict=True))
    measured = set(found.measured(index).tolist())
    listed = []
    for host in sorted(known, key=lambda host: (known[host], found.first.nodes[host])):
        node = found.first.nodes[host]
        refused = room.reason(name, node)
        listed.append(
            Candidate(
                node=node,
                distance_ms=found.distances[name].get(node, UNKNOWN_MS),
                accepted=not refused,
                reason=refused,
                predicted=predicted.get(host),
                measured=known[host] if host in measured else None,
            )
        )
    return listed


def _reason(found: Found, index: int, name: str, node: str) -> str:
    many, measured = len(found.first.candidates[index]), len(found.measured(index)) or "none"
    why = f"least cost of {many}, {measured} of them measured, of {found.pooled} near its virtual place"
    if node in found.distances[name]:
        why += f" ({found.distances[name][node]:.1f} ms from it in the cost space)"
    return f"{why}; not all measured: {found.ways.trouble}" if found.ways.trouble else why

"""What ants place at a time: a row of tasks between two nodes (ANTS, sections 3.3 and 3.8).

A query is clipped to the longest chain from a producer to a consumer; once that is placed, the next longest that leaves what is
placed, or a producer, and ends at what is placed, or a consumer, and so on. So branches that join in end at the join's host, and
those that fan out begin where they leave.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from sbon_node.engine.interface import Needs
from sbon_node.placement.problem import Edge, PlacementProblem
from sbon_node.placement.queueing import Flow, Service, service_of


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """An operator to place: what a message of the chain takes there, and how many come out for it (``batch``).

    ``equal`` names what it computes: a cell that hosts a task of the same name has done its work already (section 3.10); empty
    where it is to be done in any case.
    """

    operator: str
    service: Service
    batch: float = 1.0
    needs: Needs = Needs()
    refused: frozenset[str] = frozenset()
    equal: str = ""


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks between the nodes ``source`` and ``destination``, which ``rate_s`` messages a second enter."""

    id: str
    source: str
    destination: str
    tasks: tuple[Task, ...]
    rate_s: float
    arrival_scv: float = 1.0

    def flow(self, first: int, last: int) -> Flow:
        """Of the tasks first .. last - 1 on one server."""
        rate_s = self.rate_s
        for task in self.tasks[:first]:
            rate_s *= task.batch
        service = service_of([(task.service, task.batch) for task in self.tasks[first:last]])
        return Flow(rate_s=rate_s, service=service, arrival_scv=self.arrival_scv)


class _Way(NamedTuple):
    """The longest to an operator through others that are not placed: how many, and by which link it is entered."""

    length: int
    entered: Edge


def next_chain(problem: PlacementProblem, placed: Mapping[str, str]) -> Chain | None:
    """The longest chain of operators that are not ``placed`` yet, the first of equals; None where all are.

    A message of the chain is charged with its share of the work that an operator has with its other inputs, too, so that loads
    are right wherever branches join. Every operator has to be read, and to read something.
    """
    at = {**problem.pinned, **placed}
    ways: dict[str, _Way] = {}
    for operator in problem.operators:
        if operator.id in placed:
            continue
        into = [edge for edge in problem.edges if edge.target == operator.id]
        lengths = [0 if edge.source in at else ways[edge.source].length for edge in into]
        longest = max(range(len(into)), key=lengths.__getitem__)
        ways[operator.id] = _Way(lengths[longest] + 1, into[longest])
    ends = [edge for edge in problem.edges if edge.source in ways and edge.target in at]
    if not ends:
        return None
    last = max(ends, key=lambda edge: ways[edge.source].length)
    edges = [last]
    while edges[-1].source in ways:
        edges.append(ways[edges[-1].source].entered)
    edges.reverse()
    return Chain(
        id=f"{edges[0].source} to {last.target}",
        source=at[edges[0].source],
        destination=at[last.target],
        tasks=tuple(_task(problem, one, two) for one, two in itertools.pairwise(edges)),
        rate_s=edges[0].rows_s,
    )


def _task(problem: PlacementProblem, entered: Edge, left: Edge) -> Task:
    operator = next(one for one in problem.operators if one.id == entered.target)
    read = sum(edge.rows_s for edge in problem.edges if edge.target == operator.id)
    share = read / entered.rows_s if entered.rows_s else 1.0
    return Task(
        operator=operator.id,
        service=Service(mean_ms=operator.service.mean_ms * share, scv=operator.service.scv),
        batch=left.rows_s / entered.rows_s if entered.rows_s else 0.0,
        needs=operator.needs,
        refused=operator.refused,
    )

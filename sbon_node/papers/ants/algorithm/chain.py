"""Chains: rows of tasks between two nodes, which ants place one at a time (ANTS, sections 3.3 and 3.8).

A query is first cut to the longest chain from a producer to a consumer. Once that is placed, the next longest chain follows that
starts at a placed operator or a producer and ends at a placed operator or a consumer, and so on. So branches that join end at the
join's host, and branches that fan out begin where they leave.
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from sbon_node.placement.model.problem import Edge, PlacementProblem
from sbon_node.placement.model.queueing import Flow, Service, service_of
from sbon_protocol.api.operators import Needs


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """An operator to place. It has a service time for a message of the chain, and ``batch`` output messages for each."""

    operator: str
    service: Service
    batch: float = 1.0
    needs: Needs = Needs()
    refused: frozenset[str] = frozenset()


class Running(NamedTuple):
    """A task that runs at ``node`` for others, with the result of the chain's task number ``task`` (section 3.10).

    A placement that passes through it needs none of the tasks up to that. ``fed_ms`` is the latency from the producers to it, as
    far as that counts: 0 if the links that feed it cost the chain nothing.
    """

    task: int
    node: str
    fed_ms: float = 0.0


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks between the nodes ``source`` and ``destination``; ``rate_s`` messages per second enter."""

    id: str
    source: str
    destination: str
    tasks: tuple[Task, ...]
    rate_s: float
    arrival_scv: float = 1.0
    query: str = ""
    """The query, if it runs: cells leave its own load out."""
    running: tuple[Running, ...] = ()
    """Tasks of others that a placement may pass through in place of the first of its own."""

    def passed(self, node: str, first: int, last: int) -> Running | None:
        """Return the running task that the tasks first .. last - 1 at ``node`` pass through, the furthest; None for none.

        It stands for all tasks up to its own, so only for the first tasks of the chain.
        """
        here = [one for one in self.running if one.node == node and one.task < last] if first == 0 else []
        return max(here, default=None)

    def own(self, node: str, first: int, last: int) -> int:
        """Return the first of these tasks that must be instantiated at ``node``; ``last`` if there is none."""
        passed = self.passed(node, first, last)
        return first if passed is None else passed.task + 1

    def flow(self, first: int, last: int) -> Flow:
        """Return the flow of the tasks first .. last - 1 on one server."""
        rate_s = self.rate_s
        for task in self.tasks[:first]:
            rate_s *= task.batch
        service = service_of([(task.service, task.batch) for task in self.tasks[first:last]])
        return Flow(rate_s=rate_s, service=service, arrival_scv=self.arrival_scv)


class _PathToOperator(NamedTuple):
    """The longest path to an operator through unplaced operators: their number, and the link that enters it."""

    length: int
    entered: Edge


def next_chain(problem: PlacementProblem, placed: Mapping[str, str]) -> Chain | None:
    """Return the longest chain of operators not ``placed`` yet; None if all are placed.

    Among equal chains the first is returned.

    A message of the chain also carries its share of an operator's work for other inputs, so that loads are right wherever
    branches join. Every operator must have a reader and an input.
    """
    at = {**problem.pinned, **placed}
    latencies: dict[str, _PathToOperator] = {}
    for operator in problem.operators:
        if operator.id in placed:
            continue
        into = [edge for edge in problem.edges if edge.target == operator.id]
        lengths = [0 if edge.source in at else latencies[edge.source].length for edge in into]
        longest = max(range(len(into)), key=lengths.__getitem__)
        latencies[operator.id] = _PathToOperator(lengths[longest] + 1, into[longest])
    ends = [edge for edge in problem.edges if edge.source in latencies and edge.target in at]
    if not ends:
        return None
    last = max(ends, key=lambda edge: latencies[edge.source].length)
    edges = [last]
    while edges[-1].source in latencies:
        edges.append(latencies[edges[-1].source].entered)
    edges.reverse()
    return Chain(
        id=f"{edges[0].source} to {last.target}",
        source=at[edges[0].source],
        destination=at[last.target],
        tasks=tuple(_task(problem, entered, two) for entered, two in itertools.pairwise(edges)),
        rate_s=edges[0].rows_s,
    )


def _task(problem: PlacementProblem, entered: Edge, left: Edge) -> Task:
    operator = next(operator for operator in problem.operators if operator.id == entered.target)
    read = sum(edge.rows_s for edge in problem.edges if edge.target == operator.id)
    share = read / entered.rows_s if entered.rows_s else 1.0
    return Task(
        operator=operator.id,
        service=Service(mean_ms=operator.service.mean_ms * share, scv=operator.service.scv),
        batch=left.rows_s / entered.rows_s if entered.rows_s else 0.0,
        needs=operator.needs,
        refused=operator.refused,
    )

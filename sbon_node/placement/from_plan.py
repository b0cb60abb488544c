"""The placement problem of a query plan."""

from __future__ import annotations

from collections.abc import Mapping

from sbon_node.placement.problem import Edge, Operator, PlacementProblem
from sbon_node.query.plan import Plan

CONSUMER = "consumer"
"""The vertex of the sink."""


def problem_of(plan: Plan, consumer: str, refused: Mapping[str, frozenset[str]] | None = None) -> PlacementProblem:
    """Sources are pinned to their nodes and the sink to node ``consumer``; ``refused`` are nodes to leave out, by operator."""
    refused = refused or {}
    rates = {source.source.id: source.rate.bytes_s for source in plan.sources}
    rates |= {operator.id: operator.rate.bytes_s for operator in plan.operators}
    edges = [Edge(i.stream, operator.id, rates[i.stream]) for operator in plan.operators for i in operator.inputs]
    edges += [Edge(output, CONSUMER, rates[output]) for output in plan.outputs]
    return PlacementProblem(
        pinned={**{source.source.id: source.source.node for source in plan.sources}, CONSUMER: consumer},
        operators=tuple(
            Operator(id=operator.id, needs=operator.needs, refused=refused.get(operator.id, frozenset()))
            for operator in plan.operators
        ),
        edges=tuple(edges),
    )

"""The placement problem of a query plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_protocol.api.adaptation import OFF, Adapt
from sbon_protocol.api.plan import IDLE_CORES, Plan, PlannedOperator, Rate
from sbon_protocol.api.strategies import Goal

P = TypeVar("P", bound=Plan)

CONSUMER = "consumer"
"""The vertex of the sink."""


def problem_of(
    plan: Plan,
    consumer: str,
    refused: Mapping[str, frozenset[str]] | None = None,
    goal: Goal | None = None,
    adapt: Adapt = OFF,
    *,
    sink_follows: bool = False,
) -> PlacementProblem:
    """Return the placement problem of ``plan``.

    Sources that it reads are pinned to their nodes, shared operators too, and the sink to node ``consumer``.
    ``refused`` maps an operator to the nodes to leave out.
    Where the ``sink_follows`` the operator that feeds it, its links carry nothing.

    Raises :class:`~sbon_protocol.errors.SbonError` ``unknown-objective``.
    """
    refused, goal = refused or {}, goal or Goal()
    rates = plan.rates()
    links = [(i.stream, operator.id) for operator in plan.operators for i in operator.inputs]
    links += [(output, CONSUMER) for output in plan.outputs]
    places = {source.source.id: source.source.node for source in plan.sources} | {one.id: one.node for one in plan.shared}
    read = {stream for stream, _ in links}
    carried = [Rate(rows_s=0.0, bytes_s=0.0) if sink_follows and to == CONSUMER else rates[stream] for stream, to in links]
    return PlacementProblem(
        pinned={**{stream: node for stream, node in places.items() if stream in read}, CONSUMER: consumer},
        operators=tuple(
            _operator(operator, refused.get(operator.id, frozenset()), sum(rates[i.stream].rows_s for i in operator.inputs))
            for operator in plan.operators
        ),
        edges=tuple(Edge(*link, rate.bytes_s, rate.rows_s) for link, rate in zip(links, carried, strict=True)),
        objective=goal.minimised,
        bounds=goal.bounds,
        adapt=adapt,
    )


def with_capacity_to_send(plan: P, least_bytes_s: float | None) -> P:
    """Return the plan with operators that reserve at least ``least_bytes_s`` to send."""
    if least_bytes_s is None:
        return plan
    raised = [
        replace(operator, needs=replace(operator.needs, bandwidth_bytes_s=max(operator.needs.bandwidth_bytes_s, least_bytes_s)))
        for operator in plan.operators
    ]
    return replace(plan, operators=tuple(raised))


def _operator(planned: PlannedOperator, refused: frozenset[str], rows_s: float) -> Operator:
    """Return the problem's operator. Its rows cause all the cores that it needs beyond those of an idle operator."""
    busy = max(planned.needs.cores - IDLE_CORES, 0.0)
    row_core_ms = 1000.0 * busy / rows_s if rows_s > 0 else 0.0
    return Operator(id=planned.id, needs=planned.needs, refused=refused, rows_s=rows_s, row_core_ms=row_core_ms)

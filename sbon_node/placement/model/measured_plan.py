"""The plan of a running query with the rates and the work that its operators have measured, in place of estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from sbon_node.placement.model.from_plan import problem_of
from sbon_node.placement.model.problem import PlacementProblem
from sbon_protocol.api.adaptation import OFF, Adapt
from sbon_protocol.api.measures import OperatorMeasures
from sbon_protocol.api.plan import Plan, Rate
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.api.strategies import Goal

LEAST_SECONDS = 10.0
"""Weighted time that measures must cover to replace an estimate."""


def measured_problem(
    plan: Plan,
    operators: Sequence[OperatorInfo],
    consumer: str,
    refused: Mapping[str, frozenset[str]] | None = None,
    goal: Goal | None = None,
    adapt: Adapt = OFF,
    shared: Sequence[OperatorInfo] = (),
) -> PlacementProblem:
    """Return the problem of a running query's plan, as :func:`problem_of`, with what its operators have measured.

    The operators that it shares are pinned where they are now: their own queries may have moved them.
    """
    return measured_work(problem_of(measured_plan(plan, operators, shared), consumer, refused, goal, adapt), operators)


def measured_plan(plan: Plan, operators: Sequence[OperatorInfo], shared: Sequence[OperatorInfo] = ()) -> Plan:
    """Return the plan with the measured rate of each stream, where its operators report one; estimates stay for the others.

    A source's rate is that with which its readers take its rows. Rates of other streams are those of their operators' output.
    Operators of other queries are at the present nodes of ``shared``.
    """
    rates: dict[str, Rate] = {}
    for operator in operators:
        measures = operator.measures
        if measures is None or measures.seconds < LEAST_SECONDS:
            continue
        for read in measures.inputs:
            if read.rows_s is not None and read.bytes_s is not None:
                known = rates.get(read.stream)
                if known is None or known.bytes_s < read.bytes_s:  # a reader may be behind
                    rates[read.stream] = Rate(rows_s=read.rows_s, bytes_s=read.bytes_s, measured=True)
    for operator in operators:
        if (rate := _output(operator.measures)) is not None:
            rates[operator.id] = rate
    present = {one.id: one.node for one in shared if one.node}
    return replace(
        plan,
        sources=tuple(replace(one, rate=rates.get(one.source.id, one.rate)) for one in plan.sources),
        operators=tuple(replace(one, rate=rates.get(one.id, one.rate)) for one in plan.operators),
        shared=tuple(replace(one, node=present.get(one.id, one.node)) for one in plan.shared),
    )


def measured_work(problem: PlacementProblem, operators: Sequence[OperatorInfo]) -> PlacementProblem:
    """Return the problem with the measured work of each operator's rows; estimates stay for others.

    Its variance stays an estimate: the measured one is mostly that of the batches' fixed cost, which keeps no core busy.
    """
    known = {
        one.id: one.measures.core_ms
        for one in operators
        if one.measures is not None and one.measures.seconds >= LEAST_SECONDS and one.measures.core_ms is not None
    }
    measured = (replace(one, row_core_ms=known.get(one.id, one.row_core_ms)) for one in problem.operators)
    return replace(problem, operators=tuple(measured))


def _output(measures: OperatorMeasures | None) -> Rate | None:
    if measures is None or measures.seconds < LEAST_SECONDS or measures.rows_out_s is None or measures.bytes_out_s is None:
        return None
    return Rate(rows_s=measures.rows_out_s, bytes_s=measures.bytes_out_s, measured=True)

"""The placement problem of a query plan: by its estimates, or of a running query by what its operators have measured."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_protocol.api.adaptation import OFF, Adapt
from sbon_protocol.api.measures import OperatorMeasures
from sbon_protocol.api.plan import IDLE_CORES, Plan, PlannedOperator, Rate
from sbon_protocol.api.queries import OperatorInfo
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
    """Return the placement problem of ``plan``; raise :class:`~sbon_protocol.errors.SbonError` ``unknown-objective``.

    Sources that it reads are pinned to their nodes, shared operators too, and the sink to node ``consumer``. ``refused`` maps an
    operator to the nodes to leave out. Where the ``sink_follows`` the operator that feeds it, its links carry nothing.
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

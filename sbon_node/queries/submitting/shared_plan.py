"""A plan with running operators of other queries in place of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from sbon_node.queries.submitting.running_operators import HostedStream, ReadableOperator
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.operators import Computation, PlannedInput
from sbon_protocol.api.plan import ContainedOperator, Plan, PlannedOperator, Rate, SharedOperator


@dataclass(frozen=True, slots=True)
class Choice:
    """A running operator in place of one of the plan: an equal one, or by the ``alternative`` one that contains its rows."""

    running: ReadableOperator
    alternative: ContainedOperator | None = None


def with_shared(plan: Plan, chosen: Mapping[str, Choice], streams: Mapping[str, HostedStream]) -> Plan:
    """Return the plan with ``chosen`` operators in place of its own, by their ids.

    Operators that feed these alone go, and those that feed the chosen ones at their hosts are shared as well: they must not end
    before them. ``streams`` has these.
    """
    by_id = {one.id: one for one in plan.operators}
    rates = plan.rates()
    needed: dict[str, None] = {}
    shared: dict[str, SharedOperator] = {}

    def need(stream: str) -> None:
        operator = by_id.get(stream)
        if operator is None or stream in needed:
            return
        choice = chosen.get(stream)
        if choice is None:
            needed[stream] = None
            for read in operator.inputs:
                need(read.stream)
            return
        if choice.alternative is not None:
            needed[stream] = None
            keep(choice.running.id, _expected(choice.running, Rate.of_all(rates[read.stream] for read in operator.inputs)))
        else:
            keep(choice.running.id, operator.rate, operator)

    def keep(stream: str, rate: Rate, equal: PlannedOperator | None = None) -> None:
        if is_source(stream) or stream in shared:
            return
        offered = streams[stream].offer.operator
        assert offered is not None
        for read in offered.inputs:
            keep(read, rate)
        operator = _planned(offered.computation, rate, equal)
        shared[stream] = SharedOperator(
            operator=operator, node=streams[stream].node, digest=offered.digest, queries=offered.queries
        )

    for output in plan.outputs:
        need(output)
    renamed = {own: choice.running.id for own, choice in chosen.items() if choice.alternative is None}
    taken = [choice for own, choice in chosen.items() if own in needed or renamed.get(own) in shared]
    longer_ms = sum(choice.alternative.longer_ms for choice in taken if choice.alternative is not None)
    after = {choice.running.id: choice.running.after for choice in taken if choice.running.after}
    return replace(
        plan,
        operators=tuple(_reading(one, chosen, longer_ms) for one in plan.operators if one.id in needed),
        shared=tuple(shared.values()),
        outputs=tuple(renamed.get(output, output) for output in plan.outputs),
        starts={**plan.starts, **after},
    )


def _expected(running: ReadableOperator, inputs: Rate) -> Rate:
    """Return the rate of an operator that contains the rows: as measured; only a join has more than the plan's ``inputs``.

    A rate that was measured for a moment alone would not compare with the plan's, which are expected for long.
    """
    measured = running.operator.rate
    if measured is None:
        return inputs
    joins = len({read.view for read in running.operator.computation.inputs}) > 1
    return measured if joins or measured.bytes_s <= inputs.bytes_s else inputs


def _planned(computation: Computation, rate: Rate, equal: PlannedOperator | None) -> PlannedOperator:
    """Return an offered operator as one of a plan, with the estimates of an ``equal`` one of the plan."""
    inputs = tuple(PlannedInput(stream=read.stream, schema=()) for read in computation.inputs)
    if equal is not None:
        return replace(equal, id=computation.id, inputs=inputs, schema=computation.schema)
    fields = {name: getattr(computation, name) for name in Computation.__struct_fields__}
    return PlannedOperator(**{**fields, "inputs": inputs}, rate=rate)


def _reading(operator: PlannedOperator, chosen: Mapping[str, Choice], longer_ms: int) -> PlannedOperator:
    """Return the operator as it reads ``chosen`` ones: its inputs may be that much further ahead of each other."""
    own = chosen.get(operator.id)
    if own is not None and own.alternative is not None:
        return own.alternative.operator

    def read(one: PlannedInput) -> PlannedInput:
        if one.ahead_ms is not None:
            one = replace(one, ahead_ms=one.ahead_ms + longer_ms)
        choice = chosen.get(one.stream)
        if choice is None:
            return one
        if choice.alternative is not None:
            return replace(one, lag_ms=one.lag_ms + choice.alternative.later_ms)
        names = [field.name for field in choice.running.operator.schema]
        return replace(one, stream=choice.running.id, by_position=names != [field.name for field in one.schema])

    return replace(operator, inputs=tuple(read(one) for one in operator.inputs))

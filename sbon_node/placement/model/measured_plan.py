"""The plan of a running query with the rates that its operators have measured, in place of those that were estimated."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from sbon_node.model.measures import OperatorMeasures
from sbon_node.model.plan import Plan, Rate
from sbon_node.model.queries import OperatorInfo

LEAST_SECONDS = 10.0
"""Weighted time that measures must cover to replace an estimate."""


def measured_plan(plan: Plan, operators: Sequence[OperatorInfo]) -> Plan:
    """Return the plan with the measured rate of each stream, where its operators report one; estimates stay for the others.

    A source's rate is that with which its readers take its rows. Rates of other streams are those of their operators' output.
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
    return replace(
        plan,
        sources=tuple(replace(one, rate=rates.get(one.source.id, one.rate)) for one in plan.sources),
        operators=tuple(replace(one, rate=rates.get(one.id, one.rate)) for one in plan.operators),
    )


def _output(measures: OperatorMeasures | None) -> Rate | None:
    if measures is None or measures.seconds < LEAST_SECONDS or measures.rows_out_s is None or measures.bytes_out_s is None:
        return None
    return Rate(rows_s=measures.rows_out_s, bytes_s=measures.bytes_out_s, measured=True)

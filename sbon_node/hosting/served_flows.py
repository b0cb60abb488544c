"""The queue that a node reports to strategies: one flow of rows for each of its operators. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from sbon_node.model.measures import OperatorMeasures
from sbon_node.model.queries import OperatorInfo
from sbon_node.model.servers import MAX_FLOWS, ServedFlow, ServerReport

BUSIEST = 0.8
"""Highest load that is reported: a machine shares its time, so waiting work is no reason to refuse all other work."""
MAX_SCV = 1e6


def server_report(
    load: float, speed: float, operators: Iterable[OperatorMeasures], left_out: Iterable[OperatorMeasures] = ()
) -> ServerReport:
    """Return the flows of the operators but for those ``left_out``; none if none has measured its rows, or the machine is idle.

    A row's measured time contains waiting for the processor and its part of the batch's fixed cost, most of which keeps no
    processor busy. So the times are scaled: all flows together make the ``load`` for each core that the machine measures. The
    times of the flows are those of a processor of speed 1, and this machine has ``speed``.
    """
    own = {id(one) for one in left_out}
    most = _busiest(operators)
    if (scale := _scale(load, speed, most)) is None:
        return ServerReport(speed=speed)
    flows = (
        ServedFlow(rows_s=rows_s, row_ms=min(row_ms * scale, 1e9), row_scv=min(one.row_scv or 0.0, MAX_SCV))
        for one, rows_s, row_ms in most
        if id(one) not in own
    )
    return ServerReport(speed=speed, flows=tuple(flows))


def with_core_times(
    load: float, speed: float, operators: Iterable[OperatorMeasures], described: Iterable[OperatorInfo]
) -> list[OperatorInfo]:
    """Return the descriptions with ``core_ms``: each row's time, scaled as those that the node reports as a server."""
    scale = _scale(load, speed, _busiest(operators))
    return [
        one
        if scale is None or one.measures is None or one.measures.row_ms is None
        else replace(one, measures=replace(one.measures, core_ms=min(one.measures.row_ms * scale, 1e9)))
        for one in described
    ]


def _busiest(operators: Iterable[OperatorMeasures]) -> list[tuple[OperatorMeasures, float, float]]:
    """Return the busiest operators that have measured their rows, with rows a second and milliseconds a row."""
    measured = [(one, one.rows_in_s or 0.0, one.row_ms or 0.0) for one in operators if one.rows_in_s and one.row_ms]
    return sorted(measured, key=lambda flow: flow[1] * flow[2], reverse=True)[:MAX_FLOWS]


def _scale(load: float, speed: float, measured: Iterable[tuple[OperatorMeasures, float, float]]) -> float | None:
    """Return the factor with which rows' times make the load, at speed 1; None without measured rows, or on an idle machine."""
    busy = sum(rows_s * row_ms / 1e3 for _, rows_s, row_ms in measured)
    return speed * min(load, BUSIEST) / busy if busy and load > 0 else None

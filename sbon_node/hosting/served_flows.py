"""The queue that a node reports to strategies: one flow of rows for each of its operators. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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

    A row's time is that of processors, if all operators have measured it. Else it contains waiting for the processor and its part
    of the batch's fixed cost, most of which keeps no processor busy. In any case the times are scaled: all flows together make
    the ``load`` for each core that the machine measures, of which other processes have a part. The times of the flows are those
    of a processor of speed 1, and this machine has ``speed``.
    """
    own = {id(one) for one in left_out}
    most = _busiest(operators)
    if (scale := _scale(load, speed, most)) is None:
        return ServerReport(speed=speed, other_load=0.0 if most else min(max(load, 0.0), BUSIEST))
    flows = (
        ServedFlow(rows_s=work.rows_s, row_ms=min(work.row_ms * scale, 1e9), row_scv=min(work.row_scv, MAX_SCV))
        for work in most
        if id(work.measures) not in own
    )
    return ServerReport(speed=speed, flows=tuple(flows))


def with_core_times(
    load: float, speed: float, operators: Iterable[OperatorMeasures], described: Iterable[OperatorInfo]
) -> list[OperatorInfo]:
    """Return the descriptions with ``core_ms``: each row's time, scaled as those that the node reports as a server."""
    known = list(operators)
    scale, has_cpu = _scale(load, speed, _busiest(known)), _has_cpu(known)
    return [one if scale is None else _with_core_time(one, scale, has_cpu=has_cpu) for one in described]


def _with_core_time(one: OperatorInfo, scale: float, *, has_cpu: bool) -> OperatorInfo:
    if one.measures is None:
        return one
    row_ms = one.measures.cpu_row_ms if has_cpu else one.measures.row_ms
    return one if row_ms is None else replace(one, measures=replace(one.measures, core_ms=min(row_ms * scale, 1e9)))


class _Work(NamedTuple):
    """An operator's rows a second, with mean and squared coefficient of variation of a row's time."""

    measures: OperatorMeasures
    rows_s: float
    row_ms: float
    row_scv: float


def _working(operators: Iterable[OperatorMeasures]) -> list[OperatorMeasures]:
    return [one for one in operators if one.rows_in_s and one.row_ms]


def _has_cpu(operators: Iterable[OperatorMeasures]) -> bool:
    """Return whether all operators with measured rows have measured their processor time."""
    return all(one.cpu_row_ms for one in _working(operators))


def _busiest(operators: Iterable[OperatorMeasures]) -> list[_Work]:
    """Return the busiest operators that have measured their rows."""
    working = _working(operators)
    has_cpu = _has_cpu(working)
    measured = [
        _Work(one, one.rows_in_s or 0.0, row_ms or 0.0, row_scv or 0.0)
        for one in working
        for row_ms, row_scv in [(one.cpu_row_ms, one.cpu_row_scv) if has_cpu else (one.row_ms, one.row_scv)]
    ]
    return sorted(measured, key=lambda work: work.rows_s * work.row_ms, reverse=True)[:MAX_FLOWS]


def _scale(load: float, speed: float, measured: Iterable[_Work]) -> float | None:
    """Return the factor with which rows' times make the load, at speed 1; None without measured rows, or on an idle machine."""
    busy = sum(work.rows_s * work.row_ms / 1e3 for work in measured)
    return speed * min(load, BUSIEST) / busy if busy and load > 0 else None

"""The queue that a node reports to strategies: one flow of rows for each of its operators. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sbon_node.model.measures import OperatorMeasures
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
    measured = [
        (rows_s, one.row_ms, one.row_scv or 0.0, id(one) in own)
        for one in operators
        if (rows_s := one.rows_in_s) and one.row_ms is not None and one.row_ms > 0
    ]
    most = sorted(measured, key=lambda flow: flow[0] * flow[1], reverse=True)[:MAX_FLOWS]
    busy = sum(rows_s * row_ms / 1e3 for rows_s, row_ms, _, _ in most)
    if not busy or load <= 0:
        return ServerReport(speed=speed)
    scale = speed * min(load, BUSIEST) / busy
    flows = (
        ServedFlow(rows_s=rows_s, row_ms=min(row_ms * scale, 1e9), row_scv=min(row_scv, MAX_SCV))
        for rows_s, row_ms, row_scv, is_own in most
        if not is_own
    )
    return ServerReport(speed=speed, flows=tuple(flows))

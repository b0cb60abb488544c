"""Answers to nodes that look for a host of an operator: whether this node has room for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from sbon_node.hosting.ants.service import AntService, Room
from sbon_node.hosting.capacity import Reservations
from sbon_node.hosting.ports import OperatorPorts
from sbon_node.model.servers import MAX_FLOWS, ServedFlow, ServerReport
from sbon_node.net.peers import Caller
from sbon_node.placement.model.network_view import NOTHING
from sbon_node.placement.model.queueing import Flow, Service, busy
from sbon_node.workflow.context import Context
from sbon_protocol.api.measures import OperatorMeasures
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.calls import AskNode, NodeAnswer
from sbon_protocol.errors import SbonError

STRANGERS = ""
SHORT_MS = 1.0
"""Assumed length of what other programs do at a time; at a given load, longer work lets rows wait longer."""


class NodeAnswers:
    """Answers by what is reserved, by this node's load and by what its operators measure."""

    def __init__(
        self,
        context: Context,
        reservations: Reservations,
        ports: OperatorPorts,
        load: Callable[[], float],
        speed: float,
        start_engine: Callable[[], Awaitable[None]],
    ) -> None:
        self._context, self._reservations, self._ports, self._load = context, reservations, ports, load
        self._speed, self._start_engine = speed, start_engine
        self.ants = AntService(context, Room(speed, self._flows, self._free), self._reserve, self._release)
        context.server.handle(AskNode, self._answer)

    def holder(self, caller: Caller) -> str:
        """Return the holder that reservations count for; all callers that are not members share one holder."""
        member = self._context.membership.get(caller.node)
        return caller.node if member is not None and member.state == "alive" else STRANGERS

    async def _answer(self, call: AskNode, caller: Caller) -> NodeAnswer:
        answer = self._offer(call, caller)
        if call.starts_engine and answer.accepted:
            await self._start_engine()
        return answer

    def _offer(self, call: AskNode, caller: Caller) -> NodeAnswer:
        now, holder, load = self._context.clock.now(), self.holder(caller), self._load()
        needs = Needs(cores=call.cores, memory_mb=call.memory_mb, bandwidth_bytes_s=call.bandwidth_bytes_s)
        free = self._reservations.free(now, holder, beside=call.query)
        reason = self._reservations.refusal(needs, now, holder, beside=call.query)
        if self._context.drained:
            reason = "it has been drained"
        return NodeAnswer(
            accepted=not reason,
            reason=reason,
            operators=self._reservations.operators(),
            free_cores=max(0.0, free.cores),
            free_memory_mb=max(0.0, free.memory_mb),
            free_bandwidth_bytes_s=max(0.0, free.bandwidth_bytes_s),
            load=load,
            server=self._server(load, call.query),
        )

    def _server(self, load: float, query: str) -> ServerReport:
        """Return the speed, the measured flows, and those for which ants have reserved capacity, without those of a query."""
        booked = tuple(
            ServedFlow(rows_s=flow.rate_s, row_ms=flow.service.mean_ms, row_scv=flow.service.scv)
            for flow in self.ants.booked(query)
        )
        measured = self._measured(load, query)
        return replace(measured, flows=(*measured.flows, *booked)[:MAX_FLOWS])

    def _measured(self, load: float, query: str) -> ServerReport:
        measures = {operator: port.measures() for operator, port in sorted(self._ports.open.items())}
        own = [one for operator, one in measures.items() if query and operator.startswith(f"{query}.")]
        return server_report(load, self._speed, measures.values(), own)

    def with_core_times(self, described: list[OperatorInfo]) -> list[OperatorInfo]:
        """Return the descriptions of operators here with the time that their rows keep a core busy."""
        return with_core_times(self._load(), self._speed, [port.measures() for port in self._ports.open.values()], described)

    # -- the cell of ants ----------------------------------------------------------------------------------------------

    def _flows(self, query: str) -> list[Flow]:
        """Return the measured flows; for the load of other programs, one of short messages."""
        report = self._measured(self._load(), query)
        flows = [Flow(rate_s=flow.rows_s, service=Service(mean_ms=flow.row_ms, scv=flow.row_scv)) for flow in report.flows]
        return flows or list(busy(report.other_load, SHORT_MS, report.speed).flows)

    def _free(self, query: str) -> Needs:
        """Return the capacity that any member may count on, with what ``query`` holds; nothing where no operator may come."""
        now = self._context.clock.now()
        if self._context.drained or self._reservations.refusal(NOTHING, now, beside=query):
            return NOTHING
        free = self._reservations.free(now, beside=query)
        cores, memory_mb, bandwidth_bytes_s = (max(0.0, left) for left in free.amounts)
        return Needs(cores=cores, memory_mb=memory_mb, bandwidth_bytes_s=bandwidth_bytes_s)

    def _reserve(self, leader: str, sender: str, needs: dict[str, Needs], hold_s: float) -> None:
        """Reserve for all operators or none; the reservations count for the ant's sender until the leader itself asks."""
        self._context.drained.check()
        now = self._context.clock.now()
        until = now + min(hold_s, self._context.settings.reservation_s)
        reserved: list[str] = []
        try:
            for operator, need in needs.items():
                self._reservations.reserve(operator, need, now, until, leader, holder=sender)
                reserved.append(operator)
        except SbonError:
            self._release(leader, tuple(reserved))
            raise

    def _release(self, leader: str, operators: tuple[str, ...]) -> None:
        promised = self._reservations.promised(self._context.clock.now())
        for operator in operators:
            if operator in promised:
                self._reservations.release(operator, leader)


# -- The queue that a node reports to strategies: one flow of rows for each of its operators. Pure --------------------

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

"""The room for operators at this node: its capacity, its load, and the answers to nodes that look for a host."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from sbon_node.context import Context
from sbon_node.engine.interface import EngineCapacity
from sbon_node.hosting.machine.capacity import Reservations
from sbon_node.hosting.operators.ports import OperatorPorts
from sbon_node.model.servers import MAX_FLOWS, ServedFlow, ServerReport
from sbon_node.net.peers import Caller
from sbon_node.placement.model.network_view import NOTHING
from sbon_node.placement.model.queueing import Flow, Service, busy
from sbon_protocol.api.measures import OperatorMeasures
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.calls import AskNode, NodeAnswer
from sbon_protocol.errors import SbonError

STRANGERS = ""
SHORT_MS = 1.0
"""Assumed length of what other programs do at a time; at a given load, longer work lets rows wait longer."""
Booked = Callable[[str], Sequence[Flow]]
"""Returns flows that will come and that no operator has measured yet, without those of a query, if one is named."""


class Room:
    """This node as a host: what is reserved, its load, and what its operators measure."""

    def __init__(self, context: Context, capacity: EngineCapacity, ports: OperatorPorts, load: Callable[[], float]) -> None:
        self._context, self.ports, self.load, self.speed = context, ports, load, capacity.speed
        shares = (context.settings.reserved_share, context.settings.reserved_s)
        self.reservations = Reservations(capacity, *shares, ports.measures.cost)

    def holder(self, caller: Caller) -> str:
        """Return the holder that reservations count for; all callers that are not members share one holder."""
        member = self._context.membership.get(caller.node)
        return caller.node if member is not None and member.state == "alive" else STRANGERS

    def measured(self, load: float, query: str) -> ServerReport:
        """Return the speed and the measured flows, without those of a query."""
        measures = {operator: port.measures() for operator, port in sorted(self.ports.open.items())}
        own = [one for operator, one in measures.items() if query and operator.startswith(f"{query}.")]
        return server_report(load, self.speed, measures.values(), own)

    def with_core_times(self, described: list[OperatorInfo]) -> list[OperatorInfo]:
        """Return the descriptions of operators here with the time that their rows keep a core busy."""
        return with_core_times(self.load(), self.speed, [port.measures() for port in self.ports.open.values()], described)

    def refusal(self, needs: Needs, now: float, holder: str | None = None, *, beside: str = "") -> str:
        """Return why this node takes no operator with these needs; empty if it does."""
        if self._context.drained:
            return "it has been drained"
        lacking = self.reservations.refusal(needs, now, holder, beside=beside)
        return lacking or ("" if self._hosts_for(beside) else self._overload())

    def _hosts_for(self, query: str) -> bool:
        return bool(query) and any(operator.startswith(f"{query}.") for operator in self.reservations.operators())

    def _overload(self) -> str:
        """Return that the published load is above the bound; "" as long as no other member has less than half of the bound.

        Nodes of one machine share its load, and are above it together.
        """
        context = self._context
        most, published = context.settings.max_load, context.directory.coordinate(context.name)
        bound_ms = context.directory.load_ms(most)
        if published is None or published.load <= bound_ms or min(context.directory.loads_ms().values()) >= bound_ms / 2:
            return ""
        return f"its load is {most * published.load / bound_ms:.1f} per core, and it takes nothing new above {most:g}"

    # -- for strategies that look and reserve by messages of their own ---------------------------------------------------

    def flows(self, query: str) -> list[Flow]:
        """Return the measured flows, without those of a query; for the load of other programs, one of short messages."""
        report = self.measured(self.load(), query)
        flows = [Flow(rate_s=flow.rows_s, service=Service(mean_ms=flow.row_ms, scv=flow.row_scv)) for flow in report.flows]
        return flows or list(busy(report.other_load, SHORT_MS, report.speed).flows)

    def free(self, query: str) -> Needs:
        """Return the capacity that any member may count on, with what ``query`` holds; nothing where no operator may come."""
        now = self._context.clock.now()
        if self.refusal(NOTHING, now, beside=query):
            return NOTHING
        free = self.reservations.free(now, beside=query)
        cores, memory_mb, bandwidth_bytes_s = (max(0.0, left) for left in free.amounts)
        return Needs(cores=cores, memory_mb=memory_mb, bandwidth_bytes_s=bandwidth_bytes_s)

    def reserve(self, leader: str, sender: str, needs: dict[str, Needs], hold_s: float) -> None:
        """Reserve for all operators or none; the reservations count for the ``sender`` until the leader itself asks."""
        self._context.drained.check()
        now = self._context.clock.now()
        until = now + min(hold_s, self._context.settings.reservation_s)
        reserved: list[str] = []
        try:
            for operator, need in needs.items():
                self.reservations.reserve(operator, need, now, until, leader, holder=sender)
                reserved.append(operator)
        except SbonError:
            self.release(leader, tuple(reserved))
            raise

    def release(self, leader: str, operators: tuple[str, ...]) -> None:
        """Release what a leader has reserved for operators that do not run."""
        promised = self.reservations.promised(self._context.clock.now())
        for operator in operators:
            if operator in promised:
                self.reservations.release(operator, leader)


class NodeAnswers:
    """Answers nodes that look for a host of an operator: whether there is room for it."""

    def __init__(
        self, context: Context, room: Room, booked: Sequence[Booked], start_engine: Callable[[], Awaitable[None]]
    ) -> None:
        self._context, self._room, self._booked, self._start_engine = context, room, booked, start_engine
        context.server.handle(AskNode, self._answer)

    async def _answer(self, call: AskNode, caller: Caller) -> NodeAnswer:
        answer = self._offer(call, caller)
        if call.starts_engine and answer.accepted:
            await self._start_engine()
        return answer

    def _offer(self, call: AskNode, caller: Caller) -> NodeAnswer:
        now, holder, load = self._context.clock.now(), self._room.holder(caller), self._room.load()
        needs = Needs(cores=call.cores, memory_mb=call.memory_mb, bandwidth_bytes_s=call.bandwidth_bytes_s)
        reservations = self._room.reservations
        free = reservations.free(now, holder, beside=call.query)
        reason = self._room.refusal(needs, now, holder, beside=call.query)
        return NodeAnswer(
            accepted=not reason,
            reason=reason,
            operators=reservations.operators(),
            free_cores=max(0.0, free.cores),
            free_memory_mb=max(0.0, free.memory_mb),
            free_bandwidth_bytes_s=max(0.0, free.bandwidth_bytes_s),
            load=load,
            server=self._server(load, call.query),
        )

    def _server(self, load: float, query: str) -> ServerReport:
        """Return the speed, the measured flows and the booked ones, without those of a query."""
        booked = tuple(
            ServedFlow(rows_s=flow.rate_s, row_ms=flow.service.mean_ms, row_scv=flow.service.scv)
            for flows in self._booked
            for flow in flows(query)
        )
        measured = self._room.measured(load, query)
        return replace(measured, flows=(*measured.flows, *booked)[:MAX_FLOWS])


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

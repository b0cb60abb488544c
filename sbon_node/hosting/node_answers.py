"""Answers to nodes that look for a host of an operator: whether this node has room for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from sbon_node.errors import SbonError
from sbon_node.hosting.ants.service import AntService, Room
from sbon_node.hosting.capacity import Reservations
from sbon_node.hosting.ports import OperatorPorts
from sbon_node.hosting.served_flows import server_report, with_core_times
from sbon_node.model.operators import Needs
from sbon_node.model.queries import OperatorInfo
from sbon_node.model.servers import MAX_FLOWS, ServedFlow, ServerReport
from sbon_node.net.peers import Caller
from sbon_node.placement.model.network_view import NOTHING
from sbon_node.placement.model.queueing import Flow, Service, busy
from sbon_node.workflow.context import Context
from sbon_protocol.calls import AskNode, NodeAnswer

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

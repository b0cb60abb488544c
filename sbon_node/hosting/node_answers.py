"""Answers to nodes that look for a host of an operator: whether this node has room for it."""

from __future__ import annotations

from collections.abc import Callable

from sbon_node.hosting.capacity import Reservations
from sbon_node.hosting.ports import OperatorPorts
from sbon_node.hosting.served_flows import server_report
from sbon_node.model.operators import Needs
from sbon_node.net.peers import Caller
from sbon_node.workflow.context import Context
from sbon_protocol.calls import AskNode, NodeAnswer

STRANGERS = ""


class NodeAnswers:
    """Answers by what is reserved, by this node's load and by what its operators measure."""

    def __init__(self, context: Context, reservations: Reservations, ports: OperatorPorts, load: Callable[[], float]) -> None:
        self._context, self._reservations, self._ports, self._load = context, reservations, ports, load
        context.server.handle(AskNode, self._answer)

    def holder(self, caller: Caller) -> str:
        """Return the holder that reservations count for; all callers that are not members share one holder."""
        member = self._context.membership.get(caller.node)
        return caller.node if member is not None and member.state == "alive" else STRANGERS

    async def _answer(self, call: AskNode, caller: Caller) -> NodeAnswer:
        now, holder, load = self._context.clock.now(), self.holder(caller), self._load()
        needs = Needs(cores=call.cores, memory_mb=call.memory_mb, bandwidth_bytes_s=call.bandwidth_bytes_s)
        free, _ = self._reservations.free(now, holder)
        reason = "it has been drained" if self._context.drained else self._reservations.refusal(needs, now, holder)
        return NodeAnswer(
            accepted=not reason,
            reason=reason,
            operators=self._reservations.operators(),
            free_cores=max(0.0, free.cores),
            free_memory_mb=max(0.0, free.memory_mb),
            free_bandwidth_bytes_s=max(0.0, free.bandwidth_bytes_s),
            load=load,
            server=server_report(load, self._ports.all_measures()),
        )

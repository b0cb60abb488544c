"""Taking over the sinks of nodes that are lost, where the user allows it."""

from __future__ import annotations

import msgspec
import structlog

from sbon_node.connectors.sinks.registry import reach_sink
from sbon_node.context import Context
from sbon_node.hosting.components import acceptors_of
from sbon_node.hosting.sinks.ended_queries import EndedQueries
from sbon_node.hosting.sinks.host import SinkHost
from sbon_node.hosting.sinks.hosted_sink import HostedSink, SinkOrder, claim_of
from sbon_node.net.peers import Caller
from sbon_node.overlay.presence import AS_SINK
from sbon_node.ownership.acceptors import NOT_OWNER, RecordAcceptors, check_epoch
from sbon_node.ownership.operators import OperatorRegisters
from sbon_protocol.api.query_ids import sink_of
from sbon_protocol.calls import TakeOverSink
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


class SinkTakeover:
    """Answers the leader of a query whose sink is lost.

    The sink is stored here first; then its register names this node as the host, in the next epoch; then it delivers. A restart
    in between either finds the register changed, and goes on, or forgets the sink.
    """

    def __init__(
        self, context: Context, sinks: SinkHost, records: RecordAcceptors, owners: OperatorRegisters, ended: EndedQueries
    ) -> None:
        self._context, self._sinks, self._records, self._owners, self._over = context, sinks, records, owners, ended
        self._under_way: dict[str, None] = {}
        context.server.handle(TakeOverSink, self._take_over)

    async def _take_over(self, call: TakeOverSink, caller: Caller) -> None:
        order: SinkOrder = decode_record(call.sink, SinkOrder)
        check_epoch(order.epoch, order.component)
        if order.component != sink_of(order.query) or not order.spec.failover:
            raise SbonError("no-failover", "no other node may take it over", where=order.component)
        acceptors = acceptors_of(call.acceptors, order.component)
        self._over.check(order.query, acceptors, order.component)
        if not await self._records.is_acceptor(order.query, (), caller.node):
            raise SbonError(NOT_OWNER, f"{caller.node} keeps no record of {order.query}", where=order.component)
        if order.query in self._under_way:
            raise SbonError("sink-exists", f"the sink of {order.query} is being taken over here", where=order.component)
        self._under_way[order.query] = None
        try:
            await self._host(order, HostedSink(order=order, acceptors=acceptors, claim=claim_of(order, self._context.rng)))
        finally:
            del self._under_way[order.query]

    async def _host(self, order: SinkOrder, asked: HostedSink) -> None:
        context, sinks = self._context, self._sinks
        register = await self._owners.read(order.query, order.component)
        mine = (register.host, register.instance) == context.membership.expected(context.name)
        if sinks.hosted(order.component) is not None:
            if mine:
                return
            raise SbonError("sink-exists", f"{order.query} has a sink here already", where=context.name)
        if not mine and not context.presence.gone(AS_SINK, register.host, register.instance):
            raise SbonError(NOT_OWNER, f"{context.name} takes {register.host} to be there", where=order.component)
        sinks.check(order)
        await reach_sink(order.spec.kind, order.spec.options, sinks.open.context_of(asked, fresh=False))
        epoch = register.epoch if mine else register.epoch + 1
        hosted = msgspec.structs.replace(asked, order=msgspec.structs.replace(order, epoch=epoch), taken_over=True)
        sinks.keep(hosted)
        try:
            if not mine:
                await self._owners.take_over_sink(order.query, order.component, register.host, register.epoch)
        except BaseException:
            await sinks.release(hosted)  # If the register names this node nevertheless, the leader asks again.
            raise
        log.warning("sink-recovered", sink=order.component, host=register.host, epoch=epoch)
        if sinks.hosted(order.component) is hosted:  # Otherwise its query has ended meanwhile.
            sinks.begin(hosted)

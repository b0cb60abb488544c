"""How far the former host of a sink had come, for the node that goes on with it."""

from __future__ import annotations

from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.errors import SbonError
from sbon_node.hosting.claims import OVER
from sbon_node.hosting.hosted_sink import HostedSink
from sbon_node.hosting.record_acceptors import RecordAcceptors
from sbon_node.model.bounded import MAX_EPOCH_LEAP
from sbon_node.model.query_ids import sink_of
from sbon_node.net.peers import Caller
from sbon_node.workflow.context import Context
from sbon_protocol.failover import FenceReader, ReaderPosition
from sbon_protocol.moving import ComponentHost, LocateComponent

REFUSALS = frozenset({"reader-fenced", "bad-epoch"})
"""Refusals of a host of a stream that do not pass."""
MOST_HOSTS = 4
"""Most hosts of one stream that are asked in turn: a stream rarely moves twice in a moment."""


class ReaderPositions:
    """Answers for the sinks that read streams of this node."""

    def __init__(self, context: Context) -> None:
        self._outbox = context.outbox
        context.server.handle(FenceReader, self._fence)

    async def _fence(self, call: FenceReader, caller: Caller) -> ReaderPosition:
        if call.subscriber != sink_of(call.subscriber.rpartition(".")[0]):
            raise SbonError("not-owner", f"{call.subscriber} is no sink", where=call.subscriber)
        known = self._outbox.reader_epoch(call.stream, call.subscriber)
        if call.reader_epoch > known + MAX_EPOCH_LEAP:
            raise SbonError("bad-epoch", f"epoch {call.reader_epoch} is too far above {known}", where=call.subscriber)
        acknowledged, ended = self._outbox.fence(call.stream, call.subscriber, call.reader_epoch)
        return ReaderPosition(acknowledged=acknowledged, ended=ended)


async def fenced(context: Context, records: RecordAcceptors, hosted: HostedSink) -> DeliveryPosition:
    """End the former host's readers; return up to where it had acknowledged the sink's streams.

    Raises :data:`~sbon_node.connectors.interface.AWAY` as long as a host of a stream, or its register, does not answer.
    """
    done: dict[str, int] = {}
    ended: list[str] = []
    for stream, _ in hosted.order.inputs:
        try:
            position = await _fenced_at(context, records, hosted, stream)
        except SbonError as error:
            if error.code in OVER | REFUSALS:
                raise
            raise SbonError(AWAY, str(error), where=stream) from error
        if position.acknowledged:
            done[stream] = position.acknowledged
        if position.ended:
            ended.append(stream)
    return DeliveryPosition(streams=done, ended=tuple(ended))


async def _fenced_at(context: Context, records: RecordAcceptors, hosted: HostedSink, stream: str) -> ReaderPosition:
    """Fence at the stream's host, and again if that was not the host any more: a former one may know less."""
    order, asked = hosted.order, ""
    locate = LocateComponent(query=order.query, component=stream)
    call = FenceReader(stream=stream, subscriber=order.component, reader_epoch=order.epoch)
    position = ReaderPosition(acknowledged=0)
    for _ in range(MOST_HOSTS):
        host = (await records.ask(order.query, hosted.acceptors, locate, ComponentHost)).node
        if host == asked:
            return position
        position, asked = await context.ask(host, call, ReaderPosition), host
    raise SbonError("moved", f"it has moved {MOST_HOSTS} times meanwhile", where=stream)

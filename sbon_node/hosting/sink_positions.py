"""How far the former host of a sink had come, for the node that goes on with it."""

from __future__ import annotations

from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.errors import SbonError
from sbon_node.hosting.hosted_sink import HostedSink
from sbon_node.hosting.record_acceptors import RecordAcceptors
from sbon_node.hosting.stream_hosts import StreamHost
from sbon_node.model.bounded import MAX_EPOCH_LEAP
from sbon_node.model.query_ids import sink_of
from sbon_node.net.peers import Caller
from sbon_node.workflow.context import Context
from sbon_protocol.failover import FenceReader, ReaderPosition


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

    Raises :class:`SbonError` as long as a host of a stream does not answer.
    """
    order = hosted.order
    done: dict[str, int] = {}
    ended: list[str] = []
    for stream, node in order.inputs:
        host = StreamHost(context, records, order.query, stream, node, hosted.acceptors)
        call = FenceReader(stream=stream, subscriber=order.component, reader_epoch=order.epoch)
        try:
            position = await context.ask(host.node, call, ReaderPosition)
        except SbonError as error:
            if not await host.search(error.code):
                raise
            position = await context.ask(host.node, call, ReaderPosition)
        if position.acknowledged:
            done[stream] = position.acknowledged
        if position.ended:
            ended.append(stream)
    return DeliveryPosition(streams=done, ended=tuple(ended))

"""The links by which the sinks of this node read their streams, and the delays of the rows that come by them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sbon_node.hosting.hosted_sink import HostedSink
from sbon_node.hosting.lineages import Lineages
from sbon_node.hosting.record_acceptors import RecordAcceptors
from sbon_node.hosting.sink_delays import SinkDelays
from sbon_node.hosting.stream_hosts import StreamHost
from sbon_node.model.delivery import SinkDelay
from sbon_node.streams.links.link import Link
from sbon_node.workflow.context import Context


class SinkLinks:
    """Makes the links of sinks."""

    def __init__(self, context: Context, records: RecordAcceptors) -> None:
        self._context, self._records = context, records
        self._lineages = Lineages(context.store)
        self._delays: dict[str, SinkDelays] = {}

    def make(self, hosted: HostedSink, done: Mapping[str, int]) -> list[Link]:
        """Return a link for each of the sink's streams, which begins after the frame that is ``done``."""
        return [self._link(hosted, stream, node, done.get(stream, 0)) for stream, node in hosted.order.inputs]

    def delay(self, sink: str) -> SinkDelay | None:
        """Return the delay of the newest rows that have arrived for the sink; None while it is not open."""
        delays = self._delays.get(sink)
        return delays.report() if delays is not None else None

    def closed(self, sink: str) -> None:
        """Forget the delays of a sink that is closed."""
        self._delays.pop(sink, None)

    def forget(self, sink: str) -> None:
        """Forget which streams a sink has read."""
        self._lineages.forget(sink)

    def _link(self, hosted: HostedSink, stream: str, node: str, done: int) -> Link:
        context, order = self._context, hosted.order
        host = StreamHost(context, self._records, order.query, stream, node, hosted.acceptors)
        delays = self._delays.setdefault(order.component, SinkDelays(context))
        return Link(
            stream,
            order.component,
            locate=host.locate,
            expect=host.expect,
            search=host.search,
            own_time=host.own_time,
            arrived=partial(delays.observe, host),
            peers=context.connections,
            clock=context.clock,
            settings=context.stream_settings,
            rng=context.rng,
            start_after=done,
            lineage=self._lineages.of(order.component, stream),
            learn=self._lineages.learner(order.component, stream),
            reader_epoch=order.epoch,
            failpoint=context.failpoint,
            columns=tuple(column.name for column in order.schema) if stream in order.by_position else (),
        )

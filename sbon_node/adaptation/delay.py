"""The measured delay of a query, as its consumer's node sees it: an operator's host asks for it where a bound counts."""

from __future__ import annotations

from sbon_node.hosting.hosted_operator import HostedOperator
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_node.workflow.context import Context
from sbon_protocol.api.delivery import SinkDelay
from sbon_protocol.api.query_ids import sink_of
from sbon_protocol.calls import ComponentStates, DescribeComponents
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.moving import ComponentHost, LocateComponent


async def measured_delay_ms(context: Context, records: RecordAcceptors, hosted: HostedOperator) -> float | None:
    """Return the delay from source to sink that 95 % of the newest rows keep; None while it is unknown.

    Raises :class:`SbonError` as :meth:`RecordAcceptors.ask`, as a call to the consumer's node, and ``bad-answer`` for a report of
    that node that is none.
    """
    query = hosted.spec.query
    locate = LocateComponent(query=query, component=sink_of(query))
    host = await records.ask(query, hosted.acceptors, locate, ComponentHost)
    call = DescribeComponents(query=query, streams=(), targets=())
    answer = await context.ask(host.node, call, ComponentStates, timeout_s=context.settings.component_timeout_s)
    if answer.delay is None:
        return None
    try:
        return decode_record(answer.delay, SinkDelay).p95_ms
    except ProtocolError as error:
        raise SbonError("bad-answer", f"{host.node} reports no delay: {error}", where=query) from error

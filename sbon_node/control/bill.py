"""The bill: bytes x one-way latency on every link, against shipping every source whole to the consumer.

Bytes x latency is SBON's network usage (section 2.1: rate x latency, the bytes in flight) integrated over the query's life.
"""

from __future__ import annotations

import asyncio

from sbon_node.control.context import Context
from sbon_node.control.records import QueryRecord
from sbon_node.control.report import Bill, BillLine, QueryInfo
from sbon_node.errors import SbonError
from sbon_protocol.calls import DescribeParts, PartStates


async def bill_of(context: Context, record: QueryRecord, described: QueryInfo) -> Bill:
    """Bytes are of frames as sent (compressed, resent ones included), latencies as measured or estimated by the sender."""
    links = tuple(_line(link.stream, link.source_node, link.target_node, link.bytes, link.latency_ms) for link in described.links)
    sources = [planned.source for planned in record.plan.sources]
    latencies = await asyncio.gather(*(_latency_ms(context, record.id, s.node, record.consumer) for s in sources))
    carried = {s.id: max((line.bytes for line in links if line.stream == s.id), default=0) for s in sources}
    whole = [_line(s.id, s.node, record.consumer, carried[s.id], ms) for s, ms in zip(sources, latencies, strict=True)]
    return Bill(
        query=record.id,
        strategy=record.strategy,
        links=links,
        whole=tuple(whole),
        byte_ms=sum(line.byte_ms for line in links),
        whole_byte_ms=sum(line.byte_ms for line in whole),
    )


def _line(stream: str, source_node: str, target_node: str, size: int, latency_ms: float) -> BillLine:
    return BillLine(
        stream=stream,
        source_node=source_node,
        target_node=target_node,
        bytes=size,
        latency_ms=latency_ms,
        byte_ms=size * latency_ms,
    )


async def _latency_ms(context: Context, query: str, source: str, target: str) -> float:
    """From the source's own measurement where it answers, else from this node's view of the coordinates."""
    if source == target:
        return 0.0
    try:
        answer = await context.ask(source, DescribeParts(query=query, streams=(), targets=(target,)), PartStates)
        return answer.latencies_ms[target]
    except (SbonError, KeyError):
        return context.directory.estimate_rtt_ms(source, target)[0] / 2

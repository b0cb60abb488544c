"""The bill: bytes x one-way latency on every link, against shipping every source whole to the consumer.

Bytes x latency is SBON's network usage (section 2.1: rate x latency, the bytes in flight) integrated over the query's life.
"""

from __future__ import annotations

from collections.abc import Iterable

from sbon_node.control.context import Context
from sbon_node.control.describe import Description
from sbon_node.control.records import QueryRecord
from sbon_node.control.report import Bill, BillLine, BillPoint

MAX_POINTS = 120


class BillHistory:
    """A query's bill over time. Where there are too many points every other one goes, and from then on only every other one is
    taken: the whole time stays, told half as finely."""

    def __init__(self, *points: BillPoint) -> None:
        self.points = list(points)
        self._offered, self._every = len(points), 1

    def add(self, bill: Bill) -> None:
        if self._offered % self._every == 0:
            self.points.append(BillPoint(at_ms=bill.at_ms, byte_ms=bill.byte_ms, whole_byte_ms=bill.whole_byte_ms))
        self._offered += 1
        if len(self.points) > MAX_POINTS:
            self.points, self._every = self.points[::2], 2 * self._every


def bill_of(context: Context, record: QueryRecord, described: Description, history: Iterable[BillPoint] = ()) -> Bill:
    """Bytes are of frames as sent (compressed, resent ones included), latencies as measured or estimated by the sender; by this
    node for a source whose node did not answer."""
    links = tuple(
        _line(link.stream, link.source_node, link.target_node, link.bytes, link.latency_ms) for link in described.info.links
    )
    carried: dict[str, int] = {}
    for line in links:
        carried[line.stream] = max(carried.get(line.stream, 0), line.bytes)
    whole = []
    for source in (planned.source for planned in record.plan.sources):
        latency_ms = _latency_ms(context, described, source.node, record.consumer)
        whole.append(_line(source.id, source.node, record.consumer, carried.get(source.id, 0), latency_ms))
    return Bill(
        query=record.id,
        strategy=record.strategy,
        links=links,
        whole=tuple(whole),
        byte_ms=_sum(links),
        whole_byte_ms=_sum(whole),
        at_ms=context.clock.wall_ms(),
        history=tuple(history),
    )


def _line(stream: str, source_node: str, target_node: str, size: int, latency_ms: float | None) -> BillLine:
    return BillLine(
        stream=stream,
        source_node=source_node,
        target_node=target_node,
        bytes=size,
        latency_ms=latency_ms,
        byte_ms=None if latency_ms is None else size * latency_ms,
    )


def _sum(lines: Iterable[BillLine]) -> float:
    return sum(line.byte_ms for line in lines if line.byte_ms is not None)


def _latency_ms(context: Context, described: Description, source: str, target: str) -> float | None:
    if source == target:
        return 0.0
    told = described.latencies_ms.get(source, {}).get(target)
    return context.directory.estimate_rtt_ms(source, target).one_way_ms if told is None else told

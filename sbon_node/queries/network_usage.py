"""Network usage: bytes x one-way latency on every link, against the consumer baseline.

Bytes x latency is SBON's network usage (section 2.1: rate x latency) integrated over the query's life. The consumer baseline
sends all rows of every source to the consumer.
"""

from __future__ import annotations

from collections.abc import Iterable

from sbon_node.model.queries import AHEAD, HELD_BACK, QueryInfo
from sbon_node.model.records import QueryRecord
from sbon_node.model.usage import LinkUsage, QueryUsage, QueryUsagePoint
from sbon_node.queries.describe import Description
from sbon_node.queries.progress import slowest_lag_ms
from sbon_node.workflow.context import Context


def query_usage_of(
    context: Context, record: QueryRecord, described: Description, history: Iterable[QueryUsagePoint] = ()
) -> QueryUsage:
    """Return the query's network usage by link and over time.

    Bytes are of frames as sent (compressed, resent frames included), those that cross once for several readers in equal parts.
    The baseline takes all bytes of each source. Latencies are measured or estimated by the sender, or by
    this node for a source whose node did not answer.
    """
    links = tuple(
        _line(link.stream, link.source_node, link.target_node, link.borne_bytes, link.latency_ms, link.queries)
        for link in described.info.links
    )
    carried: dict[str, int] = {}
    for link in described.info.links:
        carried[link.stream] = max(carried.get(link.stream, 0), link.bytes)
    baseline = []
    for source in (planned.source for planned in record.plan.sources):
        latency_ms = _latency_ms(context, described, source.node, record.consumer)
        baseline.append(_line(source.id, source.node, record.consumer, carried.get(source.id, 0), latency_ms))
    at_ms, byte_ms, baseline_byte_ms = context.clock.wall_ms(), _sum(links), _sum(baseline)
    return QueryUsage(
        query=record.called,
        strategy=record.strategy,
        links=links,
        baseline=tuple(baseline),
        byte_ms=byte_ms,
        baseline_byte_ms=baseline_byte_ms,
        at_ms=at_ms,
        now=_point(described.info, at_ms, byte_ms, baseline_byte_ms),
        skipped=sum(operator.skipped for operator in described.info.operators),
        history=tuple(history),
    )


def _point(info: QueryInfo, at_ms: int, byte_ms: float, baseline_byte_ms: float) -> QueryUsagePoint:
    """Return the sums, and the query's progress by the same description."""
    first = {source.source.id for source in info.sources}
    stats = [operator.stats for operator in info.operators if operator.stats is not None]
    waiting = [operator for operator in info.operators if HELD_BACK in operator.reason or operator.reason.endswith(AHEAD)]
    return QueryUsagePoint(
        at_ms=at_ms,
        byte_ms=byte_ms,
        baseline_byte_ms=baseline_byte_ms,
        rows_in=sum(link.rows for link in info.links if link.stream in first),
        rows_out=info.rows,
        lag_ms=slowest_lag_ms(info.sources, info.operators),
        batch_ms=max((operator_stats.batch_ms for operator_stats in stats if operator_stats.batches), default=None),
        held_back=len(waiting),
    )


def _line(stream: str, source_node: str, target_node: str, size: int, latency_ms: float | None, queries: int = 1) -> LinkUsage:
    return LinkUsage(
        stream=stream,
        source_node=source_node,
        target_node=target_node,
        bytes=size,
        latency_ms=latency_ms,
        byte_ms=None if latency_ms is None else size * latency_ms / queries,
        queries=queries,
    )


def _sum(lines: Iterable[LinkUsage]) -> float:
    return sum(line.byte_ms for line in lines if line.byte_ms is not None)


def _latency_ms(context: Context, described: Description, source: str, target: str) -> float | None:
    if source == target:
        return 0.0
    reported = described.latencies_ms.get(source, {}).get(target)
    return context.directory.estimate_rtt_ms(source, target).one_way_ms if reported is None else reported

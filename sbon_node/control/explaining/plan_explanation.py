"""A plan explained: what flows where, estimated and measured, and what that costs the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from sbon_node.control.over import state_of_part
from sbon_node.control.report import OperatorInfo, SourceInfo
from sbon_node.query.measured import Measurement
from sbon_node.query.plan import Plan, PlannedOperator, PlannedSource, Rate

PLANNED = "planned"
"""Of operators, beside what they are described as: the query was not submitted."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """What leaves a part of the plan; None where it is not known. ``selectivity`` is rows out for one row in."""

    rows_s: float | None = None
    bytes_s: float | None = None
    row_bytes: float | None = None
    selectivity: float | None = None


class ExplainedPart(msgspec.Struct, frozen=True, kw_only=True):
    """The sink, an operator, or a source; ``reads`` are the ids of those it takes rows from."""

    id: str
    kind: Literal["sink", "operator", "source"]
    node: str
    """Where it runs, or where the strategy would have it now."""
    state: str
    """As of an operator or source; ``planned`` where nothing runs."""
    reason: str = ""
    reads: tuple[str, ...] = ()
    fragment: str = ""
    signature: str = ""
    estimated: Flow = Flow()
    """From what is declared and sampled, as if nothing had been measured."""
    measured: Flow = Flow()
    """While it runs. Of an operator that does not: what is remembered of an equal one, at the planned rates of its inputs."""
    remembered: bool = False
    """Whether the plan was made with a measurement of an equal part instead of the estimate."""
    late: int | None = None
    """Of a source: rows dropped because they came later than the stream's delay allows."""
    rows: int | None = None
    """That have left it; of the sink, that it has taken. None where that is not known."""
    watermark_ms: int | None = None
    """Event time (ms since 1970): no row that follows is earlier. Of a source or operator, once that is known."""
    ended: bool = False
    """Whether no row will follow at all."""


class ExplainedLink(msgspec.Struct, frozen=True, kw_only=True):
    """What one part sends another; ``usage`` is its rate x one-way latency, the bytes in flight."""

    stream: str
    source_node: str
    target: str
    target_node: str
    latency_ms: float | None
    """None where nothing is known of the way, and therefore of what is in flight on it."""
    bytes_s: float
    """As planned: what the placement reckons with."""
    usage: float | None
    measured_bytes_s: float | None = None
    measured_usage: float | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """``parts`` are in the order of the tree, the sink first; usages are sums over links, in bytes in flight."""

    query: str
    """Empty where nothing runs."""
    sql: str
    state: str
    reason: str = ""
    strategy: str
    consumer: str
    parts: tuple[ExplainedPart, ...]
    links: tuple[ExplainedLink, ...]
    usage: float | None
    """Predicted, by the planned rates; None unless the latency of every link is known."""
    whole_usage: float | None
    """Predicted, were every source shipped to the consumer as it is."""
    measured_usage: float | None = None
    """None unless every link between two nodes is measured."""
    measured_whole_usage: float | None = None


Latency = Callable[[str, str], float | None]
"""One way between two nodes, in milliseconds; None where it is not known."""


def explained(
    plan: Plan,
    *,
    sql: str,
    strategy: str,
    consumer: str,
    hosts: Mapping[str, str],
    latency_ms: Latency,
    sources: Mapping[str, SourceInfo],
    operators: Mapping[str, OperatorInfo],
    query: str = "",
    state: str = PLANNED,
    reason: str = "",
    taken: int | None = None,
) -> Explanation:
    """``hosts`` of all operators; ``sources`` and ``operators``, by id, as far as they were described; ``taken``: rows the sink
    has."""
    sink = f"{query}.sink" if query else "sink"
    parts = {planned.source.id: _source(planned, sources.get(planned.source.id)) for planned in plan.sources}
    planned_rates = {planned.source.id: planned.rate for planned in plan.sources}
    estimates = {planned.source.id: planned.estimate or planned.rate for planned in plan.sources}
    for one in plan.operators:
        planned_rates[one.id], estimates[one.id] = one.rate, one.estimate or one.rate
        node = hosts.get(one.id, "")
        parts[one.id] = _operator(one, node, estimates, planned_rates, operators.get(one.id), state)
    parts[sink] = ExplainedPart(id=sink, kind="sink", node=consumer, state=state, reads=plan.outputs, rows=taken)
    links = tuple(
        _link(parts[read], part, planned_rates[read].bytes_s, latency_ms) for part in parts.values() for read in part.reads
    )
    whole = [(p, latency_ms(p.source.node, consumer)) for p in plan.sources if p.source.node != consumer]
    return Explanation(
        query=query,
        sql=sql,
        state=state,
        reason=reason,
        strategy=strategy,
        consumer=consumer,
        parts=tuple(_in_order(parts, sink)),
        links=links,
        usage=_sum(link.usage for link in links),
        whole_usage=_sum(_in_flight(planned.rate.bytes_s, way_ms) for planned, way_ms in whole),
        measured_usage=_sum(link.measured_usage for link in links),
        measured_whole_usage=_sum(_in_flight(parts[planned.source.id].measured.bytes_s, way_ms) for planned, way_ms in whole),
    )


def _source(planned: PlannedSource, info: SourceInfo | None) -> ExplainedPart:
    source = planned.source
    measured = Flow()
    if info is not None:
        row_bytes = info.bytes / info.rows if info.rows else None
        measured = Flow(rows_s=info.rows_s, bytes_s=info.bytes_s, row_bytes=row_bytes)
    return ExplainedPart(
        id=source.id,
        kind="source",
        node=source.node,
        state=info.state if info is not None else "unreachable",
        signature=source.id,
        estimated=_flow(planned.estimate or planned.rate),
        measured=measured,
        remembered=planned.rate.measured,
        late=info.late if info is not None else None,
        rows=info.rows if info is not None else None,
        watermark_ms=info.watermark_ms if info is not None else None,
        ended=info is not None and info.state == "ended",
    )


def _operator(
    planned: PlannedOperator,
    node: str,
    estimates: Mapping[str, Rate],
    rates: Mapping[str, Rate],
    info: OperatorInfo | None,
    query_state: str,
) -> ExplainedPart:
    """What it was described as last; where the query is over, it is, whatever it did then."""
    reads = tuple(one.stream for one in planned.inputs)
    measured = Flow()
    stats = info.stats if info is not None else None
    if stats is not None:
        counted = Measurement(rows_in=stats.rows_in, rows_out=stats.rows_out, bytes_out=stats.bytes_out)
        measured = Flow(
            rows_s=stats.rows_out_s, bytes_s=stats.bytes_out_s, row_bytes=counted.row_bytes, selectivity=counted.selectivity
        )
    elif query_state == PLANNED and planned.rate.measured:
        measured = _flow(planned.rate, [rates[read] for read in reads])
    return ExplainedPart(
        id=planned.id,
        kind="operator",
        node=node,
        state=_operator_state(info, query_state),
        reason=info.reason if info is not None else "",
        reads=reads,
        fragment=planned.fragment,
        signature=planned.signature,
        estimated=_flow(estimates[planned.id], [estimates[read] for read in reads]),
        measured=measured,
        remembered=planned.rate.measured,
        rows=stats.rows_out if stats is not None else None,
        watermark_ms=info.watermark_ms if info is not None else None,
        ended=info is not None and info.ended,
    )


def _operator_state(info: OperatorInfo | None, query_state: str) -> str:
    if info is None:
        return PLANNED if query_state == PLANNED else "unreachable"
    return state_of_part(info.state, query_state)


def _flow(rate: Rate, reads: list[Rate] | None = None) -> Flow:
    rows_in = sum(one.rows_s for one in reads or ())
    return Flow(
        rows_s=rate.rows_s,
        bytes_s=rate.bytes_s,
        row_bytes=rate.bytes_s / rate.rows_s if rate.rows_s else None,
        selectivity=rate.rows_s / rows_in if rows_in else None,
    )


def _link(source: ExplainedPart, target: ExplainedPart, bytes_s: float, latency_ms: Latency) -> ExplainedLink:
    one_way_ms = 0.0 if source.node == target.node else latency_ms(source.node, target.node)
    measured = source.measured.bytes_s
    return ExplainedLink(
        stream=source.id,
        source_node=source.node,
        target=target.id,
        target_node=target.node,
        latency_ms=one_way_ms,
        bytes_s=bytes_s,
        usage=_in_flight(bytes_s, one_way_ms),
        measured_bytes_s=measured,
        measured_usage=0.0 if source.node == target.node else _in_flight(measured, one_way_ms),
    )


def _in_flight(bytes_s: float | None, one_way_ms: float | None) -> float | None:
    return None if bytes_s is None or one_way_ms is None else bytes_s * one_way_ms / 1000


def _sum(usages: Iterable[float | None]) -> float | None:
    each = list(usages)
    known = [usage for usage in each if usage is not None]
    return sum(known) if len(known) == len(each) else None


def _in_order(parts: Mapping[str, ExplainedPart], sink: str) -> list[ExplainedPart]:
    """Each part once, above those it reads."""
    found: dict[str, ExplainedPart] = {}

    def walk(name: str) -> None:
        if name not in found:
            found[name] = parts[name]
            for read in parts[name].reads:
                walk(read)

    walk(sink)
    return list(found.values())

"""Explanation of a plan: estimated and measured flows, and their network usage."""

import asyncio
import statistics
from collections.abc import Callable, Iterable, Mapping

import msgspec

from sbon_node.connectors.sources.result import query_of
from sbon_node.context import Context
from sbon_node.hosting.sources.host import SourceHost
from sbon_node.model.measurements import Measurement
from sbon_node.queries.describing.describe import state_of_component
from sbon_node.queries.describing.lookup import QueryLookup
from sbon_node.queries.submitting.planning import Planning
from sbon_node.queries.submitting.reuse import Reuse
from sbon_protocol.api.catalogue import ASSUMED_ROWS_S
from sbon_protocol.api.explanations import ExplainedComponent, ExplainedLink, Explanation, Flow
from sbon_protocol.api.plan import Plan, PlannedOperator, PlannedSource, Rate
from sbon_protocol.api.queries import OperatorInfo, QueryInfo, QuerySpec
from sbon_protocol.api.query_ids import name_of
from sbon_protocol.api.states import source_states
from sbon_protocol.api.states.lifecycle import LOST, PLANNED, UNREACHABLE
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.api.streams import SourceInfo
from sbon_protocol.api.usage import LinkUsage, QueryUsage
from sbon_protocol.errors import SbonError

Latency = Callable[[str, str], float | None]
"""One-way latency between two nodes, in milliseconds; None if unknown."""


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
    uid: str = "",
    state: str = PLANNED,
    reason: str = "",
    taken: int | None = None,
    sink_lost: bool = False,
    usage: QueryUsage | None = None,
    life_ms: int = 0,
) -> Explanation:
    """Explain a plan.

    ``hosts`` are of all operators; ``sources`` and ``operators``, by id, as far as they were described; ``taken`` is the number
    of rows that the sink has, if its node knows it; ``usage`` is the cost of a query in the ``life_ms`` since it began.
    """
    mean = _Mean(usage, life_ms)
    sink = f"{uid or query}.sink" if query else "sink"
    components = {planned.source.id: _source(planned, sources.get(planned.source.id)) for planned in plan.sources}
    planned_rates = {planned.source.id: planned.rate for planned in plan.sources}
    estimates = {planned.source.id: planned.estimate or planned.rate for planned in plan.sources}
    shared = {one.id: one for one in plan.shared}
    sharing: dict[str, int] = {}
    for operator in (*(one.operator for one in plan.shared), *plan.operators):
        planned_rates[operator.id], estimates[operator.id] = operator.rate, operator.estimate or operator.rate
        info, lent = operators.get(operator.id), shared.get(operator.id)
        node = hosts.get(operator.id, lent.node if lent is not None else "")
        component = _operator(operator, node, estimates, planned_rates, info, state)
        queries = info.queries if info is not None else lent.queries if lent is not None else ()
        components[operator.id] = msgspec.structs.replace(component, queries=queries)
        sharing[operator.id] = max(1, len(queries) + (info is None and lent is not None))
    sink_state = LOST if sink_lost else state
    components[sink] = ExplainedComponent(id=sink, kind="sink", node=consumer, state=sink_state, reads=plan.outputs, rows=taken)
    links = tuple(
        _link(components[read], component, planned_rates[read].bytes_s, latency_ms, sharing.get(component.id, 1), mean)
        for component in components.values()
        for read in component.reads
    )
    # How many times the operators' estimates were too high or too low.
    ratios = (component.ratio for component in components.values() if component.kind == "operator")
    off = [max(ratio, 1 / ratio) for ratio in ratios if ratio]
    direct = [(p, latency_ms(p.source.node, consumer)) for p in plan.sources if p.source.node != consumer]
    return Explanation(
        query=query,
        sql=sql,
        state=state,
        reason=reason,
        strategy=strategy,
        consumer=consumer,
        components=tuple(_in_order(components, sink)),
        links=links,
        usage=_sum(link.usage for link in links),
        saved_usage=sum(link.usage * (link.queries - 1) for link in links if link.usage is not None),
        baseline_usage=_sum(_usage(planned.rate.bytes_s, path_ms) for planned, path_ms in direct),
        measured_usage=mean.of_all(usage.links) if usage is not None else None,
        measured_baseline_usage=mean.of_all(usage.baseline) if usage is not None else None,
        median_ratio=statistics.median(off) if off else None,
        worst_ratio=max(off, default=None),
    )


def _source(planned: PlannedSource, info: SourceInfo | None) -> ExplainedComponent:
    source, estimate, measured = planned.source, planned.estimate or planned.rate, Flow()
    if info is not None:
        measured = Flow(rows_s=info.rows_s, bytes_s=info.bytes_s, row_bytes=info.bytes / info.rows if info.rows else None)
    return ExplainedComponent(
        id=source.id,
        kind="source",
        node=source.node,
        state=info.state if info is not None else UNREACHABLE,
        reason=info.trouble if info is not None else "",
        result_of=name_of(query_of(source)),
        signature=source.id,
        estimated=_flow(estimate),
        measured=measured,
        remembered=planned.rate.measured,
        assumed=source.rows_s is None and planned.rate.rows_s == ASSUMED_ROWS_S,
        ratio=estimate.rows_s / measured.rows_s if measured.rows_s else None,
        late=info.late if info is not None else None,
        rows=info.rows if info is not None else None,
        watermark_ms=info.watermark_ms if info is not None else None,
        ended=info is not None and info.state == source_states.ENDED,
    )


def _operator(
    planned: PlannedOperator,
    node: str,
    estimates: Mapping[str, Rate],
    rates: Mapping[str, Rate],
    info: OperatorInfo | None,
    query_state: str,
) -> ExplainedComponent:
    """Explain an operator by its last description; it is over if the query is."""
    reads = tuple(spec.stream for spec in planned.inputs)
    measured, ratio = Flow(), planned.earlier_ratio
    estimated = _flow(estimates[planned.id], [estimates[read] for read in reads])
    stats, unreported = info.stats if info is not None else None, PLANNED if query_state == PLANNED else UNREACHABLE
    if stats is not None:
        counted = Measurement(
            rows_in=stats.rows_in, rows_out=stats.rows_out, bytes_out=stats.bytes_out, estimated=estimated.selectivity
        )
        usable = counted.is_usable(has_state=planned.has_state)
        ratio = counted.ratio if usable else None
        measured = Flow(
            rows_s=stats.rows_out_s, bytes_s=stats.bytes_out_s, row_bytes=counted.row_bytes, selectivity=counted.selectivity
        )
    elif query_state == PLANNED and planned.rate.measured:
        measured = _flow(planned.rate, [rates[read] for read in reads])
    return ExplainedComponent(
        id=planned.id,
        kind="operator",
        node=node,
        state=state_of_component(info.state, query_state) if info is not None else unreported,
        reason=info.reason if info is not None else "",
        reads=reads,
        fragment=planned.fragment,
        signature=planned.signature,
        estimated=estimated,
        measured=measured,
        remembered=planned.rate.measured,
        ratio=ratio,
        rows=stats.rows_out if stats is not None else None,
        watermark_ms=info.watermark_ms if info is not None else None,
        ended=info is not None and info.ended,
        batch_ms=stats.batch_ms if stats is not None and stats.batches else None,
        under_way_s=stats.under_way_s if stats is not None and query_state in LIVE else None,
        under_way_rows=stats.under_way_rows if stats is not None else 0,
        under_way_bytes=stats.under_way_bytes if stats is not None else 0,
        state_provider=planned.state_provider if planned.has_state else "",
        state_mb=planned.state_mb if planned.has_state else None,
        move=info.move if info is not None else None,
    )


def _flow(rate: Rate, reads: list[Rate] | None = None) -> Flow:
    rows_in = sum(rate_in.rows_s for rate_in in reads or ())
    return Flow(
        rows_s=rate.rows_s,
        bytes_s=rate.bytes_s,
        row_bytes=rate.bytes_s / rate.rows_s if rate.rows_s else None,
        selectivity=rate.rows_s / rows_in if rows_in else None,
    )


class _Mean:
    """The mean of a query's usage since it began, in bytes."""

    def __init__(self, usage: QueryUsage | None, life_ms: int) -> None:
        self._links = {} if usage is None else {(one.stream, one.source_node, one.target_node): one for one in usage.links}
        self._life_ms = max(1, life_ms)

    def of_link(self, stream: str, source: str, target: str) -> float | None:
        line = self._links.get((stream, source, target))
        return None if line is None or line.byte_ms is None else line.byte_ms / self._life_ms

    def of_all(self, lines: Iterable[LinkUsage]) -> float | None:
        total = _sum(line.byte_ms for line in lines)
        return None if total is None else total / self._life_ms


def _link(
    source: ExplainedComponent, target: ExplainedComponent, bytes_s: float, latency_ms: Latency, queries: int, mean: _Mean
) -> ExplainedLink:
    one_way_ms = 0.0 if source.node == target.node else latency_ms(source.node, target.node)
    usage = _usage(bytes_s, one_way_ms)
    return ExplainedLink(
        stream=source.id,
        source_node=source.node,
        target=target.id,
        target_node=target.node,
        latency_ms=one_way_ms,
        bytes_s=bytes_s,
        usage=None if usage is None else usage / queries,
        measured_bytes_s=source.measured.bytes_s,
        measured_usage=mean.of_link(source.id, source.node, target.node),
        queries=queries,
    )


def _usage(bytes_s: float | None, one_way_ms: float | None) -> float | None:
    return None if bytes_s is None or one_way_ms is None else bytes_s * one_way_ms / 1000


def _sum(usages: Iterable[float | None]) -> float | None:
    each = list(usages)
    known = [usage for usage in each if usage is not None]
    return sum(known) if len(known) == len(each) else None


def _in_order(components: Mapping[str, ExplainedComponent], sink: str) -> list[ExplainedComponent]:
    """Return each part once, before its inputs."""
    ordered: dict[str, ExplainedComponent] = {}

    def walk(name: str) -> None:
        if name not in ordered:
            ordered[name] = components[name]
            for read in components[name].reads:
                walk(read)

    walk(sink)
    return list(ordered.values())


# -- Explanations of queries, and of submissions ----------------------------------------------------------------------


class Explainer:
    """Collects and combines the data of an explanation. Raises :class:`SbonError` as a submission does."""

    def __init__(self, context: Context, planning: Planning, lookup: QueryLookup, sources: SourceHost, reuse: Reuse) -> None:
        self._context, self._planning, self._lookup, self._sources = context, planning, lookup, sources
        self._reuse = reuse

    async def plan(self, question: QuerySpec) -> Explanation:
        """Explain a query that could be submitted, at the strategy's current placement; reserve nothing."""
        question.check()
        consumer = self._planning.consumer(question.consumer)
        plan = await self._planning.plan(question, "q")
        plan = await self._reuse.shared(plan, question, "q", consumer)
        placement, sources = await asyncio.gather(
            self._planning.place(plan, question, consumer, adapt=self._planning.adaptation(question)), self._described(plan)
        )
        return explained(
            plan,
            sql=question.sql,
            strategy=question.strategy,
            consumer=consumer,
            hosts=placement.hosts(),
            latency_ms=self._latency_ms,
            sources=sources,
            operators={},
        )

    async def query(self, query_id: str) -> Explanation:
        """Explain a query of the cluster in its current or last state."""
        info, query_usage = await self._lookup.show(query_id)
        if info.plan is None or info.placement is None:
            raise SbonError("query-not-placed", f"the query {query_id} has not been placed", where="query", hint="ask again")
        latencies = _latencies_of(info, query_usage)

        def latency_ms(source: str, target: str) -> float | None:
            return latencies.get((source, target), self._latency_ms(source, target))

        return explained(
            info.plan,
            sql=info.sql,
            strategy=info.strategy,
            consumer=info.consumer,
            hosts=info.hosts(),
            latency_ms=latency_ms,
            sources=await self._described(info.plan),
            operators={operator.id: operator for operator in (*info.operators, *info.shared)},
            query=info.id,
            uid=info.uid,
            state=info.state,
            reason=info.reason,
            taken=info.rows,
            sink_lost=info.sink_lost,
            usage=query_usage,
            life_ms=query_usage.at_ms - info.submitted_ms,
        )

    async def _described(self, plan: Plan) -> dict[str, SourceInfo]:
        """Describe sources by id; skip dropped streams, and streams declared again under their names."""
        names = sorted({planned.source.stream for planned in plan.sources})
        described = await asyncio.gather(*(self._sources_of(name) for name in names))
        return {info.source.id: info for infos in described for info in infos}

    async def _sources_of(self, name: str) -> Iterable[SourceInfo]:
        try:
            return (await self._sources.describe(name)).sources
        except SbonError as error:
            if error.code != "unknown-stream":
                raise
            return ()

    def _latency_ms(self, source: str, target: str) -> float | None:
        return self._context.directory.estimate_rtt_ms(source, target).one_way_ms


def _latencies_of(info: QueryInfo, query_usage: QueryUsage) -> dict[tuple[str, str], float]:
    """Return latencies as the links' nodes report them, if known."""
    baseline = {(line.source_node, line.target_node): line.latency_ms for line in query_usage.baseline}
    links = {(link.source_node, link.target_node): link.latency_ms for link in info.links}
    return {
        path: latency_ms for latencies in (baseline, links) for path, latency_ms in latencies.items() if latency_ms is not None
    }

"""The current state of a query: its leader asks every node that has a part in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from sbon_node.context import Context
from sbon_node.hosting.moving.arrivals import Moves
from sbon_node.hosting.operators.host import OperatorHost
from sbon_node.hosting.sinks.host import SinkHost
from sbon_node.hosting.sources.host import SourceHost, unreported_source
from sbon_node.hosting.standby.operator import OperatorKeeper
from sbon_node.model.records import FurtherSink, QueryRecord
from sbon_node.model.shown import shown_plan, shown_sink, shown_source
from sbon_node.model.times import utc_text
from sbon_node.net.peers import Caller
from sbon_node.overlay.presence import AS_AWAITED
from sbon_node.queries.describing.progress import progress_of
from sbon_node.queries.describing.waits import QueryReason, ReasonKind, Waits
from sbon_protocol.api.adaptation import MoveDecision
from sbon_protocol.api.catalogue import SourceDeclaration, called
from sbon_protocol.api.delivery import FurtherReport, Sample, SinkDelay, SinkReport
from sbon_protocol.api.measures import OperatorMeasures
from sbon_protocol.api.plan import Plan, PlannedOperator
from sbon_protocol.api.queries import MAX_SHOWN_DECISIONS, LinkInfo, OperatorInfo, QueryInfo, SinkInfo
from sbon_protocol.api.query_ids import sink_of
from sbon_protocol.api.states import further_sink_states, operator_states, query_states, sink_states, source_states
from sbon_protocol.api.states.lifecycle import LOST, OVER, PLANNED, UNREACHABLE
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.api.streams import SourceInfo, unknown_at
from sbon_protocol.api.subscribers import component_of, is_follower
from sbon_protocol.calls import ComponentsDestroyed, ComponentStates, DescribeComponents
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError

T = TypeVar("T", bound=msgspec.Struct)

CONSUMER = "the consumer, for which the rows wait"


class Descriptions:
    """Answers for the parts that this node hosts."""

    def __init__(
        self,
        context: Context,
        sources: SourceHost,
        operators: OperatorHost,
        moves: Moves,
        sinks: SinkHost,
        backups: OperatorKeeper,
        decisions: Callable[[str], tuple[MoveDecision, ...]],
    ) -> None:
        """Create them; ``decisions`` returns those about an operator, oldest first."""
        self._context, self._sources, self._operators, self._sinks = context, sources, operators, sinks
        self._moves, self._backups, self._decisions = moves, backups, decisions
        context.server.handle(DescribeComponents, self._described)

    async def _described(self, call: DescribeComponents, caller: Caller) -> ComponentStates:
        directory, name = self._context.directory, self._context.name
        return ComponentStates(
            operators=(
                *self._backups.describe(call.query),
                *self._moves.arrivals.describe(call.query),
                *self._described_operators(call),
            ),
            links=tuple(self._links(call.streams)),
            latencies_ms={
                target: one_way_ms
                for target in call.targets
                if (one_way_ms := directory.estimate_rtt_ms(name, target).one_way_ms) is not None
            },
            rows=self._sinks.rows(call.query),
            sink=self._sinks.open.report(sink_of(call.query)),
            sources=tuple(self._sources.reports_of(call.streams)),
            has_sink=self._sinks.has(call.query),
            sample=self._sinks.open.sample(sink_of(call.query)),
            delay=self._sinks.open.delay(sink_of(call.query)),
            further=tuple(self._sinks.further(call.query)),
        )

    def _described_operators(self, call: DescribeComponents) -> Iterator[OperatorInfo]:
        for operator in self._operators.describe(call.query):
            decisions = self._decisions(operator.id)[-MAX_SHOWN_DECISIONS:] if call.decisions else ()
            yield msgspec.structs.replace(operator, move=self._moves.departures.under_way(operator.id), decisions=decisions)

    def _links(self, streams: Iterable[str]) -> Iterable[LinkInfo]:
        outbox = self._context.outbox
        known = set(outbox.streams())
        for stream in streams:
            if stream not in known:
                continue
            for subscriber, count in outbox.link_counts(stream).links.items():
                if is_follower(subscriber):  # a follower's, which reads what the operator itself reads
                    continue
                yield LinkInfo(
                    stream=stream,
                    source_node=self._context.name,
                    target=component_of(subscriber),
                    target_node="",
                    rows=count.rows,
                    bytes=count.bytes,
                    saved_bytes=count.saved_bytes,
                    latency_ms=None,
                    dropped=count.dropped,
                    failed=count.failed,
                    frames_behind=count.frames_behind,
                    bytes_behind=count.bytes_behind,
                )


class Reported(NamedTuple):
    """The report of a node about its own parts."""

    operators: list[OperatorInfo]
    links: list[LinkInfo]
    sources: list[SourceInfo]
    latencies_ms: dict[str, float]
    rows: int | None
    delivery: SinkReport | None
    has_sink: bool | None
    sample: Sample | None
    delay: SinkDelay | None
    further: list[FurtherReport]


class Description(NamedTuple):
    """Description of a query, with its ``reasons``; ``latencies_ms`` are one-way, by reporting node and target node."""

    info: QueryInfo
    latencies_ms: dict[str, dict[str, float]]
    waits: Waits
    reasons: tuple[QueryReason, ...]

    def with_operators(
        self, operators: tuple[OperatorInfo, ...], shared: tuple[OperatorInfo, ...], judged: Collection[str]
    ) -> Description:
        """Return the description with other states of its operators and shared ones, of which some are ``judged``."""
        reasons = self.waits.reasons((*operators, *shared), judged)
        changed = {"operators": operators, "shared": shared, "reason": self.waits.text(reasons)}
        return self._replace(info=msgspec.structs.replace(self.info, **changed), reasons=reasons)


async def describe(
    context: Context, record: QueryRecord, hosts: Mapping[str, str], *, refusals: str = "", decisions: bool = False
) -> Description:
    """Ask every node that has a part, once and all at the same time; ``hosts`` are those of operators and sources by id.

    Decisions to move operators are long, and are asked for only if ``decisions``. ``refusals`` say why other nodes have not taken
    over the sink, whose node is lost.

    A part is ``unreachable`` if its node gives no valid answer. The query's reason names the silent nodes, the sources that
    cannot be read, and the operators that wait, with what they wait for.
    """
    parts = (*record.plan.operators, *(shared.operator for shared in record.plan.shared))
    components = frozenset((*record.components, *(shared.id for shared in record.plan.shared)))
    # A replicated source may have moved.
    planned = [msgspec.structs.replace(p.source, node=hosts.get(p.source.id, p.source.node)) for p in record.plan.sources]
    streams = {source.id: source.node for source in planned} | {o.id: hosts[o.id] for o in parts if o.id in hosts}
    readers = {**hosts, record.sink_component: record.consumer}
    readers |= {one.component: one.node for one in record.more_sinks}
    nodes = sorted({*streams.values(), record.consumer})
    everywhere = sorted({*nodes, *(one.node for one in record.more_sinks)})
    asked = await asyncio.gather(*(_ask(context, record, n, streams, everywhere, decisions) for n in everywhere))
    answers = dict(zip(everywhere, asked, strict=True))
    reports = {node: answer for node, answer in answers.items() if answer is not None}
    unanswered = [node for node in nodes if node not in reports]
    operators = {operator.id: operator for report in reports.values() for operator in report.operators}
    source_infos = {info.source.id: info for report in reports.values() for info in report.sources}
    links = [
        _placed(link, readers, report.latencies_ms, operators)
        for report in reports.values()
        for link in report.links
        if link.target in components
    ]
    consumer = reports.get(record.consumer)
    known = [operators.get(o.id) or _unreported(context, record, hosts.get(o.id, ""), o, unanswered) for o in parts]
    described, shared = tuple(known[: len(record.plan.operators)]), tuple(known[len(record.plan.operators) :])
    sources = tuple(_of_plan(source, source_infos.get(source.id), unanswered) for source in planned)
    rows = consumer.rows if consumer is not None else None
    elapsed_s = max(0, context.clock.wall_ms() - record.submitted_ms) / 1000
    outputs, state = record.plan.outputs, record.state
    progress = progress_of(sources, links, described, outputs, rows=rows, state=state, elapsed_s=elapsed_s)
    further = {node: report.further for node, report in reports.items()}
    sinks = tuple(_described(record, one, further) for one in record.more_sinks)
    sinks_wait = (*_of_sink(context, record, consumer, refusals), *_of_further(context, sinks))
    waits = _waits(context, record, sources, unanswered, sinks_wait)
    reasons = waits.reasons(known)
    info = QueryInfo(
        id=record.called,
        uid=record.id,
        sql=record.sql,
        state=record.state,
        reason=waits.text(reasons),
        submitted_ms=record.submitted_ms,
        node=context.name,
        consumer=record.consumer,
        sink=shown_sink(record.sink),
        sinks=sinks,
        **record.goal_options(),
        on_error=record.on_error,
        adapt=record.adapt,
        durability=record.durability,
        streams=record.streams,
        sources=sources,
        plan=shown_plan(record.plan),
        placement=record.placement,
        operators=described,
        shared=shared,
        links=tuple(sorted(links, key=lambda link: (link.stream, link.target))),
        rows=rows,
        progress=progress,
        delivery=consumer.delivery if consumer is not None else None,
        sink_lost=record.state == query_states.RUNNING and consumer is not None and consumer.has_sink is False,
        sample=consumer.sample if consumer is not None else None,
        delay=stated_delay(record.plan, known, consumer.delay) if consumer is not None else None,
    )
    return Description(info, {node: report.latencies_ms for node, report in reports.items()}, waits, reasons)


def _waits(
    context: Context,
    record: QueryRecord,
    sources: Sequence[SourceInfo],
    unanswered: Iterable[str],
    sinks_wait: tuple[QueryReason, ...],
) -> Waits:
    """Return the reasons of a query beside those of its operators; sources and sinks hold up a running one alone."""
    is_running = record.state == query_states.RUNNING
    held = sources_that_hold(record.plan, sources, context.clock.wall_ms()) if is_running else ()
    before = [
        QueryReason("no-answer", context.presence.no_answer(n, CONSUMER if n == record.consumer else "")) for n in unanswered
    ]
    before += [QueryReason("source-unread", text) for text in _unread(sources)]
    before += [QueryReason("source-quiet", text) for text in held]
    return Waits(record.reason, tuple(before), sinks_wait if is_running else ())


def delivery_of(context: Context, answer: ComponentStates | ComponentsDestroyed) -> SinkReport | None:
    """Return the sink's state as the consumer's node reports it; None if it gives no valid report."""
    return _decoded(context, answer.sink, SinkReport)


async def _ask(
    context: Context, record: QueryRecord, node: str, streams: dict[str, str], nodes: list[str], decisions: bool
) -> Reported | None:
    """Ask a node for its report; believe only what it says about its own parts."""
    here = tuple(sorted(s for s, at in streams.items() if at == node))
    call = DescribeComponents(query=record.id, streams=here, targets=tuple(nodes), decisions=decisions)
    try:
        answer = await context.ask(node, call, ComponentStates, timeout_s=context.settings.component_timeout_s)
        operators: list[OperatorInfo] = [decode_record(value, OperatorInfo) for value in answer.operators]
        links: list[LinkInfo] = [decode_record(value, LinkInfo) for value in answer.links]
        sources: list[SourceInfo] = [decode_record(value, SourceInfo) for value in answer.sources]
        further: list[FurtherReport] = [decode_record(value, FurtherReport) for value in answer.further]
    except SbonError as error:
        context.counters.note("description-missing", node=node, query=record.id, reason=str(error))
        return None
    except ProtocolError as error:
        context.counters.refuse("description-refused", node=node, query=record.id, reason=str(error))
        return None
    return Reported(
        operators=[msgspec.structs.replace(operator, node=node) for operator in operators if operator.id in here],
        links=[msgspec.structs.replace(link, source_node=node) for link in links if link.stream in here],
        sources=[info for info in sources if info.source.id in here],
        latencies_ms=answer.latencies_ms,
        rows=answer.rows,
        delivery=delivery_of(context, answer),
        has_sink=answer.has_sink,
        sample=_decoded(context, answer.sample, Sample),
        delay=_decoded(context, answer.delay, SinkDelay),
        further=further,
    )


def _decoded(context: Context, value: object, type_: type[T]) -> T | None:
    """Return the peer's record; None if there is none, or no valid one."""
    if value is None:
        return None
    try:
        record: T = decode_record(value, type_)
    except ProtocolError as error:
        context.counters.refuse("description-refused", reason=str(error))
        return None
    return record


def _placed(
    link: LinkInfo, hosts: dict[str, str], latencies_ms: dict[str, float], operators: Mapping[str, OperatorInfo]
) -> LinkInfo:
    target_node = hosts.get(link.target, "")
    latency_ms = latencies_ms.get(target_node) if target_node != link.source_node else 0.0
    queries = len(operators[link.target].queries) if link.target in operators else 0
    return msgspec.structs.replace(link, target_node=target_node, latency_ms=latency_ms, queries=max(1, queries))


def _unreported(
    context: Context, record: QueryRecord, node: str, operator: PlannedOperator, unanswered: Collection[str]
) -> OperatorInfo:
    """Describe an operator that its host does not report."""
    if node in unanswered:
        state, reason = UNREACHABLE, context.presence.no_answer(node)
    elif record.state != query_states.RUNNING:
        state, reason = PLANNED, ""
    else:
        state, reason = LOST, unknown_at(node)
    return OperatorInfo(
        id=operator.id,
        node=node,
        fragment=operator.fragment,
        state=state,
        reason=reason,
        durability=record.durability,
        stats=None,
    )


def _of_plan(planned: SourceDeclaration, info: SourceInfo | None, unanswered: Collection[str]) -> SourceInfo:
    return msgspec.structs.replace(info or unreported_source(planned, unanswered), source=shown_source(planned))


def _unread(sources: Iterable[SourceInfo]) -> Iterator[str]:
    """Yield the sources that cannot be read, with the reason."""
    for info in sources:
        if info.trouble:
            failed = " has failed" if info.state.startswith(source_states.FAILED) else ""
            yield f"source {called(info.source)}{failed}: {info.trouble}"


def _of_sink(context: Context, record: QueryRecord, consumer: Reported | None, refusals: str) -> Iterator[QueryReason]:
    """Yield why the first sink of a running query does not deliver: it is lost or paused, or its node is gone."""
    node = record.consumer
    if consumer is not None and consumer.has_sink is False:
        yield QueryReason("sink-lost", f"sink at {node}: {unknown_at(node)}")
    elif consumer is not None and consumer.delivery is not None and _is_paused(consumer.delivery):
        yield QueryReason("sink-paused", f"sink at {node} is {consumer.delivery.state}")
    if refusals or (consumer is None and context.presence.away(node)):
        yield QueryReason("sink-not-taken-over", f"no other node takes the sink over: {refusals or _stays(context, record)}")


def _stays(context: Context, record: QueryRecord) -> str:
    """Return why no node has been asked yet to take over the sink of an absent node."""
    if not record.sink.failover:
        return "the query was submitted without failover of its sink"
    if not context.presence.gone(AS_AWAITED, record.consumer):
        return f"{record.consumer} is expected back"
    return f"others are asked once {record.consumer} has been lost for {context.settings.sink_failover_s:g} s"


def _of_further(context: Context, sinks: Iterable[SinkInfo]) -> Iterator[QueryReason]:
    """Yield why further sinks of a running query do not deliver."""
    kinds: dict[str, ReasonKind] = {further_sink_states.FAILED: "sink-failed", LOST: "sink-lost"}
    for one in sinks:
        if one.state == UNREACHABLE:
            yield QueryReason("no-answer", context.presence.no_answer(one.node, f"the node of {one.id}"))
        elif one.state in kinds:
            trouble = "is lost" if one.state == LOST else "has failed"
            yield QueryReason(kinds[one.state], f"{one.id} at {one.node} {trouble}: {one.reason}")
        elif one.delivery is not None and _is_paused(one.delivery):
            yield QueryReason("sink-paused", f"{one.id} at {one.node} is {one.delivery.state}")


def _is_paused(report: SinkReport) -> bool:
    return report.state.partition(":")[0] == sink_states.PAUSED


# -- The error of a query's measured delay: the clocks of all links on the way add to it ------------------------------


def stated_delay(plan: Plan, operators: Iterable[OperatorInfo], delay: SinkDelay | None) -> SinkDelay | None:
    """Return the sink's delay with the error of the whole way, the largest over all paths.

    Each host translates the times of the frames that it reads to its own clock, so the errors of a path's links add up. The sink
    knows that of its own links only. None for ``error_ms`` where a host does not report.
    """
    if delay is None or delay.error_ms is None:
        return delay
    measures = {operator.id: operator.measures for operator in operators}
    upstream_ms: dict[str, float | None] = {planned.source.id: 0.0 for planned in plan.sources}
    for planned in (*(shared.operator for shared in plan.shared), *plan.operators):
        upstream_ms[planned.id] = _error_ms(measures.get(planned.id), upstream_ms)
    errors = [upstream_ms.get(stream) for stream in plan.outputs]
    known = [error for error in errors if error is not None]
    error_ms = delay.error_ms + max(known) if known and len(known) == len(errors) else None
    return msgspec.structs.replace(delay, error_ms=error_ms)


def _error_ms(measures: OperatorMeasures | None, upstream_ms: dict[str, float | None]) -> float | None:
    """Return the error of times on an operator's output; None if it is unknown."""
    errors = []
    for read in measures.inputs if measures is not None else ():
        before = upstream_ms.get(read.stream)
        if before is None or read.clock_error_ms is None:
            return None
        errors.append(before + read.clock_error_ms)
    return max(errors, default=None)


# -- Sources whose watermark holds back a query's windows and joins, as users read it. Pure ---------------------------

QUIET_MS = 10_000
"""A source holds others back if its watermark last rose this much earlier than theirs: longer than the pauses of most feeds."""


def sources_that_hold(plan: Plan, sources: Iterable[SourceInfo], now_ms: int) -> Iterator[str]:
    """Yield each source that holds back operators with state, with the time since when.

    An operator with several sources takes the least of their watermarks, so a silent source keeps the rows of all the others.
    A source that has ended holds back none. Times are those of the sources' nodes; ``now_ms`` is this node's.
    """
    infos = {info.source.id: info for info in sources}
    for name in dict.fromkeys(name for read in _read_together(plan) for name in _behind(infos, read, now_ms)):
        info = infos[name]
        since = f" since {utc_text(info.advanced_ms)}" if info.advanced_ms is not None else ""
        quiet = "without a row" if info.watermark_ms is None else f"at watermark {utc_text(info.watermark_ms)}"
        yield f"source {called(info.source)} holds windows back: {quiet}{since}"


def _read_together(plan: Plan) -> Iterator[list[str]]:
    """Yield the sources of each operator with state."""
    operators: dict[str, PlannedOperator] = {one.operator.id: one.operator for one in plan.shared}
    operators |= {one.id: one for one in plan.operators}
    known: dict[str, list[str]] = {planned.source.id: [planned.source.id] for planned in plan.sources}
    for one in operators.values():
        known[one.id] = list(dict.fromkeys(name for read in one.inputs for name in known.get(read.stream, ())))
        if any(read.event_time for read in one.inputs):
            yield known[one.id]


def _behind(infos: Mapping[str, SourceInfo], read: Collection[str], now_ms: int) -> Iterator[str]:
    """Yield the sources that are behind another one, and have been quiet while that one went on or ended."""
    all_ = [infos[name] for name in read if name in infos]
    for info in all_:
        if _goes_on(info) and any(_is_behind(info, other, now_ms) for other in all_):
            yield info.source.id


def _goes_on(info: SourceInfo) -> bool:
    """Return whether more rows may come; other reasons tell of a source that is away or has failed."""
    return _state(info) not in (source_states.ENDED, source_states.FAILED, UNREACHABLE, LOST) and not info.trouble


def _is_behind(info: SourceInfo, other: SourceInfo, now_ms: int) -> bool:
    if other.watermark_ms is None or (info.watermark_ms is not None and info.watermark_ms >= other.watermark_ms):
        return False
    upto_ms = now_ms if _state(other) == source_states.ENDED else other.advanced_ms
    return upto_ms is not None and (info.advanced_ms is None or info.advanced_ms + QUIET_MS <= upto_ms)


def _state(info: SourceInfo) -> str:
    return info.state.partition(":")[0]


# -- Further sinks ----------------------------------------------------------------------------------------------------


def recorded_sink(one: FurtherSink) -> SinkInfo:
    """Return what the record alone knows of a sink."""
    return SinkInfo(
        id=one.part,
        node=one.node,
        sink=shown_sink(one.spec),
        state=one.state,
        reason=one.reason,
        begins_after=one.begins_after,
        temporary=one.temporary,
    )


def _described(record: QueryRecord, one: FurtherSink, reports: Mapping[str, Iterable[FurtherReport]]) -> SinkInfo:
    """Return a further sink of a query; ``reports`` are those of the nodes that answer, by node."""
    known = recorded_sink(one)
    report = next((report for report in reports.get(one.node, ()) if report.component == one.component), None)
    if report is not None:
        return msgspec.structs.replace(known, rows=report.rows, delivery=report.report)
    if one.state != further_sink_states.RUNNING or record.state != query_states.RUNNING:
        return known
    state, reason = (LOST, "its node does not know it") if one.node in reports else (UNREACHABLE, "its node does not answer")
    return msgspec.structs.replace(known, state=state, reason=reason)


# -- Queries in a terminal state, whose parts no longer run -----------------------------------------------------------


def state_of_component(state: str, query_state: str) -> str:
    """Return the state of a part: ``failed`` stays, any other is over with its query."""
    return state if query_state in LIVE or state == operator_states.FAILED else OVER


def as_terminal(info: QueryInfo) -> QueryInfo:
    """Return the last description of a query that is over; return a live query unchanged."""
    if info.state in LIVE:
        return info
    operators = tuple(_operator(operator, info.state) for operator in info.operators)
    delivery, progress = info.delivery, info.progress
    if delivery is not None and delivery.state != sink_states.FINISHED:
        delivery = msgspec.structs.replace(delivery, state=OVER)
    if progress is not None:
        # All sources of a finished query are read, whatever the last description says.
        share = 1.0 if info.state == query_states.FINISHED else progress.read_share
        progress = msgspec.structs.replace(
            progress, rows_out=info.rows, read_share=share, rows_in_s=None, rows_out_s=None, lag_ms=None, left_s=None
        )
    return msgspec.structs.replace(info, operators=operators, delivery=delivery, progress=progress, survival=None)


def _operator(operator: OperatorInfo, query_state: str) -> OperatorInfo:
    """Clear the reason for waiting, and a move that the end has cut short; keep reasons for a failure or for a missing report."""
    state = state_of_component(operator.state, query_state)
    operator = msgspec.structs.replace(operator, move=None, backup=None)
    if operator.state == UNREACHABLE:
        return msgspec.structs.replace(operator, state=state, reason=f"{operator.reason} at its end", stats=None)
    reason = operator.reason if state == operator_states.FAILED or operator.stats is None else ""
    return msgspec.structs.replace(operator, state=state, reason=reason)

"""What a query does now: its record's holder asks every node that has a part in it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec
import structlog

from sbon_node.control.context import Context
from sbon_node.control.operators import OperatorHost
from sbon_node.control.records import QueryRecord
from sbon_node.control.report import LinkInfo, OperatorInfo, QueryInfo, SinkReport, SourceInfo
from sbon_node.control.sinks import SinkHost
from sbon_node.control.sources import SourceHost, shown_source
from sbon_node.errors import SbonError
from sbon_node.net.peers import Caller
from sbon_node.query.catalog import SourceDeclaration, called
from sbon_node.query.plan import Plan
from sbon_protocol.calls import DescribeParts, PartsDestroyed, PartStates
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError

log = structlog.get_logger()

MAX_REASON = 500


class Descriptions:
    """Answers for the parts this node hosts."""

    def __init__(self, context: Context, sources: SourceHost, operators: OperatorHost, sinks: SinkHost) -> None:
        self._context, self._sources, self._operators, self._sinks = context, sources, operators, sinks
        context.server.handle(DescribeParts, self._described)

    async def _described(self, call: DescribeParts, caller: Caller) -> PartStates:
        directory, name = self._context.directory, self._context.name
        return PartStates(
            operators=tuple(self._operators.describe(call.query)),
            links=tuple(self._links(call.streams)),
            latencies_ms={
                target: one_way_ms
                for target in call.targets
                if (one_way_ms := directory.estimate_rtt_ms(name, target).one_way_ms) is not None
            },
            rows=self._sinks.rows(call.query),
            sink=self._sinks.report(call.query),
            sources=tuple(self._sources.reports_of(call.streams)),
        )

    def _links(self, streams: Iterable[str]) -> Iterable[LinkInfo]:
        outbox = self._context.outbox
        known = set(outbox.streams())
        for stream in streams:
            if stream not in known:
                continue
            for subscriber, count in outbox.link_counts(stream).links.items():
                yield LinkInfo(
                    stream=stream,
                    source_node=self._context.name,
                    target=subscriber.partition("#")[0],
                    target_node="",
                    rows=count.rows,
                    bytes=count.bytes,
                    latency_ms=None,
                    dropped=count.dropped,
                    failed=count.failed,
                )


class Told(NamedTuple):
    """What a node says of parts of its own."""

    operators: list[OperatorInfo]
    links: list[LinkInfo]
    sources: list[SourceInfo]
    latencies_ms: dict[str, float]
    rows: int | None
    delivery: SinkReport | None


class Description(NamedTuple):
    """``latencies_ms`` are one way, by the node that tells them and the one they lead to."""

    info: QueryInfo
    latencies_ms: dict[str, dict[str, float]]


async def describe(context: Context, record: QueryRecord) -> Description:
    """Asks every node that has a part, once, all at the same time; a part whose node gives no answer that can be read is
    ``unreachable``, and the query's reason says of whom nothing is known, which sources cannot be read, and which operators wait
    for what."""
    parts = {o.id for o in record.plan.operators} | {record.sink_part}
    streams = {p.source.id: p.source.node for p in record.plan.sources} | {
        o.id: record.hosts[o.id] for o in record.plan.operators if o.id in record.hosts
    }
    places = {**record.hosts, record.sink_part: record.consumer}
    nodes = sorted({*streams.values(), record.consumer})
    answers = dict(zip(nodes, await asyncio.gather(*(_ask(context, record, n, streams, nodes) for n in nodes)), strict=True))
    there = {node: answer for node, answer in answers.items() if answer is not None}
    silent = [node for node in nodes if node not in there]
    operators = {one.id: one for told in there.values() for one in told.operators}
    standing = {one.source.id: one for told in there.values() for one in told.sources}
    links = [_placed(link, places, told.latencies_ms) for told in there.values() for link in told.links if link.target in parts]
    consumer = there.get(record.consumer)
    described = tuple(operators.get(o.id) or _untold(record, o.id, o.fragment, silent) for o in record.plan.operators)
    sources = tuple(_of_plan(planned.source, standing.get(planned.source.id)) for planned in record.plan.sources)
    info = QueryInfo(
        id=record.id,
        sql=record.sql,
        state=record.state,
        reason=record.reason or _waits(described, sources, silent),
        submitted_ms=record.submitted_ms,
        node=context.name,
        consumer=record.consumer,
        sink=record.sink.shown(),
        **record.wishes(),
        streams=record.streams,
        sources=sources,
        plan=_shown(record.plan),
        placement=record.placement,
        operators=described,
        links=tuple(sorted(links, key=lambda link: (link.stream, link.target))),
        rows=consumer.rows if consumer is not None else None,
        delivery=consumer.delivery if consumer is not None else None,
    )
    return Description(info, {node: told.latencies_ms for node, told in there.items()})


def _shown(plan: Plan) -> Plan:
    """Without what gives access to where rows are born."""
    sources = tuple(msgspec.structs.replace(planned, source=shown_source(planned.source)) for planned in plan.sources)
    return msgspec.structs.replace(plan, sources=sources)


def delivery_of(context: Context, answer: PartStates | PartsDestroyed) -> SinkReport | None:
    """How the sink stands by what the consumer's node says; None where it says nothing of it that can be read."""
    if answer.sink is None:
        return None
    try:
        found: SinkReport = decode_record(answer.sink, SinkReport)
    except ProtocolError as error:
        context.counters.count("description-refused")
        log.warning("description-refused", reason=str(error))
        return None
    return found


async def _ask(context: Context, record: QueryRecord, node: str, streams: dict[str, str], nodes: list[str]) -> Told | None:
    """A node is believed what it says of its own parts, and nothing else."""
    here = tuple(sorted(s for s, at in streams.items() if at == node))
    call = DescribeParts(query=record.id, streams=here, targets=tuple(nodes))
    try:
        answer = await context.ask(node, call, PartStates, timeout_s=context.settings.part_timeout_s)
        operators: list[OperatorInfo] = [decode_record(value, OperatorInfo) for value in answer.operators]
        links: list[LinkInfo] = [decode_record(value, LinkInfo) for value in answer.links]
        sources: list[SourceInfo] = [decode_record(value, SourceInfo) for value in answer.sources]
    except SbonError as error:
        log.info("description-missing", node=node, query=record.id, reason=str(error))
        return None
    except ProtocolError as error:
        context.counters.count("description-refused")
        log.warning("description-refused", node=node, query=record.id, reason=str(error))
        return None
    return Told(
        operators=[msgspec.structs.replace(one, node=node) for one in operators if one.id in here],
        links=[msgspec.structs.replace(one, source_node=node) for one in links if one.stream in here],
        sources=[one for one in sources if one.source.id in here],
        latencies_ms=answer.latencies_ms,
        rows=answer.rows,
        delivery=delivery_of(context, answer),
    )


def _placed(link: LinkInfo, places: dict[str, str], latencies_ms: dict[str, float]) -> LinkInfo:
    target_node = places.get(link.target, "")
    latency_ms = latencies_ms.get(target_node) if target_node != link.source_node else 0.0
    return msgspec.structs.replace(link, target_node=target_node, latency_ms=latency_ms)


def _untold(record: QueryRecord, operator: str, fragment: str, silent: Collection[str]) -> OperatorInfo:
    """An operator of which no host says anything."""
    node = record.hosts.get(operator, "")
    if node in silent:
        state, reason = "unreachable", f"no answer from {node}"
    elif record.state != "running":
        state, reason = "planned", ""
    else:
        state, reason = "missing", f"{node} does not run it"
    return OperatorInfo(id=operator, node=node, fragment=fragment, state=state, reason=reason, stats=None)


def _of_plan(planned: SourceDeclaration, told: SourceInfo | None) -> SourceInfo:
    return msgspec.structs.replace(told or SourceInfo(source=planned, state="unreachable"), source=shown_source(planned))


def _waits(operators: Iterable[OperatorInfo], sources: Iterable[SourceInfo], silent: Iterable[str]) -> str:
    """Why the query may not go on, or not all of it is shown; empty where it does and is."""
    unread = [
        f"source {called(one.source)}{' has failed' if one.state.startswith('failed') else ''}: {one.trouble}"
        for one in sources
        if one.trouble
    ]
    waits = [f"{o.id} at {o.node}: {o.reason}" for o in operators if o.reason and o.state not in ("running", "unreachable")]
    return "; ".join([*(f"no answer from {node}" for node in silent), *unread, *waits])[:MAX_REASON]

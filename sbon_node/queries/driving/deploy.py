"""Deployment of a placed plan, or its undoing: reserve everywhere, open the sink, start the operators.

Source: docs/design.md, section 10.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import structlog

from sbon_node.context import Context
from sbon_node.hosting.components import SinkOrder
from sbon_node.model.records import FurtherSink, QueryRecord
from sbon_node.overlay.presence import AS_FORMER_HOST
from sbon_node.ownership.consensus.states import Acceptor
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.plan import PlannedOperator
from sbon_protocol.api.queries import Progress
from sbon_protocol.calls import ComponentsDestroyed, DestroyComponents, InstantiateOperator, OpenSink, ReserveOperator
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

NOT_STARTED = frozenset({"peer-unreachable", "engine-failed", "java-missing"})
"""Errors of a host that say nothing of the operator."""
LATE = "its engine starts still, or does not answer; try again, or see engine.log there and control.start_timeout_s"


class NotStartedError(SbonError):
    """The engine of the node ``where`` does not start, or not in time; another node may start the operator."""


async def reserve(context: Context, record: QueryRecord) -> dict[str, SbonError]:
    """Ask every chosen host to reserve capacity; return the refusals by operator. If any host refuses, no capacity stays
    reserved.
    """

    async def reserve_at_host(operator: PlannedOperator) -> SbonError | None:
        call = ReserveOperator(
            query=record.id,
            operator=operator.id,
            cores=operator.needs.cores,
            memory_mb=operator.needs.memory_mb,
            bandwidth_bytes_s=operator.needs.bandwidth_bytes_s,
            hold_s=context.settings.reservation_s,
        )
        try:
            await context.call(record.hosts[operator.id], call)
        except SbonError as error:
            return error
        return None

    operators = record.plan.operators
    answers = await asyncio.gather(*(reserve_at_host(o) for o in operators))
    refused = {o.id: error for o, error in zip(operators, answers, strict=True) if error is not None}
    if refused:
        # Without the sink, whose end is the query's: hosts refuse later calls of a query that is over.
        release = DestroyComponents(query=record.id, components=tuple(o.id for o in operators))
        await _destroy_at_all(context, {record.hosts[o.id] for o in operators}, release)
    return refused


async def start(context: Context, record: QueryRecord, acceptors: tuple[Acceptor, ...]) -> AsyncGenerator[Progress, None]:
    """Open the sink, then start the operators from the consumer's side on; raise the first refusal."""
    order = sink_order(record, record.hosts)
    yield Progress(step="starting", message=f"opening the sink at {record.consumer}")
    try:
        await context.call(record.consumer, OpenSink(sink=order, acceptors=acceptors))
    except SbonError as error:
        if error.code != "peer-unreachable":
            raise
        where, message = f"{record.consumer} at {error.where}", f"opening the sink failed: {error.message}"
        hint = "see whether this node is alive: sbon members; then submit again, or name another with --consumer"
        raise SbonError(error.code, message, where=where, hint=hint) from error
    starts = {
        asyncio.create_task(_instantiate(context, record, operator, acceptors)): operator
        for operator in reversed(record.plan.operators)
    }
    for operator in reversed(record.plan.operators):
        yield Progress(step="starting", message=f"starting {operator.id} at {record.hosts[operator.id]}")
    try:
        pending = set(starts)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda t: starts[t].id):
                task.result()
                operator = starts[task]
                yield Progress(step="running", message=f"{operator.id} runs at {record.hosts[operator.id]}")
    finally:
        for task in starts:
            task.cancel()
        await asyncio.gather(*starts, return_exceptions=True)


def sink_order(record: QueryRecord, hosts: Mapping[str, str], epoch: int = 1) -> SinkOrder:
    """Return the order to open the query's sink, or to take it over; ``hosts`` are those of its operators and sources by id."""
    return SinkOrder(
        query=record.id,
        component=record.sink_component,
        inputs=tuple((stream, hosts[stream]) for stream in record.plan.outputs),
        schema=record.plan.schema,
        spec=record.sink,
        epoch=epoch,
        by_position=record.plan.renamed_outputs(),
    )


async def _instantiate(context: Context, record: QueryRecord, operator: PlannedOperator, acceptors: tuple[Acceptor, ...]) -> None:
    readers = record.plan.readers(operator.id, record.sink_component)
    spec = msgspec.structs.replace(
        operator.spec(record.id, record.hosts, readers=readers),
        adapt=record.adapt,
        durability=record.durability,
        max_delay_ms=record.max_delay_ms,
        min_throughput_bytes_s=record.min_throughput_bytes_s,
    )
    if record.plan.starts:
        started = (msgspec.structs.replace(one, after=record.plan.starts.get(one.stream, 0)) for one in spec.inputs)
        spec = msgspec.structs.replace(spec, inputs=tuple(started))
    if record.restarted_from:
        whole = (msgspec.structs.replace(one, whole=is_source(one.stream)) for one in spec.inputs)
        spec = msgspec.structs.replace(spec, inputs=tuple(whole))
    host, call = record.hosts[operator.id], InstantiateOperator(spec=spec, acceptors=acceptors)
    began_s, limit_s = context.clock.now(), context.settings.start_timeout_s
    try:
        await context.call_while_there(host, call, timeout_s=limit_s)
    except SbonError as error:
        if error.code not in NOT_STARTED:
            raise
        is_lost = error.code == "peer-unreachable" and context.clock.now() < began_s + limit_s
        hint = error.hint if error.code == "java-missing" else LATE
        kind = SbonError if is_lost else NotStartedError
        raise kind(error.code, f"{operator.id} did not start: {error.message}", where=host, hint=hint) from error


class Destroyed(NamedTuple):
    """Result of :func:`destroy`.

    ``missed`` are the nodes that must be asked again later, because they were unreachable or keep shared operators. ``sink`` is
    the answer of the consumer's node, if it was asked.
    """

    missed: list[str]
    sink: ComponentsDestroyed | None


async def destroy(
    context: Context, record: QueryRecord, hosts: Mapping[str, str], nodes: Collection[str], shared: Collection[str] = ()
) -> Destroyed:
    """Ask ``nodes`` to end all parts of the query; ``hosts`` are those of its operators and sources, by id.

    Nodes that have left for good are skipped. Its own operators that are ``shared`` go on with their inputs as long as their
    hosts keep them for other queries: only these hosts are told of the end, and have to be asked again.

    A running operator subscribes again if its source has just removed its subscription. So the sources' nodes are asked once more
    when no operator is left.
    """
    parts = tuple(one for one in record.parts if one not in shared)
    call = DestroyComponents(query=record.id, components=parts, refused=record.refused)
    kept_at = {node: [one for one in shared if hosts.get(one) == node] for node in nodes}
    answers = await _destroy_at_all(context, nodes, call, kept_at)
    missed = {node for node, answer in answers.items() if answer is None or answer.kept}
    sink = answers.get(hosts.get(record.sink_component, record.consumer))
    running = {hosts[o.id] for o in record.plan.operators if o.id in hosts}
    if not running & set(nodes):
        return Destroyed(sorted(missed), sink)
    again = {hosts[i.stream] for o in record.plan.operators for i in o.inputs if o.id in hosts}
    if not running & missed:
        answers = await _destroy_at_all(context, again - missed, call)
        again = {node for node, answer in answers.items() if answer is None}
    return Destroyed(sorted(missed | again), sink)


async def end_sink(context: Context, record: QueryRecord, sink: FurtherSink, nodes: Collection[str]) -> None:
    """Ask ``nodes`` to end a further sink; one that has never run leaves nothing. Nodes that are away are not asked again."""
    call = DestroyComponents(query=record.id, components=(sink.component,), refused=not sink.opened)
    await _destroy_at_all(context, nodes, call)


async def confirm(context: Context, record: QueryRecord, consumer: str) -> None:
    """Let the sink's node forget the final count of rows, now that the record has it; if the call is lost, it keeps it."""
    call = DestroyComponents(query=record.id, components=(record.sink_component,), confirmed=True)
    await _destroy_at(context, consumer, call)


async def _destroy_at_all(
    context: Context, nodes: Collection[str], call: DestroyComponents, more: Mapping[str, Collection[str]] = MappingProxyType({})
) -> dict[str, ComponentsDestroyed | None]:
    """Ask all nodes to end the components of the call, and ``more`` ones by node; return the answers.

    These are None for unreachable nodes.
    """

    def at(node: str) -> DestroyComponents:
        return msgspec.structs.replace(call, components=(*call.components, *more.get(node, ())))

    answers = await asyncio.gather(*(_destroy_at(context, node, at(node)) for node in sorted(nodes)))
    return dict(zip(sorted(nodes), answers, strict=True))


async def _destroy_at(context: Context, node: str, call: DestroyComponents) -> ComponentsDestroyed | None:
    if context.presence.gone(AS_FORMER_HOST, node):
        return ComponentsDestroyed()
    try:
        return await context.ask(node, call, ComponentsDestroyed, timeout_s=context.settings.call_timeout_s * 3)
    except SbonError as error:
        log.info("destroy-not-sent", node=node, query=call.query, reason=str(error))
        return None

"""A placed plan is deployed: reserved everywhere, then sink first, operators after; or undone (docs/design.md, section 10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from typing import NamedTuple

import structlog

from sbon_node.control.context import Context
from sbon_node.control.records import QueryRecord
from sbon_node.control.report import Progress
from sbon_node.control.sinks import SinkOrder
from sbon_node.errors import SbonError
from sbon_node.query.plan import PlannedOperator
from sbon_protocol.calls import DestroyParts, InstantiateOperator, OpenSink, PartsDestroyed, ReserveOperator

log = structlog.get_logger()


async def reserve(context: Context, record: QueryRecord) -> dict[str, SbonError]:
    """Asks every chosen host to hold room; returns the refusals by operator. Nothing is held where any refused."""

    async def one(operator: PlannedOperator) -> SbonError | None:
        call = ReserveOperator(
            query=record.id,
            operator=operator.id,
            cores=operator.needs.cores,
            memory_mb=operator.needs.memory_mb,
            bandwidth_bytes_s=operator.needs.bandwidth_bytes_s,
            hold_s=context.settings.reservation_s,
        )
        try:
            await context.tell(record.hosts[operator.id], call)
        except SbonError as error:
            return error
        return None

    operators = record.plan.operators
    answers = await asyncio.gather(*(one(o) for o in operators))
    refused = {o.id: error for o, error in zip(operators, answers, strict=True) if error is not None}
    if refused:
        await destroy(context, record)
    return refused


async def start(context: Context, record: QueryRecord) -> AsyncGenerator[Progress, None]:
    """Opens the sink, then starts the operators from the consumer's side on; raises the first refusal."""
    order = SinkOrder(
        query=record.id,
        part=record.sink_part,
        inputs=tuple((stream, record.hosts[stream]) for stream in record.plan.outputs),
        schema=record.plan.schema,
        spec=record.sink,
    )
    yield Progress(step="starting", message=f"opening the sink at {record.consumer}")
    await context.tell(record.consumer, OpenSink(sink=order, holder=context.name))
    starts = {
        asyncio.create_task(_instantiate(context, record, operator)): operator for operator in reversed(record.plan.operators)
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


async def _instantiate(context: Context, record: QueryRecord, operator: PlannedOperator) -> None:
    readers = record.plan.readers(operator.id, record.sink_part)
    call = InstantiateOperator(spec=operator.spec(record.id, record.hosts, readers=readers), holder=context.name)
    await context.tell(record.hosts[operator.id], call, timeout_s=context.settings.start_timeout_s)


class Destroyed(NamedTuple):
    """``missed`` are the nodes that could not be told, and have to be told later; ``sink`` is what the consumer's
    node answered, if it was told."""

    missed: list[str]
    sink: PartsDestroyed | None


async def destroy(context: Context, record: QueryRecord, nodes: Collection[str] = ()) -> Destroyed:
    """Tells ``nodes``, or where none are named every node that has a part, to end all parts. Nodes that have left for good are
    passed over.

    An operator whose subscription its source has just forgotten subscribes again, as long as it runs: so the sources' nodes are
    told once more when no operator is left.
    """
    parts = (*(o.id for o in record.plan.operators), record.sink_part)
    call = DestroyParts(query=record.id, parts=parts, refused=record.refused)
    told = set(nodes) or {*record.hosts.values(), record.consumer}
    answers = await _destroy_at_all(context, told, call)
    missed = {node for node, answer in answers.items() if answer is None}
    sink = answers.get(record.consumer)
    hosts = {record.hosts[o.id] for o in record.plan.operators if o.id in record.hosts}
    if not hosts & told:
        return Destroyed(sorted(missed), sink)
    again = {record.hosts[i.stream] for o in record.plan.operators for i in o.inputs if o.id in record.hosts}
    if not hosts & missed:
        answers = await _destroy_at_all(context, again - missed, call)
        again = {node for node, answer in answers.items() if answer is None}
    return Destroyed(sorted(missed | again), sink)


async def _destroy_at_all(context: Context, nodes: Collection[str], call: DestroyParts) -> dict[str, PartsDestroyed | None]:
    """The answers; None of nodes that could not be told."""
    answers = await asyncio.gather(*(_destroy_at(context, node, call) for node in sorted(nodes)))
    return dict(zip(sorted(nodes), answers, strict=True))


async def _destroy_at(context: Context, node: str, call: DestroyParts) -> PartsDestroyed | None:
    member = context.membership.get(node)
    if member is not None and member.state == "left":
        return PartsDestroyed()
    try:
        return await context.ask(node, call, PartsDestroyed, timeout_s=context.settings.call_timeout_s * 3)
    except SbonError as error:
        log.info("destroy-not-told", node=node, query=call.query, reason=str(error))
        return None

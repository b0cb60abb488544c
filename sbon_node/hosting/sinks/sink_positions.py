"""Where the readers of a sink begin amid a stream: one that was taken over, or a further one. Only the sink's host may ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import structlog

from sbon_node.base.caller_checks import CallerChecks
from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.context import Context
from sbon_node.hosting.sinks.hosted_sink import Beginning, HostedSink
from sbon_node.net.peers import Caller
from sbon_node.ownership.acceptors import NOT_OWNER, OVER, RecordAcceptors
from sbon_node.ownership.operators import OperatorRegisters, hosted_by
from sbon_node.streams.outbox.retention import Begin
from sbon_protocol.api.bounded import MAX_EPOCH_LEAP
from sbon_protocol.api.query_ids import is_further_sink, is_sink, uid_of
from sbon_protocol.base import Call, Message
from sbon_protocol.calls import BeginReader, FenceReader, ReaderBegun, ReaderPosition
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Hello
from sbon_protocol.moving import ComponentHost, LocateComponent

log = structlog.get_logger()
R = TypeVar("R", bound=Message)
REFUSALS = frozenset({"reader-fenced", "bad-epoch", "not-retained"})
"""Refusals of a host of a stream that do not pass."""
MOST_HOSTS = 4
"""Most hosts of one stream that are asked in turn: a stream rarely moves twice in a moment."""


class ReaderPositions:
    """Answers for the operators and sinks that read streams of this node.

    The register of each says who hosts it, and in which epoch: ``control.checks`` of them are read at once, a share of them for
    one caller.
    """

    def __init__(self, context: Context, registers: OperatorRegisters) -> None:
        self._context, self._registers = context, registers
        self._outbox, self._checks = context.outbox, CallerChecks(context.settings.checks, "control.checks")
        context.server.handle(FenceReader, self._fence)
        context.server.handle(BeginReader, self._begin)

    async def _fence(self, call: FenceReader, caller: Caller) -> ReaderPosition:
        await self._check_sink(call, caller, is_sink)
        acknowledged, ended = self._outbox.fence(call.stream, call.subscriber, call.reader_epoch)
        return ReaderPosition(acknowledged=acknowledged, ended=ended)

    async def _begin(self, call: BeginReader, caller: Caller) -> ReaderBegun:
        await self._check_sink(call, caller, is_further_sink)
        begun = self._outbox.further.begin(call.stream, call.subscriber, call.reader_epoch, call.begin)
        return ReaderBegun(frame=begun.frame, rows=begun.rows, ended=begun.ended)

    async def _check_sink(self, call: FenceReader | BeginReader, caller: Caller, is_one: Callable[[str], bool]) -> None:
        if not is_one(call.subscriber):
            raise SbonError(NOT_OWNER, f"{call.subscriber} is no such sink", where=call.subscriber)
        self._outbox.epoch(call.stream)  # A register is read for streams of this node alone.
        await self.check_host(call.subscriber, call.reader_epoch, caller)
        known = self._outbox.reader_epoch(call.stream, call.subscriber)
        if call.reader_epoch > known + MAX_EPOCH_LEAP:
            raise SbonError("bad-epoch", f"epoch {call.reader_epoch} is too far above {known}", where=call.subscriber)

    async def end_removed(self) -> None:
        """Delete subscriptions of further sinks that have been removed, or have failed, while this node missed it."""
        further, connection = self._outbox.further, self._context.publisher.connection
        subscriptions = [(stream, sink) for stream in self._outbox.streams() for sink in further.names(stream)]
        for stream, sink in subscriptions:
            if connection(stream, sink) is not None:
                continue
            try:
                register = await self._registers.read(uid_of(sink), sink)
            except SbonError as error:
                log.info("reader-not-checked", stream=stream, sink=sink, code=error.code, reason=str(error))
                continue
            if not register.host:
                log.info("reader-ended", stream=stream, sink=sink)
                self._outbox.unsubscribe(stream, sink)

    async def check_host(self, component: str, epoch: int, caller: Caller | Hello) -> None:
        """Raise unless the caller hosts the operator or sink in that epoch: ``reader-fenced`` if that is over, or ``not-owner``.

        Raises ``record-unknown`` or ``no-majority`` where nobody knows, and ``too-many-checks``: the caller tries again.
        """
        with self._checks.one(caller.node, component):
            register = await self._registers.read(uid_of(component), component)
        if not hosted_by(register, caller.node, caller.instance) or register.epoch != epoch:
            reason = f"{caller.node} does not host {component} in epoch {epoch}"
            self._context.counters.refuse("reader-epoch-refused", peer=caller.node, component=component, reason=reason)
            raise SbonError("reader-fenced" if register.epoch > epoch else NOT_OWNER, reason, where=component)


async def fenced(context: Context, records: RecordAcceptors, hosted: HostedSink) -> DeliveryPosition:
    """End the former host's readers; return up to where it had acknowledged the sink's streams.

    Raises :data:`~sbon_node.connectors.interface.AWAY` as long as a host of a stream, or its register, does not answer.
    """
    done: dict[str, int] = {}
    ended: list[str] = []
    for stream, _ in hosted.order.inputs:
        try:
            position = await _fenced_at(context, records, hosted, stream)
        except SbonError as error:
            if error.code in OVER | REFUSALS:
                raise
            raise SbonError(AWAY, str(error), where=stream) from error
        if position.acknowledged:
            done[stream] = position.acknowledged
        if position.ended:
            ended.append(stream)
    return DeliveryPosition(streams=done, ended=tuple(ended))


async def begun(context: Context, records: RecordAcceptors, hosted: HostedSink) -> Beginning:
    """Have the hosts of a further sink's streams keep their frames from its beginning on; return where that is.

    Raises ``not-retained`` where it is to begin with the first row, and that is gone.
    """
    order = hosted.order
    if order.begin:
        return await _begun(context, records, hosted, order.begin)
    try:
        return await _begun(context, records, hosted, "earliest")
    except SbonError as error:
        if error.code != "not-retained":
            raise
    return await _begun(context, records, hosted, "now")


async def _begun(context: Context, records: RecordAcceptors, hosted: HostedSink, begin: Begin) -> Beginning:
    order, frames, ended, rows = hosted.order, dict[str, int](), list[str](), 0
    for stream, _ in order.inputs:
        call = BeginReader(stream=stream, subscriber=order.component, reader_epoch=order.epoch, begin=begin)
        answer = await _asked(context, records, hosted, stream, call, ReaderBegun)
        rows += answer.rows
        if answer.frame:
            frames[stream] = answer.frame
        if answer.ended:
            ended.append(stream)
    return Beginning(frames=frames, ended=tuple(ended), rows=rows)


async def _fenced_at(context: Context, records: RecordAcceptors, hosted: HostedSink, stream: str) -> ReaderPosition:
    call = FenceReader(stream=stream, subscriber=hosted.order.component, reader_epoch=hosted.order.epoch)
    return await _asked(context, records, hosted, stream, call, ReaderPosition)


async def _asked(context: Context, records: RecordAcceptors, hosted: HostedSink, stream: str, call: Call, reply: type[R]) -> R:
    """Ask the stream's host, and again if that was not the host any more: a former one may know less."""
    query, asked = hosted.order.query, ""
    answer: R | None = None
    for _ in range(MOST_HOSTS):
        host = (await records.ask(query, hosted.acceptors, LocateComponent(query=query, component=stream), ComponentHost)).node
        if answer is not None and host == asked:
            return answer
        answer, asked = await context.ask(host, call, reply), host
    raise SbonError("moved", f"it has moved {MOST_HOSTS} times meanwhile", where=stream)

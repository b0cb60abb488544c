"""How far the former host of a sink had come, for the node that goes on with it. Only the sink's host ends earlier readers."""

from __future__ import annotations

from typing import Protocol

from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.errors import SbonError
from sbon_node.hosting.claims import NOT_OWNER, OVER
from sbon_node.hosting.hosted_sink import HostedSink
from sbon_node.hosting.record_acceptors import RecordAcceptors
from sbon_node.model.bounded import MAX_EPOCH_LEAP
from sbon_node.model.query_ids import is_sink
from sbon_node.model.records import OperatorRegister
from sbon_node.net.peers import Caller
from sbon_node.workflow.caller_checks import CallerChecks
from sbon_node.workflow.context import Context
from sbon_protocol.failover import FenceReader, ReaderPosition
from sbon_protocol.messages import Hello
from sbon_protocol.moving import ComponentHost, LocateComponent

REFUSALS = frozenset({"reader-fenced", "bad-epoch", "not-retained"})
"""Refusals of a host of a stream that do not pass."""
MOST_HOSTS = 4
"""Most hosts of one stream that are asked in turn: a stream rarely moves twice in a moment."""


class Registers(Protocol):
    """Read access to the registers of operators and sinks."""

    async def read(self, query: str, component: str) -> OperatorRegister: ...


class ReaderPositions:
    """Answers for the operators and sinks that read streams of this node.

    The register of each says who hosts it, and in which epoch: ``control.checks`` of them are read at once, a share of them for
    one caller.
    """

    def __init__(self, context: Context, registers: Registers) -> None:
        self._context, self._registers = context, registers
        self._outbox, self._checks = context.outbox, CallerChecks(context.settings.checks, "control.checks")
        context.server.handle(FenceReader, self._fence)

    async def _fence(self, call: FenceReader, caller: Caller) -> ReaderPosition:
        if not is_sink(call.subscriber):
            raise SbonError(NOT_OWNER, f"{call.subscriber} is no sink", where=call.subscriber)
        self._outbox.epoch(call.stream)  # A register is read for streams of this node alone.
        await self.check_host(call.subscriber, call.reader_epoch, caller)
        known = self._outbox.reader_epoch(call.stream, call.subscriber)
        if call.reader_epoch > known + MAX_EPOCH_LEAP:
            raise SbonError("bad-epoch", f"epoch {call.reader_epoch} is too far above {known}", where=call.subscriber)
        acknowledged, ended = self._outbox.fence(call.stream, call.subscriber, call.reader_epoch)
        return ReaderPosition(acknowledged=acknowledged, ended=ended)

    async def check_host(self, component: str, epoch: int, caller: Caller | Hello) -> None:
        """Raise unless the caller hosts the operator or sink in that epoch: ``reader-fenced`` if that is over, or ``not-owner``.

        Raises ``record-unknown`` or ``no-majority`` where nobody knows, and ``too-many-checks``: the caller tries again.
        """
        with self._checks.one(caller.node, component):
            register = await self._registers.read(component.rpartition(".")[0], component)
        is_host = register.host == caller.node and register.instance in ("", caller.instance)
        if not is_host or register.epoch != epoch:
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


async def _fenced_at(context: Context, records: RecordAcceptors, hosted: HostedSink, stream: str) -> ReaderPosition:
    """Fence at the stream's host, and again if that was not the host any more: a former one may know less."""
    order, asked = hosted.order, ""
    locate = LocateComponent(query=order.query, component=stream)
    call = FenceReader(stream=stream, subscriber=order.component, reader_epoch=order.epoch)
    position = ReaderPosition(acknowledged=0)
    for _ in range(MOST_HOSTS):
        host = (await records.ask(order.query, hosted.acceptors, locate, ComponentHost)).node
        if host == asked:
            return position
        position, asked = await context.ask(host, call, ReaderPosition), host
    raise SbonError("moved", f"it has moved {MOST_HOSTS} times meanwhile", where=stream)

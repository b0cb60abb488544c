"""The ports of this node's operators: how each reads its inputs and writes its output."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.delivery_position import DEAD_LETTERS
from sbon_node.hosting.backups.interface import NO_BACKUPS, Backups
from sbon_node.hosting.lineages import Lineages
from sbon_node.hosting.measures import KeptMeasures
from sbon_node.hosting.reader_hosts import ReaderHosts
from sbon_node.hosting.record_acceptors import RecordAcceptors
from sbon_node.hosting.skipped_rows import OperatorLetters
from sbon_node.hosting.stream_hosts import StreamHost
from sbon_node.hosting.sweep import spill_of
from sbon_node.model.measures import OperatorMeasures
from sbon_node.model.operators import InputSpec, OperatorSpec
from sbon_node.registers.states import Acceptor
from sbon_node.streams.port import NodePort
from sbon_node.streams.port_input import Following, PortInput
from sbon_node.workflow.context import Context

READER_FENCED = "reader-fenced"


class OperatorPorts:
    """The open ports by operator, with the lineages that they have read and the files of skipped rows."""

    def __init__(self, context: Context, connectors: ConnectorSettings, records: RecordAcceptors, speed: float) -> None:
        self._context, self._connectors, self._records = context, connectors, records
        self.lineages = Lineages(context.store)
        self.backups: Backups = NO_BACKUPS
        self.open: dict[str, NodePort] = {}
        self._hosts: dict[str, list[StreamHost]] = {}
        """The hosts of the inputs of open ports."""
        self.letters: dict[str, OperatorLetters] = {}
        self.readers = ReaderHosts(context, records)
        self.measures = KeptMeasures(context, self.open, speed)

    async def connect(self, spec: OperatorSpec, acceptors: Iterable[Acceptor], *, following: Following | None = None) -> NodePort:
        """Open the port of an operator, in place of its earlier one."""
        await self.disconnect(spec.id)
        meter = self.measures.meter(spec, follows=following is not None)
        context, known = self._context, tuple(acceptors)
        hosts = [StreamHost(context, self._records, spec.query, one.stream, one.node, known) for one in spec.inputs]
        self._hosts[spec.id] = hosts
        port = self.open[spec.id] = NodePort(
            spec.id,
            [self._input(spec, position, one, host) for position, (one, host) in enumerate(zip(spec.inputs, hosts, strict=True))],
            outbox=context.outbox,
            peers=context.connections,
            clock=context.clock,
            settings=context.stream_settings,
            rng=context.rng,
            failpoint=context.failpoint,
            limits=context.stream_settings.batch_limits(
                has_state=spec.has_state, joins=len(spec.views()) > 1, unpaced=spec.unpaced
            ),
            epoch=spec.epoch,
            letters=self._letters_of(spec),
            following=following,
            meter=meter,
            backup=self.backups.of(spec, known),
        )
        self.measures.opened(spec.id)
        return port

    def is_fenced(self, operator: str) -> bool:
        """Return whether a host of an input has heard of a later epoch of the operator, which another node may have."""
        port = self.open.get(operator)
        failures = () if port is None else (link.failure for link in port.links)
        return any(failure is not None and failure.code == READER_FENCED for failure in failures)

    def present(self, spec: OperatorSpec) -> OperatorSpec:
        """Return the specification with the nodes that host its inputs now, as far as known here."""
        hosts = self._hosts.get(spec.id)
        if hosts is None:
            return spec
        inputs = (msgspec.structs.replace(one, node=host.node) for one, host in zip(spec.inputs, hosts, strict=True))
        return msgspec.structs.replace(spec, inputs=tuple(inputs))

    def described(self, operator: str) -> OperatorMeasures | None:
        """Return the measures of an operator, and the errors of its inputs' clocks; None without an open port."""
        port = self.open.get(operator)
        if port is None:
            return None
        measures = port.measures()
        inputs = (
            msgspec.structs.replace(read, clock_error_ms=host.clock_error_ms)
            for read, host in zip(measures.inputs, self._hosts[operator], strict=True)
        )
        return msgspec.structs.replace(measures, inputs=tuple(inputs))

    def all_measures(self) -> list[OperatorMeasures]:
        """Return the measures of all operators with an open port, in the order of their ids."""
        return [port.measures() for _, port in sorted(self.open.items())]

    def _input(self, spec: OperatorSpec, position: int, one: InputSpec, host: StreamHost) -> PortInput:
        return PortInput(
            stream=one.stream,
            locate=host.locate,
            expect=host.expect,
            search=host.search,
            own_time=host.own_time,
            lineage=self.lineages.of(spec.id, one.stream),
            learn=self.lineages.learner(spec.id, one.stream),
            lag_ms=one.lag_ms,
            ahead_ms=one.ahead_ms,
            whole=one.whole,
            start_after=one.after,
            columns=tuple(column.name for column in one.schema) if one.by_position else (),
            spill_to=spill_of(self._context, spec.id) / str(position) if one.shared else None,
        )

    def _letters_of(self, spec: OperatorSpec) -> OperatorLetters | None:
        """Read when the operator is connected, so that rows skipped earlier count."""
        if spec.on_error != "skip":
            return None
        letters = self.letters[spec.id] = OperatorLetters(self.letters_folder, spec.id, self._connectors)
        return letters

    @property
    def letters_folder(self) -> Path:
        return self._context.data_dir / DEAD_LETTERS

    async def disconnect(self, operator: str, *, unsubscribe: bool = False) -> None:
        port = self.open.pop(operator, None)
        self._hosts.pop(operator, None)
        if port is not None:
            self.measures.keep(operator, port)
            await port.close(unsubscribe=unsubscribe)
        await self.backups.close(operator)

    def forget(self, operator: str) -> None:
        """Forget what a removed operator has read and skipped."""
        self.backups.forget(operator)
        self.lineages.forget(operator)
        self.readers.forget(operator)
        self.measures.forget(operator)
        if (letters := self.letters.pop(operator, None)) is not None:
            letters.close()

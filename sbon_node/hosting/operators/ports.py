"""The ports of this node's operators: how each reads its inputs and writes its output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import structlog

from sbon_node.base.disk import named_errors, replace
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.delivery_position import DEAD_LETTERS
from sbon_node.connectors.sources.dead_letters import DeadLetters, trim
from sbon_node.context import Context
from sbon_node.engine.checkpoint_copy import copied_bytes
from sbon_node.hosting.components import HostedOperator, checkpoint_of, spill_of
from sbon_node.hosting.machine.capacity import measured_cost
from sbon_node.hosting.stream_hosts import Lineages, StreamHost
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.streams.measures.meter import OperatorMeter
from sbon_node.streams.port import Backup, Following, NodePort, PortInput
from sbon_node.streams.skipped import SkippedRow, SkippedRows
from sbon_protocol.api.durability import BackupInfo
from sbon_protocol.api.measures import MeasureSums, OperatorMeasures
from sbon_protocol.api.operators import InputSpec, Needs, OperatorSpec
from sbon_protocol.api.query_ids import uid_of
from sbon_protocol.api.subscribers import component_of
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.moving import ComponentHost, LocateComponent

log = structlog.get_logger()

READER_FENCED = "reader-fenced"


class Backups(Protocol):
    """The backups at other nodes of this node's operators."""

    def of(self, spec: OperatorSpec, acceptors: tuple[Acceptor, ...], ports: OperatorPorts) -> Backup | None:
        """Return the backup for an operator whose port is opened; None for an operator that has none."""

    def begin(self, operator: str) -> None:
        """Find a backup for an operator that this node hosts, and give it what was shown before."""

    def info(self, operator: str) -> BackupInfo | None:
        """Return how current the backup of an operator is; None for an operator that has none."""

    async def close(self, operator: str) -> None:
        """Store nothing more for now: the operator's port is closed."""

    def drop(self, operator: str) -> None:
        """Tell the backup that it is not needed any more: the operator is over."""

    def forget(self, operator: str) -> None:
        """Forget an operator that this node does not host any more; another node may need its backup."""


class OperatorPorts:
    """The open ports by operator, with the lineages that they have read and the files of skipped rows."""

    def __init__(
        self, context: Context, connectors: ConnectorSettings, records: RecordAcceptors, speed: float, backups: Backups
    ) -> None:
        self._context, self._connectors, self._records, self.backups = context, connectors, records, backups
        self.lineages = Lineages(context.store)
        self.open: dict[str, NodePort] = {}
        self._hosts: dict[str, list[StreamHost]] = {}
        """The hosts of the inputs of open ports."""
        self.letters: dict[str, OperatorLetters] = {}
        self.readers = ReaderHosts(context, records)
        self.measures = OperatorMeters(context, self.open, speed)
        self._on_fenced: list[Callable[[str], None]] = []

    async def connect(self, spec: OperatorSpec, acceptors: Iterable[Acceptor], *, following: Following | None = None) -> NodePort:
        """Open the port of an operator, in place of its earlier one."""
        await self.disconnect(spec.id)
        meter = self.measures.meter(spec, follows=following is not None)
        context, known, limits = self._context, tuple(acceptors), self._context.stream_settings.batch_limits
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
            limits=limits(has_state=spec.has_state, joins=len(spec.views()) > 1, unpaced=spec.unpaced),
            epoch=spec.epoch,
            letters=self._letters_of(spec),
            following=following,
            meter=meter,
            backup=self.backups.of(spec, known, self),
        )
        self.measures.opened(spec.id)
        return port

    def on_fenced(self, listener: Callable[[str], None]) -> None:
        """Have ``listener`` called with each operator that :meth:`fence` is called for."""
        self._on_fenced.append(listener)

    def fence(self, operator: str) -> None:
        """Note that an operator may belong to another node by now."""
        for listener in self._on_fenced:
            listener(operator)

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

    def _input(self, spec: OperatorSpec, position: int, one: InputSpec, host: StreamHost) -> PortInput:
        return PortInput(
            stream=one.stream,
            locate=host.locate,
            expect=host.expect,
            search=host.search,
            own_time=host.own_time,
            lineage=self.lineages.of(spec.id, one.stream),
            learn=partial(self.lineages.learn, spec.id, one.stream),
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


# -- The measures of this node's operators, kept over restarts and handed over when an operator moves (docs/design/measures.md) --


class OperatorMeters:
    """Meters for the open ``ports``, and their sums in the store. Nothing depends on them: a full disk only makes them older."""

    def __init__(self, context: Context, ports: Mapping[str, NodePort], speed: float) -> None:
        self._context, self._ports, self._speed = context, ports, speed
        self._taken: dict[str, MeasureSums] = {}
        """Sums that came with operators whose ports are not open yet."""
        self._kept: dict[str, int] = {}
        """The newest batch whose sums are stored, by operator."""

    def meter(self, spec: OperatorSpec, *, follows: bool) -> OperatorMeter:
        """Return a meter for an operator that starts here, with the sums of earlier runs unless it ``follows`` another host."""
        return OperatorMeter(
            [one.stream for one in spec.inputs],
            half_life_s=self._context.stream_settings.measures_half_life_s,
            speed=self._speed,
            sums=None if follows else self.sums(spec.id),
        )

    def cost(self, operator: str, needs: Needs) -> Needs:
        """Return what an operator takes here, by its measures, and by its estimated ``needs`` until it has run for long."""
        port = self._ports.get(operator)
        if port is None:
            return needs
        half_life_s = self._context.stream_settings.measures_half_life_s
        return measured_cost(needs, port.measures(), speed=self._speed, half_life_s=half_life_s)

    def sums(self, operator: str) -> MeasureSums | None:
        """Return the newest sums of an operator, whether it runs or not; None where there are none."""
        if (port := self._ports.get(operator)) is not None:
            return port.meter.sums(self._context.clock.now())
        if operator in self._taken:
            return self._taken[operator]
        try:
            return self._context.store.get("measures", operator, MeasureSums)
        except SbonError as error:
            log.warning("measures-unreadable", operator=operator, reason=str(error))
            return None

    def take(self, operator: str, value: Any) -> None:
        """Go on with sums that another host has measured; count and ignore impossible ones, which must not stop a move."""
        if value is None:
            return
        try:
            sums: MeasureSums = decode_record(value, MeasureSums)
        except ProtocolError as error:
            self._context.counters.refuse("measures-refused", operator=operator, reason=str(error))
            return
        if (port := self._ports.get(operator)) is not None:
            port.meter.restore(sums)
        else:
            self._taken[operator] = sums

    async def run(self) -> None:
        """Store the sums, and look how large the checkpoints are, every ``control.measure_interval_s``."""
        while True:
            await self._context.clock.sleep(self._context.settings.measure_interval_s)
            for operator, port in list(self._ports.items()):
                self.keep(operator, port)
                try:
                    await self._weigh(operator, port)
                except SbonError as error:  # It has ended since.
                    log.info("state-not-weighed", operator=operator, reason=str(error))

    def keep(self, operator: str, port: NodePort) -> None:
        """Store an operator's sums, if it has run a batch since it last did."""
        newest = port.meter.newest
        if newest < 0 or self._kept.get(operator) == newest:
            return
        try:
            self._context.store.put("measures", operator, port.meter.sums(self._context.clock.now()))
        except SbonError as error:
            log.info("measures-not-stored", operator=operator, reason=str(error))
            return
        self._kept[operator] = newest

    async def _weigh(self, operator: str, port: NodePort) -> None:
        batch = port.visible_batch()
        if batch >= 0:
            size = await self._context.executor(partial(copied_bytes, checkpoint_of(self._context, operator), batch))
            port.meter.state_bytes = port.meter.state_bytes if size is None else size
        await asyncio.sleep(0)

    def opened(self, operator: str) -> None:
        """The operator's port is open, with its sums."""
        self._taken.pop(operator, None)

    def forget(self, operator: str) -> None:
        self._taken.pop(operator, None)
        self._kept.pop(operator, None)
        self._context.store.delete("measures", operator)


class ReaderHosts:
    """The nodes that host the readers of this node's operators, by their registers.

    A register is read once for each connection of a reader: a reader that moves connects anew.
    """

    def __init__(self, context: Context, records: RecordAcceptors) -> None:
        self._context, self._records = context, records
        self._known: dict[str, dict[str, tuple[int, str]]] = {}
        """The connection and the node of each subscriber, by operator."""

    async def node_of(self, hosted: HostedOperator, subscriber: str) -> str:
        """Return the node that hosts a subscriber of an operator; errors are those of :meth:`RecordAcceptors.ask`."""
        operator, reader = hosted.spec.id, component_of(subscriber)
        query = uid_of(reader)
        connection = self._context.publisher.connection(operator, subscriber)
        known = self._known.get(operator, {}).get(subscriber)
        if known is not None and known[0] == connection:
            return known[1]
        acceptors = next((one.acceptors for one in hosted.readers if one.query == query), ())
        call = LocateComponent(query=query, component=reader)
        node = (await self._records.ask(query, acceptors, call, ComponentHost)).node
        if connection is not None:
            served = self._context.outbox.link_counts(operator).links
            others = {one: found for one, found in self._known.get(operator, {}).items() if one in served}
            self._known[operator] = others | {subscriber: (connection, node)}
        return node

    def forget(self, operator: str) -> None:
        self._known.pop(operator, None)


# -- Dead letters: rows that a query skips because an expression failed, once each -------------------------------------

# A small file beside the dead letters holds the counts of bytes and rows before each of the newest batches. It is written
# before the dead letters, and both before the batch's output. A repeated batch first removes the dead letters of its earlier
# run.

MOST_BATCHES = 16
"""More batches than Spark ever repeats."""


def trim_letters(folder: Path, settings: ConnectorSettings) -> None:
    """Keep the dead letters of a node within ``connectors.dead_letters_max_bytes``."""
    try:
        gone = trim(folder, settings.dead_letters_max_bytes)
    except OSError as error:
        log.warning("dead-letters-not-trimmed", folder=str(folder), reason=str(error))
        return
    if gone:
        log.info("dead-letters-deleted", files=len(gone), first=gone[0].name, hint="raise connectors.dead_letters_max_bytes")


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """The counts before ``batch``."""

    batch: int
    length: int
    rows: int


class At(msgspec.Struct, frozen=True, kw_only=True):
    """The current counts, and the counts before the newest batches, oldest first."""

    length: int = 0
    rows: int = 0
    before: tuple[Before, ...] = ()


class OperatorLetters:
    """Dead letters of one operator; ``rows`` counts all rows skipped in its life, even those that do not fit the file."""

    def __init__(self, folder: Path, operator: str, settings: ConnectorSettings) -> None:
        self._settings = settings
        self._letters = DeadLetters(
            folder, operator, max_bytes=settings.dead_letter_max_bytes, max_text=settings.dead_letter_text_bytes
        )
        self._file = self._letters.path.with_suffix(".at")
        self._at = self._read_letters()

    @property
    def rows(self) -> int:
        return self._at.rows

    @property
    def path(self) -> str:
        """Return the path of the file; empty before the first row."""
        return str(self._letters.path) if self._at.rows else ""

    def write(self, batch: int, skipped: SkippedRows) -> None:
        at = self._at
        again = next((earlier for earlier in at.before if earlier.batch >= batch), None)
        length, rows = (again.length, again.rows) if again is not None else (at.length, at.rows)
        kept = tuple(earlier for earlier in at.before if earlier.batch < batch)[-MOST_BATCHES + 1 :]
        before = (*kept, Before(batch=batch, length=length, rows=rows))
        # If the node dies here, the batch runs again and begins at these counts.
        self._store(At(length=length, rows=rows, before=before))
        self._letters.open(length)
        self._letters.write_lines([self._line(row) for row in skipped.kept])
        self._store(At(length=self._letters.length, rows=rows + skipped.rows, before=before))

    def close(self) -> None:
        """End the dead letters. The file stays for users while there is room; a later operator of that name starts a new file."""
        self._file.unlink(missing_ok=True)
        trim_letters(self._file.parent, self._settings)

    def _line(self, row: SkippedRow) -> dict[str, str]:
        most = self._settings.dead_letter_text_bytes
        return {"expression": row.expression, "reason": row.reason, "row": row.row[:most]}

    def _read_letters(self) -> At:
        with named_errors(self._file):
            if not self._file.exists():
                return At()
            try:
                return msgspec.json.decode(self._file.read_bytes(), type=At)
            except msgspec.MsgspecError as error:
                raise SbonError("store-unreadable", f"it is damaged: {error}", where=str(self._file), hint="remove it") from error

    def _store(self, at: At) -> None:
        with named_errors(self._file):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace(self._file, msgspec.json.encode(at))
        self._at = at

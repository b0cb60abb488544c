"""Assembles a node's sources, operators and sinks, moves of operators, and backups."""

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.context import Context
from sbon_node.engine.copies.sender import CopySender
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.interface import MovingEngine, OnOperatorState
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.destroy import ComponentDestroyer, OrphanCheck
from sbon_node.hosting.machine.machine_resources import Machine
from sbon_node.hosting.moving.arrivals import Moves
from sbon_node.hosting.moving.ends import Arrival
from sbon_node.hosting.operators.host import OperatorHost
from sbon_node.hosting.operators.ports import OperatorPorts
from sbon_node.hosting.operators.room import Room
from sbon_node.hosting.operators.shared_operators import SharedOperators
from sbon_node.hosting.sinks.host import EndedQueries, RelayedRows, SinkHost, SinkTakeover
from sbon_node.hosting.sinks.open_sinks import ReaderPositions
from sbon_node.hosting.sources.host import Pushes, ResultStreams, SourceHost
from sbon_node.hosting.sources.measurements import MeasurementStore, SampleStore
from sbon_node.hosting.standby.backups import NodeBackups, NodeSourceBackups
from sbon_node.hosting.standby.keeper import KeptOperator
from sbon_node.hosting.standby.operator import OperatorBackups
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.hosting.standby.source import SourceBackups
from sbon_node.ownership.assemble import Ownership
from sbon_node.streams.links.publisher import ReaderChecks
from sbon_protocol.api.states.operator_states import OperatorState
from sbon_protocol.messages import NodeMeta

EngineFactory = Callable[[Path, OnOperatorState], MovingEngine]
"""Creates the node's engine, which keeps its files under the given folder and reports the operators' states."""


class HostingSettings(NamedTuple):
    """Settings of sources, operators, sinks, moves and backups."""

    connectors: ConnectorSettings
    engine: EngineSettings
    migration: MigrationSettings
    backups: BackupSettings


class EngineReports:
    """Passes the engine's reports of operators' states on to all that listen, in the order in which they began to."""

    def __init__(self) -> None:
        self._listeners: list[OnOperatorState] = []

    def listen(self, listener: OnOperatorState) -> None:
        self._listeners.append(listener)

    def report(self, operator: str, state: OperatorState, reason: str) -> None:
        for listener in self._listeners:
            listener(operator, state, reason)


class Hosting(NamedTuple):
    """The parts that host components of queries at a node."""

    engine: MovingEngine
    reports: EngineReports
    """Reports of the engine."""
    room: Room
    """Reserved capacity, load and measures of this node."""
    sources: SourceHost
    source_backups: NodeSourceBackups
    pushes: Pushes
    """Rows that clients push to sources."""
    operators: OperatorHost
    moves: Moves
    backups: NodeBackups
    sinks: SinkHost
    reader_positions: ReaderPositions
    shared: SharedOperators
    """Operators that several queries read."""
    destroyer: ComponentDestroyer
    """Ends what is here of a query that is over."""
    orphans: OrphanCheck
    measurements: MeasurementStore

    def start_moves(self) -> None:
        """Go on with moves and backups of an earlier run."""
        self.moves.start()
        self.backups.start()

    def start(self) -> None:
        """Resume the operators, sinks and sources of an earlier run."""
        self.operators.start()
        self.sinks.start()
        self.source_backups.start()
        self.sources.start(self.source_backups.keeper.kept())

    async def close_moves(self) -> None:
        """End all work for operators of other nodes."""
        await self.shared.close()
        await self.moves.close()
        await self.backups.stop()

    async def close(self) -> None:
        """Stop operators after a committed batch; everything stays on disk."""
        await self.operators.close()
        await self.sinks.close()
        await self.source_backups.stop()
        await self.sources.close()

    def epochs(self) -> dict[str, int]:
        """Return the epochs of the operators and sinks that this node hosts."""
        return {**self.operators.epochs(), **self.sinks.epochs()}


def assemble(
    context: Context, ownership: Ownership, settings: HostingSettings, engine_factory: EngineFactory, machine: Machine
) -> Hosting:
    """Build the parts, of which none runs yet, and announce what this node can take."""
    catalogue, acceptors, owners = ownership.catalogue, ownership.record_acceptors, ownership.operators
    reports = EngineReports()
    engine = engine_factory(context.data_dir, reports.report)

    own_source_backups = SourceBackups(context, ownership.sources, settings.backups)
    sources = SourceHost(context, catalogue, settings.connectors, own_source_backups)
    of_others = (catalogue, ownership.sources, settings.backups, sources.check_here, sources.go_on)
    source_backups = NodeSourceBackups(context, own_source_backups, *of_others)

    capacity = machine.capacity(settings.engine.max_operators)
    tags, amounts = context.membership.own_meta.tags, (capacity.cores, capacity.memory_mb, capacity.bandwidth_bytes_s)
    context.membership.describe(NodeMeta(tags, *amounts, version=version("sbon")))
    sender = CopySender(context.clock, settings.migration, context.executor, context.failpoint)
    own_backups = OperatorBackups(context, engine, sender, owners, settings.backups)
    ports = OperatorPorts(context, settings.connectors, acceptors, capacity.speed, own_backups)
    room = Room(context, capacity, ports, machine.load)
    # Operators of other nodes that come here, and those backed here: two parts fill these, and the host of operators heeds both.
    arriving, backed = dict[str, Arrival](), dict[str, KeptOperator]()
    operators = OperatorHost(context, engine, room, settings.connectors, acceptors, arriving=arriving, backed=backed)
    moving = (settings.engine, settings.migration, context, sender, operators, engine, owners, acceptors)
    moves = Moves(*moving, arriving)
    backups = NodeBackups(context, own_backups, operators, moves, engine, owners, settings.backups, settings.engine, backed)
    for listener in (operators, moves.arrivals, backups.followers):
        reports.listen(listener.engine_state)

    ended = EndedQueries(context.settings.max_forgotten)
    sinks = SinkHost(context, settings.connectors, acceptors, ResultStreams(context, catalogue, sources), ended)
    # Constructors of parts that only answer calls of other nodes register these.
    SinkTakeover(context, sinks, acceptors, owners, ended)
    RelayedRows(context, sinks)
    reader_positions = ReaderPositions(context, owners)
    checks = ReaderChecks(moves.host_check.may_follow, reader_positions.check_host)
    context.server.on_stream(partial(context.publisher.serve, checks=checks))
    shared = SharedOperators(context, operators, owners, moves.departures.under_way)
    destroyer = ComponentDestroyer(context, operators, sinks, acceptors, ended, moves, backups.keeper, shared)
    return Hosting(
        engine,
        reports,
        room,
        sources,
        source_backups,
        Pushes(context, catalogue, sources, settings.connectors),
        operators,
        moves,
        backups,
        sinks,
        reader_positions,
        shared,
        destroyer,
        OrphanCheck(context, ownership.registers, owners, destroyer, reader_positions),
        MeasurementStore(context, sources, SampleStore(context, catalogue, sources)),
    )

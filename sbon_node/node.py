"""A node: the packages below it, injected time, network and engine, started and stopped in order.

The daemon runs it on real sockets and Spark, the simulation on virtual ones; the class is the same.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from sbon_node.adaptation.decisions import LeaderDecisions
from sbon_node.adaptation.drain import Draining, Leaving, MoveTargets, Parts
from sbon_node.adaptation.look import OptimizerParts
from sbon_node.adaptation.mover import Mover, RequestedMoves
from sbon_node.adaptation.optimizer import LocalOptimizer
from sbon_node.adaptation.whole import Replacements
from sbon_node.base.clock import Clock
from sbon_node.base.events import MemberChanged
from sbon_node.base.executors import Computing, Executor, in_thread
from sbon_node.base.failpoints import Failpoints, unobserved
from sbon_node.base.tasks import Tasks
from sbon_node.config.config import Config
from sbon_node.connectors.sources.push import Post
from sbon_node.engine.interface import MovingEngine, OnOperatorState
from sbon_node.foundation import World, lay_foundation
from sbon_node.hosting.destroy import ComponentDestroyer
from sbon_node.hosting.ended_queries import EndedQueries
from sbon_node.hosting.machine_resources import Machine, watch_load
from sbon_node.hosting.measurements import MeasurementStore
from sbon_node.hosting.moving.moves import Moves
from sbon_node.hosting.operators import OperatorHost
from sbon_node.hosting.orphans import OrphanCheck
from sbon_node.hosting.ports import OperatorPorts
from sbon_node.hosting.pushes import Pushes
from sbon_node.hosting.relayed_rows import RelayedRows
from sbon_node.hosting.result_streams import ResultStreams
from sbon_node.hosting.room import NodeAnswers, Room
from sbon_node.hosting.samples import SampleStore
from sbon_node.hosting.shared_operators import SharedOperators
from sbon_node.hosting.sink_positions import ReaderPositions
from sbon_node.hosting.sink_takeover import SinkTakeover
from sbon_node.hosting.sinks import SinkHost
from sbon_node.hosting.sources import SourceHost
from sbon_node.hosting.standby.backups import NodeBackups, NodeSourceBackups
from sbon_node.net.counters import Counters
from sbon_node.net.transport import Address, Transport
from sbon_node.operations.distances import Distances
from sbon_node.operations.machine_usage import MachineUsageHistory
from sbon_node.operations.metrics_snapshot import Components
from sbon_node.operations.service import Operations
from sbon_node.operations.status import status_of
from sbon_node.overlay.membership.table import Change
from sbon_node.overlay.rejoin import Rejoin
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_node.ownership.catalogue import Catalogue
from sbon_node.ownership.names import QueryNames
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.ownership.queries import Records
from sbon_node.ownership.store.acceptor_store import AcceptorStore
from sbon_node.ownership.store.registers import Registers
from sbon_node.ownership.store.repair import Repair
from sbon_node.papers.interface import Paper, Queries
from sbon_node.papers.table import STRATEGIES, papers_at
from sbon_node.planning.process.planner import Planner, ProcessPlanner
from sbon_node.queries.declarations import Declarations
from sbon_node.queries.describe import Descriptions
from sbon_node.queries.explaining.knowledge import Knowledge
from sbon_node.queries.explaining.placements import PlacementExplainer
from sbon_node.queries.explaining.plans import Explainer
from sbon_node.queries.follow import Follows
from sbon_node.queries.further_sinks import FurtherSinks
from sbon_node.queries.holder import QueryHolder
from sbon_node.queries.listing import QueryList
from sbon_node.queries.lookup import QueryLookup
from sbon_node.queries.planning import Planning
from sbon_node.queries.query_hosts import QueryHosts
from sbon_node.queries.record_calls import RecordCalls
from sbon_node.queries.restarts import Restarts
from sbon_node.queries.reuse import Reuse
from sbon_node.queries.sink_failovers import SinkFailovers
from sbon_node.queries.sink_requests import SinkRequests
from sbon_node.queries.submit import Submitter
from sbon_node.streams.links.publisher import Publisher
from sbon_node.streams.outbox.upkeep import return_disk
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration, ViewDeclaration
from sbon_protocol.api.delivery import Finished, Rows
from sbon_protocol.api.explanations import Explanation
from sbon_protocol.api.moves import MoveCancelled, Moved, MoveRequest, Moving
from sbon_protocol.api.nodes import MachineUsagePoint, MemberInfo, NodeStatus, PairInfo, RttRequest
from sbon_protocol.api.placement_explanations import PlacementExplanation
from sbon_protocol.api.queries import Accepted, Progress, QueryInfo, QuerySpec, Submission
from sbon_protocol.api.states.operator_states import OperatorState
from sbon_protocol.api.streams import Pushed, StreamInfo
from sbon_protocol.api.usage import QueryUsage
from sbon_protocol.messages import NodeMeta

log = structlog.get_logger()

AnyPaper = TypeVar("AnyPaper", bound=Paper)
EngineFactory = Callable[[Path, OnOperatorState], MovingEngine]
"""Creates the node's engine, which keeps its files under the given folder and reports the operators' states."""


class Node:
    """A node; implements :class:`sbon_node.api.interface.NodeInterface`.

    Call :meth:`start` once, and always call :meth:`close` afterwards.
    """

    def __init__(
        self,
        config: Config,
        *,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        engine: EngineFactory,
        counters: Counters,
        failpoint: Failpoints = unobserved,
        executor: Executor = in_thread,
        computing: Executor | None = None,
        planner: Planner | None = None,
        machine: Machine | None = None,
    ) -> None:
        self._config = config
        self.name = config.node.name
        planner = planner or ProcessPlanner(config.query, clock)
        world = World(transport, clock, rng, counters, failpoint, executor, computing or Computing(), planner)
        self.context, self._space, self._measurer, publisher = lay_foundation(config, world)
        self._distances = Distances(self.context, config.space.load_weight_ms)
        self.membership, self.outbox, self.bus = self.context.membership, self.context.outbox, self.context.bus
        self._rejoin = Rejoin(
            self.membership, store=self.context.store, clock=clock, rng=rng, seeds=config.node.seeds, settings=config.membership
        )
        self._machine = machine or Machine(config.control)
        self.engine = engine(self.context.data_dir, self._operator_state)

        self._acceptors = AcceptorStore(self.context)
        self.registers = Registers(self.context, self._acceptors)
        self._repair = Repair(self.context, self._acceptors, self.registers)
        self._catalogue = Catalogue(self.context)
        self._sources = SourceHost(self.context, self._catalogue, config.connectors)
        self._source_backups = NodeSourceBackups(self.context, self._catalogue, self.registers, config.backups, self._sources)
        self._pushes = Pushes(self.context, self._catalogue, self._sources, config.connectors)
        known = self._catalogue.node_of, self._catalogue.is_detached
        self._record_acceptors = RecordAcceptors(self.context, self.registers, *known)
        records = Records(self._acceptors, self.registers, config.control.max_queries, self._distance_ms)
        self._operator_registers = OperatorRegisters(self.context, self._acceptors, self.registers, records)
        self._host_components()
        publisher.admit = self._moves.host_check.may_follow
        publisher.check_host = self._reader_positions.check_host
        self._keep_records(records)
        self._leaving = Leaving(
            self.context,
            self._book,
            self._destroyer,
            self._record_acceptors,
            self._repair,
            lambda: {**self._operators.epochs(), **self._sinks.epochs()},
        )
        self.leaving = asyncio.Event()
        self._take_queries(records)
        self.operations = self._operate(publisher)
        self._usage = MachineUsageHistory(self.context, self._machine, self.engine)
        self._tasks = Tasks()

    def _host_components(self) -> None:
        """Create what runs operators and sinks here."""
        config = self._config
        capacity = self._machine.capacity(config.engine.max_operators)
        tags, amounts = self.membership.own_meta.tags, (capacity.cores, capacity.memory_mb, capacity.bandwidth_bytes_s)
        self.membership.describe(NodeMeta(tags, *amounts, version=version("sbon")))
        acceptors, owners = self._record_acceptors, self._operator_registers
        ports = OperatorPorts(self.context, config.connectors, acceptors, capacity.speed)
        room = Room(self.context, capacity, ports, self._machine.load)
        self.papers = papers_at(self.context, room, config.placement, config.ants)
        self._answers = NodeAnswers(self.context, room, [paper.booked for paper in self.papers], self.engine.start)
        self._operators = OperatorHost(self.context, self.engine, room, config.connectors, acceptors)
        self._moves = Moves(config.engine, config.migration, self.context, self._operators, self.engine, owners, acceptors)
        self._backups = NodeBackups(
            self.context, self._operators, self._moves, self.engine, owners, config.backups, config.engine
        )
        ended = EndedQueries(config.control.max_forgotten)
        results = ResultStreams(self.context, self._catalogue, self._sources)
        self._sinks = SinkHost(self.context, config.connectors, acceptors, results, ended)
        self._reader_positions = ReaderPositions(self.context, owners)
        self._takeover = SinkTakeover(self.context, self._sinks, acceptors, owners, ended)
        self._relayed = RelayedRows(self.context, self._sinks)
        self._shared = SharedOperators(self.context, self._operators, owners, self._moves.departures.under_way)
        ends = (acceptors, ended, self._moves, self._backups.keeper, self._shared)
        self._destroyer = ComponentDestroyer(self.context, self._operators, self._sinks, *ends)
        self._orphans = OrphanCheck(self.context, self.registers, owners, self._destroyer, self._reader_positions)
        optimizer = OptimizerParts(self.context, self._operators, acceptors, config.adaptation, config.placement)
        self._mover = Mover(self.context, self._moves.departures)
        self._optimizer = LocalOptimizer(optimizer, self._mover, self._moves.host_check, self._machine.load)
        parts = (self._sources, self._operators, self._moves, self._sinks, self._backups.keeper)
        self._descriptions = Descriptions(self.context, *parts, self._optimizer.decisions)

    def _keep_records(self, records: Records) -> None:
        """Create what keeps the records of queries and their operators."""
        self._measurements = MeasurementStore(
            self.context, self._sources, SampleStore(self.context, self._catalogue, self._sources)
        )
        self._decisions = LeaderDecisions(self.name, self.bus, self.context.clock.wall_ms, self._config.adaptation.decisions)
        hosts = QueryHosts(self.context, self._operator_registers, self._decisions.added, self._catalogue.node_of)
        self._book = QueryHolder(self.context, self._measurements, records, hosts)
        keeping = (self.context, records, self._book, self._operator_registers, hosts)
        self._failovers, self._further = SinkFailovers(*keeping), FurtherSinks(*keeping)
        self._record_calls = RecordCalls(*keeping, self._further, self._destroyer.components, self._sinks.rows)

    def _operate(self, publisher: Publisher) -> Operations:
        """Create what answers the node's administrator."""
        hosts = (self._sources, self._operators, self._sinks, self._book, self._orphans)
        components = Components(self.context, self.engine, self._space, self._measurer, publisher, *hosts)
        targets = MoveTargets(self.context, self._lookup, self._config.migration.candidates)
        parts = Parts(self._operators, self._sources, self._moves, self._mover, targets, self._leaving, self.leaving.set)
        self._draining = Draining(self.context, self._config.migration, parts)
        return Operations(self._config, components, self._draining)

    def _take_queries(self, records: Records) -> None:
        """Create what accepts, explains and follows queries."""
        config, self._lookup = self._config, QueryLookup(self.context)
        self._requested = RequestedMoves(
            self.context, self._lookup, self._operator_registers, self._mover, config.migration.report_s
        )
        default = (config.adaptation.default, config.query.durability)
        placing = (config.placement, STRATEGIES)
        planning = Planning(self.context, self._catalogue, self._measurements, self.engine, *placing, *default)
        self.sinks = SinkRequests(self.context, self._lookup, planning, config.connectors)
        self._follows = Follows(self.context, self._sinks, self._lookup, self.sinks)
        self._declarations = Declarations(planning, self._catalogue, self._lookup.check_unread, self._lookup.stop)
        names = QueryNames(self.registers, records, self._lookup.is_over)
        led = (self._book, self._requested, self._decisions)
        self._replacements = Replacements(self.context, *led, config.adaptation, *placing)
        reuse = Reuse(self.context, planning, self._operator_registers)
        work = [paper.for_queries(Queries(*led, reuse)) for paper in self.papers]
        hooks, services = [hook for one in work for hook in one.hooks], [service for one in work for service in one.services]
        ours = (self._book, self._operator_registers, names, config.connectors, reuse, hooks)
        self._submitter = Submitter(self.context, planning, *ours)
        restarts = Restarts(self.context, records, self._book, self._lookup, self._submitter)
        adapting = (self._optimizer, *services, self._replacements.led)
        self._unasked = (*adapting, restarts, self._failovers, self._further, self._follows)
        self._explainer = Explainer(self.context, planning, self._lookup, self._sources, reuse)
        knowledge = Knowledge(self.context, config.directory.fresh_s)
        explained = (self.context, planning, self._lookup, reuse)
        self._placement_explainer = PlacementExplainer(*explained, *placing, knowledge)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, join, and resume the parts of an earlier run.

        Raises ``OSError`` if a port is taken; :class:`SbonError` if no seed answers a node that has never been in a cluster, or
        the cluster refuses it.
        """
        await self.context.server.start(self._config.node.listening)
        self.operations.announce_readiness()
        await self.membership.start()
        self.membership.listen(self._rejoin.member_changed)
        self.membership.listen(self._publish_member)
        await self._rejoin.start()
        self._moves.start()
        self._backups.start()
        for paper in self.papers:
            paper.start()
        self._operators.start()
        self._sinks.start()
        self._source_backups.start()
        self._sources.start()
        for one in self._unasked:
            one.start()
        self._book.start()
        self._tasks.start("catalogue", self._catalogue.run())
        self._tasks.start("load", watch_load(self._machine, self._space, self.membership, self.context.clock))
        self._tasks.start("readiness", self.operations.spread_readiness())
        self._tasks.start("outbox", return_disk(self.outbox, self.context.clock))
        self._tasks.start("repair", self._repair.run())
        self._tasks.start("operator registers", self._operator_registers.run())
        self._tasks.start("orphans", self._orphans.run())
        if self._machine.counts_usage:
            self._tasks.start("usage", self._usage.run())

    async def close(self, *, away: bool = True) -> None:
        """Leave cleanly: stop operators after a committed batch and inform the members; keep everything on disk."""
        await self._tasks.close()
        for one in self._unasked:
            await one.close()
        await self._draining.close()
        await self._rejoin.close()
        if away and not self.leaving.is_set():
            await self.membership.go_away()
        for part in (self._submitter, self._book, self.registers, self.context.planner, self._shared, self._moves):
            await part.close()
        await self._backups.stop()
        for paper in self.papers:
            await paper.close()
        await self._operators.close()
        await self._sinks.close()
        await self._source_backups.stop()
        await self._sources.close()
        for last in (self._measurer, self.membership, self.context.connections, self.context.peers, self.context.server):
            await last.close()
        self.outbox.close()
        self.context.store.close()

    def paper(self, kind: type[AnyPaper]) -> AnyPaper:
        """Return the paper of that kind at this node."""
        return next(one for one in self.papers if isinstance(one, kind))

    def _distance_ms(self, node: str) -> float:
        one_way_ms = self.context.directory.estimate_rtt_ms(self.name, node).one_way_ms
        return math.inf if one_way_ms is None else one_way_ms

    def _publish_member(self, name: str, change: Change) -> None:
        member = self.membership.get(name)
        state = member.state if member is not None else ""
        self.bus.publish("membership", partial(MemberChanged, member=name, change=change, state=state))

    def _operator_state(self, operator: str, state: OperatorState, reason: str) -> None:
        for listener in (self._operators, self._moves.arrivals, self._backups.followers):
            listener.engine_state(operator, state, reason)

    # -- NodeInterface ------------------------------------------------------------------------------------------------

    def status(self) -> NodeStatus:
        return status_of(self._config, self.context, self._space, self.engine, self._operators)

    def usage(self, after_ms: int = -1) -> list[MachineUsagePoint]:
        return self._usage.points(after_ms)

    def members(self, near: str = "", within_ms: float | None = None) -> list[MemberInfo]:
        return self._distances.members(near, within_ms)

    async def rtt(self, question: RttRequest) -> list[PairInfo]:
        return await self._distances.rtt(question)

    async def join(self, addresses: tuple[str, ...]) -> int:
        return await self.membership.join([Address.parse(text, field="addresses") for text in addresses])

    async def leave(self, *, force: bool = False) -> None:
        await self._leaving.leave(force=force)
        self.leaving.set()

    async def create_stream(self, declaration: StreamDeclaration) -> None:
        await self._declarations.create_stream(declaration)

    async def create_view(self, view: ViewDeclaration) -> None:
        await self._declarations.create_view(view)

    async def attach_source(self, source: SourceDeclaration) -> None:
        await self._sources.attach(msgspec.structs.replace(source, node=source.node or self.name))

    async def detach_source(self, stream: str, source: str) -> None:
        await self._declarations.detach(stream, source)

    async def streams(self) -> list[StreamInfo]:
        return [await self._sources.describe(name) for name in self._catalogue.entries]

    async def stream(self, name: str) -> StreamInfo:
        return await self._sources.describe(name)

    async def push(self, stream: str, source: str, post: Post) -> Pushed:
        return await self._pushes.push(stream, source, post)

    async def drop_stream(self, name: str) -> None:
        await self._declarations.drop(name)

    def submit(self, submission: Submission) -> AsyncIterator[Progress | Accepted]:
        return self._submitter.submit(submission)

    async def explain(self, question: QuerySpec) -> Explanation:
        return await self._explainer.plan(question)

    async def explain_query(self, query_id: str) -> Explanation:
        return await self._explainer.query(query_id)

    async def explain_placement(self, question: QuerySpec) -> PlacementExplanation:
        return await self._placement_explainer.plan(question)

    async def explain_query_placement(self, query_id: str) -> PlacementExplanation:
        return await self._placement_explainer.query(query_id)

    async def queries(self) -> QueryList:
        return await self._lookup.all()

    async def query(self, query_id: str) -> QueryInfo:
        return (await self._lookup.show(query_id))[0]

    async def stop_query(self, query_id: str) -> QueryInfo:
        return await self._lookup.stop(query_id)

    def move_operator(self, query_id: str, request: MoveRequest) -> AsyncIterator[Moving | Moved]:
        return self._requested.move(query_id, request)

    async def cancel_move(self, query_id: str, operator: str) -> MoveCancelled:
        return await self._requested.cancel(query_id, operator)

    async def query_usage(self, query_id: str, after_ms: int = -1) -> QueryUsage:
        return (await self._lookup.show(query_id, after_ms))[1]

    def follow(self, query_id: str, after: dict[str, int], sink: str = "", word: str = "") -> AsyncIterator[Rows | Finished]:
        return self._follows.follow(query_id, after, sink, word)

    async def acknowledge(self, query_id: str, numbers: dict[str, int], sink: str = "", word: str = "") -> None:
        await self._follows.acknowledge(query_id, numbers, sink, word)

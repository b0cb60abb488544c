"""One node, wired: the rooms below, injected time, network and engine, started and stopped in order.

The daemon runs it on real sockets and Spark, the simulation on virtual ones; it is the same object.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import msgspec

from sbon_node.blocking import Blocking, Computing, in_thread
from sbon_node.clock import Clock
from sbon_node.config import Config
from sbon_node.connectors.push import Post, Pushed
from sbon_node.control.catalogue import Catalogue
from sbon_node.control.describe import Descriptions
from sbon_node.control.distances import Distances
from sbon_node.control.explaining.knowledge import Knowledge
from sbon_node.control.explaining.placement_explanation import PlacementExplanation
from sbon_node.control.explaining.placements import PlacementExplainer
from sbon_node.control.explaining.plan_explanation import Explanation
from sbon_node.control.explaining.plans import Explainer
from sbon_node.control.leaving import Leaving
from sbon_node.control.machine import Machine
from sbon_node.control.measurements import MeasurementBook
from sbon_node.control.operators import OperatorHost
from sbon_node.control.parts import PartDestroyer
from sbon_node.control.planning import Planning
from sbon_node.control.pushes import Pushes
from sbon_node.control.queries import QueryBook
from sbon_node.control.query_list import QueryList
from sbon_node.control.questions import Questions
from sbon_node.control.rejoin import Rejoin
from sbon_node.control.report import (
    Accepted,
    Bill,
    Finished,
    MemberInfo,
    NodeStatus,
    PairInfo,
    Progress,
    QueryInfo,
    Question,
    Rows,
    RttQuestion,
    StreamInfo,
    Submission,
)
from sbon_node.control.sinks import SinkHost
from sbon_node.control.sources import SourceHost
from sbon_node.control.submit import Submitter
from sbon_node.engine.interface import Engine, OnOperatorState, OperatorState
from sbon_node.foundation import World, lay_foundation
from sbon_node.happenings import MemberChanged
from sbon_node.membership.table import Change
from sbon_node.net.counters import Counters
from sbon_node.net.transport import Address, Transport
from sbon_node.operations.figures import Rooms
from sbon_node.operations.service import Operations
from sbon_node.query.catalog import SourceDeclaration, StreamDeclaration
from sbon_node.query.schema import check_name, check_stream
from sbon_node.steps import Steps, unobserved
from sbon_node.tasks import Tasks

EngineFactory = Callable[[Path, OnOperatorState], Engine]
"""Makes the node's engine, which keeps its files under the folder given and reports the operators' states."""

LOAD_EVERY_S = 5.0
"""Linux reckons its load average as often."""


class Node:
    """Implements :class:`sbon_node.api.face.NodeFace`. Call :meth:`start` once, and :meth:`close` whatever happened then."""

    def __init__(
        self,
        config: Config,
        *,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        engine: EngineFactory,
        counters: Counters,
        steps: Steps = unobserved,
        blocking: Blocking = in_thread,
        computing: Blocking | None = None,
        machine: Machine | None = None,
    ) -> None:
        self._config = config
        self.name = config.node.name
        world = World(transport, clock, rng, counters, steps, blocking, computing or Computing())
        self.context, self._space, self._measurer, publisher = lay_foundation(config, world)
        self._distances = Distances(self.context)
        self.membership, self.outbox, self.bus = self.context.membership, self.context.outbox, self.context.bus
        self._rejoin = Rejoin(
            self.membership,
            store=self.context.store,
            clock=clock,
            rng=rng,
            seeds=config.node.seeds,
            settings=config.membership,
        )
        self._machine = machine or Machine(config.control)
        self.engine = engine(self.context.data_dir, self._operator_state)

        self._catalogue = Catalogue(self.context)
        self._sources = SourceHost(self.context, self._catalogue, config.connectors)
        self._pushes = Pushes(self.context, self._catalogue, self._sources)
        capacity = self._machine.capacity(config.engine.max_operators)
        self.membership.describe(
            cores=capacity.cores,
            memory_mb=capacity.memory_mb,
            bandwidth_bytes_s=capacity.bandwidth_bytes_s,
            version=version("sbon"),
        )
        self._operators = OperatorHost(self.context, self.engine, capacity, self._machine.load)
        self._sinks = SinkHost(self.context, config.connectors)
        self._parts = PartDestroyer(self.context, self._operators, self._sinks)
        self._descriptions = Descriptions(self.context, self._sources, self._operators, self._sinks)

        self._measurements = MeasurementBook(self.context, self._sources)
        self._book = QueryBook(
            self.context,
            self._measurements,
            lambda: [*self._operators.parts(), *self._sinks.parts()],
            self._sinks.rows,
        )
        self._leaving = Leaving(self.context, self._book, self._operators, self._sinks)
        rooms = Rooms(
            self.context,
            self.engine,
            self._space,
            self._measurer,
            publisher,
            self._sources,
            self._operators,
            self._sinks,
            self._book,
        )
        self.operations = Operations(config, rooms, self._leaving)
        self._questions = Questions(self.context)
        planning = Planning(self.context, self._catalogue, self._measurements, self.engine, config.query, config.placement)
        self._submitter = Submitter(self.context, planning, self._book, self._questions, config.connectors)
        self._explainer = Explainer(self.context, planning, self._questions, self._sources)
        knowledge = Knowledge(self.context, config.directory.fresh_s)
        self._placement_explainer = PlacementExplainer(self.context, planning, self._questions, config.placement, knowledge)
        self._tasks = Tasks()
        self._left = False
        self.leaving = asyncio.Event()

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listens, joins, resumes what an earlier run hosted.

        Raises ``OSError`` where a port is taken; :class:`SbonError` where no seed answers a node that has never been in a
        cluster, or the cluster refuses it.
        """
        await self.context.server.start(self._config.node.listening)
        await self.membership.start()
        self.membership.listen(self._rejoin.member_changed)
        self.membership.listen(self._tell_of_member)
        await self._rejoin.start()
        self._operators.start()
        self._sinks.start()
        self._sources.start()
        self._book.start()
        self._tasks.start("catalogue", self._catalogue.run())
        self._tasks.start("load", self._watch_load())

    async def close(self, *, away: bool = True) -> None:
        """Goes away cleanly: operators stop after a committed batch, the others are told. Leaves everything on disk."""
        await self._tasks.close()
        await self._rejoin.close()
        if away and not self._left:
            await self.membership.go_away()
        await self._book.close()
        await self._operators.close()
        await self._sinks.close()
        await self._sources.close()
        await self._measurer.close()
        await self.membership.close()
        await self.context.peers.close()
        await self.context.server.close()
        self.outbox.close()
        self.context.store.close()

    async def _watch_load(self) -> None:
        while True:
            self._space.observe_load(self._machine.load(), self.context.clock.now())
            self.membership.place_self()
            await self.context.clock.sleep(LOAD_EVERY_S)

    def _tell_of_member(self, name: str, change: Change) -> None:
        member = self.membership.get(name)
        state = member.state if member is not None else ""
        self.bus.tell("membership", partial(MemberChanged, member=name, change=change, state=state))

    def _operator_state(self, operator: str, state: OperatorState, reason: str) -> None:
        self._operators.engine_state(operator, state, reason)

    # -- NodeFace -----------------------------------------------------------------------------------------------------

    def status(self) -> NodeStatus:
        own = self.membership.get(self.name)
        assert own is not None
        coordinate = self._space.coordinate
        return NodeStatus(
            name=self.name,
            cluster=self._config.node.cluster,
            address=str(own.address),
            api=str(own.api),
            version=version("sbon"),
            engine=self.engine.status,
            coordinate=coordinate.vector,
            height=coordinate.height,
            error=coordinate.error,
            load=coordinate.load,
            members=self.membership.others_alive + 1,
            operators=self._operators.hosted(),
            drained=bool(self.context.drained),
            counters=self.context.counters.snapshot(),
        )

    def members(self, near: str = "", within_ms: float | None = None) -> list[MemberInfo]:
        return self._distances.members(near, within_ms)

    async def rtt(self, question: RttQuestion) -> list[PairInfo]:
        return await self._distances.rtt(question)

    async def join(self, addresses: tuple[str, ...]) -> int:
        return await self.membership.join([Address.parse(text, field="addresses") for text in addresses])

    async def leave(self, *, force: bool = False) -> None:
        await self._leaving.leave(force=force)
        self._left = True
        self.leaving.set()

    async def create_stream(self, declaration: StreamDeclaration) -> None:
        check_stream(declaration)
        check_name(declaration.name)
        await self._catalogue.create(declaration)

    async def attach_source(self, source: SourceDeclaration) -> None:
        await self._sources.attach(msgspec.structs.replace(source, node=source.node or self.name))

    async def detach_source(self, stream: str, source: str) -> None:
        await self._questions.check_unread(self._catalogue.entry(stream).declaration.name)
        await self._catalogue.detach(stream, source)

    async def streams(self) -> list[StreamInfo]:
        return [await self._sources.describe(name) for name in self._catalogue.entries]

    async def stream(self, name: str) -> StreamInfo:
        return await self._sources.describe(name)

    async def push(self, stream: str, source: str, post: Post) -> Pushed:
        return await self._pushes.push(stream, source, post)

    async def drop_stream(self, name: str) -> None:
        self._catalogue.entry(name)
        await self._questions.check_unread(name)
        await self._catalogue.drop(name)

    def submit(self, submission: Submission) -> AsyncIterator[Progress | Accepted]:
        return self._submitter.submit(submission)

    async def explain(self, question: Question) -> Explanation:
        return await self._explainer.plan(question)

    async def explain_query(self, query_id: str) -> Explanation:
        return await self._explainer.query(query_id)

    async def explain_placement(self, question: Question) -> PlacementExplanation:
        return await self._placement_explainer.plan(question)

    async def explain_query_placement(self, query_id: str) -> PlacementExplanation:
        return await self._placement_explainer.query(query_id)

    async def queries(self) -> QueryList:
        return await self._questions.all()

    async def query(self, query_id: str) -> QueryInfo:
        return (await self._questions.show(query_id))[0]

    async def stop_query(self, query_id: str) -> QueryInfo:
        return await self._questions.stop(query_id)

    async def bill(self, query_id: str) -> Bill:
        return (await self._questions.show(query_id))[1]

    def follow(self, query_id: str, after: dict[str, int]) -> AsyncIterator[Rows | Finished]:
        return self._sinks.follow(query_id, after)

    async def acknowledge(self, query_id: str, numbers: dict[str, int]) -> None:
        await self._sinks.acknowledge(query_id, numbers)

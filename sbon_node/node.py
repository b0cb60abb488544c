"""A node: its packages joined, with injected time, network and engine, started and stopped in order.

The daemon runs it on real sockets and Spark, the simulation on virtual ones; the class is the same. Each package assembles its
own parts from what it needs of the packages below; all parts are public attributes.
"""

import random
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from sbon_node import context
from sbon_node.adaptation import assemble as adaptation
from sbon_node.base.clock import Clock
from sbon_node.base.drain_mark import identify
from sbon_node.base.events import MemberChanged
from sbon_node.base.executors import Computing, Executor, in_thread
from sbon_node.base.failpoints import Failpoints, unobserved
from sbon_node.base.store import RecordStore
from sbon_node.base.tasks import Tasks
from sbon_node.config.config import Config
from sbon_node.hosting import assemble as hosting
from sbon_node.hosting.assemble import EngineFactory, HostingSettings
from sbon_node.hosting.machine.machine_resources import Machine, watch_load
from sbon_node.hosting.operators.room import NodeAnswers
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Identity
from sbon_node.net.transport import Transport
from sbon_node.operations.metrics_snapshot import Components
from sbon_node.operations.service import Operations
from sbon_node.overlay import assemble as overlay
from sbon_node.overlay.assemble import Addresses, Network, OverlaySettings
from sbon_node.overlay.membership.table import Change
from sbon_node.overlay.presence import RULES
from sbon_node.ownership import assemble as ownership
from sbon_node.papers.interface import Leading, Paper, Service
from sbon_node.papers.table import STRATEGIES, papers_at
from sbon_node.planning.process.planner import Planner, ProcessPlanner
from sbon_node.queries import assemble as queries
from sbon_node.queries.assemble import Decisions, QuerySettings
from sbon_node.streams.outbox.outbox import Outbox, return_disk

AnyPaper = TypeVar("AnyPaper", bound=Paper)


class Node:
    """A node. Call :meth:`start` once, and always call :meth:`close` afterwards.

    ``overlay``, ``context``, ``ownership``, ``hosting``, ``queries``, ``submitting``, ``adaptation`` and ``operations`` have its
    parts, as the packages of these names have assembled them.
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
        """Open the data directory and assemble the node.

        Raises :class:`SbonError` for a directory that cannot be read or belongs to another node.
        """
        self._config, self._machine = config, machine or Machine(config.control)
        self.name = config.node.name
        planner = planner or ProcessPlanner(config.query, clock)
        self._join_overlay(context.World(transport, clock, rng, counters, failpoint, executor, computing or Computing(), planner))
        self._host_queries(engine)
        self._lead_queries()
        components = Components(self.context, self.overlay, self.hosting, self.queries)
        self.operations = Operations(config, components, self.adaptation.draining, self._machine)
        self._tasks = Tasks()

    def _join_overlay(self, world: context.World) -> None:
        """Open this node's files, and assemble the packages below those that use several nodes."""
        config, node = self._config, self._config.node
        folder = Path(node.data_dir)
        store = RecordStore(folder / "node.db", world.failpoint, fsync=config.streams.fsync)
        stored = identify(store, name=node.name, cluster=node.cluster, where=str(folder), rng=world.rng)
        disk = context.Disk(folder, store, Outbox(folder / "outbox.db", config.streams, world.failpoint, world.rng))
        identity = Identity(node.cluster, node.name, stored.instance)
        network = Network(world.transport, world.clock, world.rng, world.counters)
        addresses = Addresses(node.listening, node.announced, node.announced_api, node.seeds)
        graces = {rule.setting: float(attrgetter(rule.setting)(config)) for rule in RULES if rule.setting}
        settings = OverlaySettings(config.net, config.space, config.membership, config.directory, graces)
        self.overlay = overlay.assemble(identity, stored.incarnation, network, store, addresses, settings)
        self.context = context.assemble(self.name, world, disk, self.overlay, config.control, config.streams)
        self.membership, self.outbox, self.bus = self.overlay.membership, self.context.outbox, self.context.bus

    def _host_queries(self, engine: EngineFactory) -> None:
        """Assemble what this node hosts for queries, whoever leads them."""
        config = self._config
        self.ownership = ownership.assemble(self.context)
        settings = HostingSettings(config.connectors, config.engine, config.migration, config.backups)
        self.hosting = hosting.assemble(self.context, self.ownership, settings, engine, self._machine)
        room = self.hosting.room
        self.papers = papers_at(self.context, room, config.placement, config.ants)
        NodeAnswers(self.context, room, [paper.booked for paper in self.papers], self.hosting.engine.start)

    def _lead_queries(self) -> None:
        """Assemble what begins queries, looks after them and ends them."""
        config, placing = self._config, (self._config.placement, STRATEGIES)
        below = (self.context, self.ownership, self.hosting)
        local = adaptation.assemble_local(*below, self._machine, config.adaptation, config.placement)
        decisions = Decisions(local.optimizer.decisions, local.decisions.added)
        default = (config.adaptation.default, config.query.durability)
        settings = QuerySettings(config.connectors, *placing, *default, config.directory.fresh_s)
        self.queries = queries.assemble(*below, settings, decisions)
        moving = adaptation.MovingSettings(config.adaptation, config.migration, *placing)
        self.adaptation = adaptation.assemble(*below, local, self.queries, moving)
        leading = Leading(self.queries, self.adaptation.requested, local.decisions)
        work = [paper.for_queries(leading) for paper in self.papers]
        hooks = [hook for one in work for hook in one.hooks]
        self.submitting = queries.assemble_submitting(self.context, self.ownership, self.queries, config.connectors, hooks)
        self.services: tuple[Service, ...] = (
            local.optimizer,
            *(service for one in work for service in one.services),
            self.adaptation.replacements,
            self.submitting.restarts,
            self.queries.failovers,
            self.queries.further_sinks,
            self.queries.follows,
        )
        """Work for queries that this node does by itself."""

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, join, and resume the parts of an earlier run.

        Raises ``OSError`` if a port is taken; :class:`SbonError` if no seed answers a node that has never been in a cluster, or
        the cluster refuses it.
        """
        await self.context.server.start(self._config.node.listening)
        self.operations.announce_readiness()
        await self.membership.start()
        self.membership.listen(self.overlay.rejoin.member_changed)
        self.membership.listen(self._publish_member)
        await self.overlay.rejoin.start()
        self.hosting.start_moves()
        for paper in self.papers:
            paper.start()
        self.hosting.start()
        for one in self.services:
            one.start()
        self.queries.leader.start()
        clock, owned = self.context.clock, self.ownership
        self._tasks.start("catalogue", owned.catalogue.run())
        self._tasks.start("load", watch_load(self._machine, self.overlay.space, self.membership, clock))
        self._tasks.start("readiness", self.operations.spread_readiness())
        self._tasks.start("outbox", return_disk(self.outbox, clock))
        self._tasks.start("repair", owned.repair.run())
        self._tasks.start("operator registers", owned.operators.run())
        self._tasks.start("orphans", self.hosting.orphans.run())
        if self._machine.counts_usage:
            self._tasks.start("usage", self.operations.usage.run())

    async def close(self, *, away: bool = True) -> None:
        """Leave cleanly: stop operators after a committed batch and inform the members; keep everything on disk."""
        await self._tasks.close()
        for one in self.services:
            await one.close()
        await self.adaptation.draining.close()
        await self.overlay.rejoin.close()
        if away and not self.adaptation.leaving.left.is_set():
            await self.membership.go_away()
        for part in (self.submitting.submitter, self.queries.leader, self.ownership.registers, self.context.planner):
            await part.close()
        await self.hosting.close_moves()
        for paper in self.papers:
            await paper.close()
        await self.hosting.close()
        for last in (self.overlay.measurer, self.membership, self.context.connections, self.context.peers, self.context.server):
            await last.close()
        self.outbox.close()
        self.context.store.close()

    def paper(self, kind: type[AnyPaper]) -> AnyPaper:
        return next(one for one in self.papers if isinstance(one, kind))

    def _publish_member(self, name: str, change: Change) -> None:
        member = self.membership.get(name)
        state = member.state if member is not None else ""
        self.bus.publish("membership", partial(MemberChanged, member=name, change=change, state=state))

"""Base of a node's workflows: its disk, its place in the network, and its served streams."""

from __future__ import annotations

import random
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from sbon_node.base.clock import Clock
from sbon_node.base.drain_mark import Drained, identify
from sbon_node.base.events import Bus
from sbon_node.base.executors import Executor
from sbon_node.base.failpoints import Failpoints
from sbon_node.base.store import RecordStore
from sbon_node.config.config import Config
from sbon_node.context import Context
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Identity, Peers, PeerServer
from sbon_node.net.transport import Transport
from sbon_node.overlay.directory.measuring import Measurer
from sbon_node.overlay.directory.view import FullView
from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.presence import RULES, Presence
from sbon_node.overlay.space.local import LocalCoordinate
from sbon_node.planning.process.planner import Planner
from sbon_node.streams.links.publisher import Publisher
from sbon_node.streams.links.shared.reading import SharedConnections
from sbon_node.streams.outbox.outbox import Outbox


class World(NamedTuple):
    """The node's environment, real or simulated."""

    transport: Transport
    clock: Clock
    rng: random.Random
    counters: Counters
    failpoint: Failpoints
    executor: Executor
    computing: Executor
    planner: Planner


class Foundation(NamedTuple):
    """Parts below the workflows, of which none runs or listens yet."""

    context: Context
    space: LocalCoordinate
    measurer: Measurer
    publisher: Publisher


def lay_foundation(config: Config, world: World) -> Foundation:
    """Open the stores of the data directory, and wire the packages below the workflows.

    Raises :class:`SbonError` for a directory that cannot be read or belongs to another node.
    """
    node = config.node
    data_dir = Path(node.data_dir)
    store = RecordStore(data_dir / "node.db", world.failpoint, fsync=config.streams.fsync)
    stored = identify(store, name=node.name, cluster=node.cluster, where=str(data_dir), rng=world.rng)
    outbox = Outbox(data_dir / "outbox.db", config.streams, world.failpoint, world.rng)

    identity = Identity(node.cluster, node.name, stored.instance)
    peers = Peers(world.transport, world.clock, identity, config.net, world.counters)
    server = PeerServer(world.transport, world.clock, identity, config.net, world.counters)
    publisher = Publisher(outbox, world.clock, config.streams, world.failpoint)
    server.on_stream(publisher.serve)

    space = LocalCoordinate(config.space, world.rng)
    membership = _membership(config, world, identity, peers, server, space, stored.incarnation)
    measurer = Measurer(
        membership,
        peers=peers,
        server=server,
        clock=world.clock,
        settings=config.directory,
        max_rtt_ms=config.space.max_rtt_ms,
        counters=world.counters,
    )
    graces = {rule.setting: float(attrgetter(rule.setting)(config)) for rule in RULES if rule.setting}
    connections = SharedConnections(peers, config.streams)
    context = Context(
        name=node.name,
        data_dir=data_dir,
        clock=world.clock,
        rng=world.rng,
        settings=config.control,
        stream_settings=config.streams,
        store=store,
        outbox=outbox,
        publisher=publisher,
        peers=peers,
        connections=connections,
        server=server,
        membership=membership,
        presence=Presence(membership.table, world.clock.now, world.clock.wall_ms, graces),
        directory=FullView(membership, measurer),
        counters=world.counters,
        failpoint=world.failpoint,
        executor=world.executor,
        computing=world.computing,
        planner=world.planner,
        bus=Bus(node.name, world.clock.wall_ms, keep=config.control.kept_events),
        drained=Drained(store),
    )
    return Foundation(context, space, measurer, publisher)


def _membership(
    config: Config,
    world: World,
    identity: Identity,
    peers: Peers,
    server: PeerServer,
    space: LocalCoordinate,
    incarnation: int,
) -> Membership:
    return Membership(
        identity,
        advertise=config.node.announced,
        api=config.node.announced_api,
        bind=config.node.listening,
        transport=world.transport,
        peers=peers,
        server=server,
        clock=world.clock,
        rng=world.rng,
        settings=config.membership,
        space=space,
        incarnation=incarnation,
        counters=world.counters,
    )

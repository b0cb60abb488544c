"""What the workflows of one node stand on: its disk, its place in the network, and the streams it serves to others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from sbon_node.blocking import Blocking
from sbon_node.clock import Clock
from sbon_node.config import Config
from sbon_node.control.context import Context
from sbon_node.control.drained import Drained
from sbon_node.control.identity import identify
from sbon_node.control.store import Store
from sbon_node.directory.measuring import Measurer
from sbon_node.directory.view import FullView
from sbon_node.happenings import Bus
from sbon_node.membership.service import Membership
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Identity, Peers, PeerServer
from sbon_node.net.transport import Transport
from sbon_node.space.local import LocalCoordinate
from sbon_node.steps import Steps
from sbon_node.streams.outbox import Outbox
from sbon_node.streams.publisher import Publisher


class World(NamedTuple):
    """What a node is given of the world, real or simulated."""

    transport: Transport
    clock: Clock
    rng: random.Random
    counters: Counters
    steps: Steps
    blocking: Blocking
    computing: Blocking


class Foundation(NamedTuple):
    """Nothing of it runs or listens yet."""

    context: Context
    space: LocalCoordinate
    measurer: Measurer
    publisher: Publisher


def lay_foundation(config: Config, world: World) -> Foundation:
    """Opens what the data directory holds, and wires the rooms below the workflows.

    Raises :class:`SbonError` for a directory that cannot be read or is another node's.
    """
    node = config.node
    data_dir = Path(node.data_dir)
    store = Store(data_dir / "node.db", world.steps, fsync=config.streams.fsync)
    stored = identify(store, name=node.name, cluster=node.cluster, where=str(data_dir), rng=world.rng)
    outbox = Outbox(data_dir / "outbox.db", config.streams, world.steps)

    identity = Identity(node.cluster, node.name, stored.instance)
    peers = Peers(world.transport, world.clock, identity, config.net, world.counters)
    server = PeerServer(world.transport, world.clock, identity, config.net, world.counters)
    publisher = Publisher(outbox, world.clock, config.streams, world.steps)
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
    context = Context(
        name=node.name,
        data_dir=data_dir,
        clock=world.clock,
        rng=world.rng,
        settings=config.control,
        stream_settings=config.streams,
        store=store,
        outbox=outbox,
        peers=peers,
        server=server,
        membership=membership,
        directory=FullView(membership, measurer),
        counters=world.counters,
        steps=world.steps,
        blocking=world.blocking,
        computing=world.computing,
        bus=Bus(node.name, world.clock.wall_ms),
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

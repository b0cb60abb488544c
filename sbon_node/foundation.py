"""What the workflows of one node stand on: its disk, its place in the network, and the streams it serves to others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from sbon_node.blocking import Blocking
from sbon_node.clock import Clock
from sbon_node.config import Config
from sbon_node.control.context import Context
from sbon_node.control.identity import identify
from sbon_node.control.store import Store
from sbon_node.directory.view import FullView
from sbon_node.membership.service import Membership
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Identity, Peers, PeerServer
from sbon_node.net.transport import Transport
from sbon_node.space.local import LocalCoordinate
from sbon_node.steps import Steps
from sbon_node.streams.outbox import Outbox
from sbon_node.streams.publisher import Publisher


class Foundation(NamedTuple):
    """Nothing of it runs or listens yet."""

    context: Context
    space: LocalCoordinate


def lay_foundation(
    config: Config,
    *,
    transport: Transport,
    clock: Clock,
    rng: random.Random,
    counters: Counters,
    steps: Steps,
    blocking: Blocking,
) -> Foundation:
    """Opens what the data directory holds, and wires the rooms below the workflows.

    Raises :class:`SbonError` for a directory that cannot be read or is another node's.
    """
    node = config.node
    data_dir = Path(node.data_dir)
    store = Store(data_dir / "node.db", steps, fsync=config.streams.fsync)
    stored = identify(store, name=node.name, cluster=node.cluster, where=str(data_dir), rng=rng)
    outbox = Outbox(data_dir / "outbox.db", config.streams, steps)

    identity = Identity(node.cluster, node.name, stored.instance)
    peers = Peers(transport, clock, identity, config.net, counters)
    server = PeerServer(transport, clock, identity, config.net, counters)
    server.on_stream(Publisher(outbox, clock, config.streams, steps).serve)

    space = LocalCoordinate(config.space, rng)
    membership = Membership(
        identity,
        advertise=node.announced,
        api=node.announced_api,
        bind=node.listening,
        transport=transport,
        peers=peers,
        server=server,
        clock=clock,
        rng=rng,
        settings=config.membership,
        space=space,
        incarnation=stored.incarnation,
        counters=counters,
    )
    context = Context(
        name=node.name,
        data_dir=data_dir,
        clock=clock,
        rng=rng,
        settings=config.control,
        stream_settings=config.streams,
        store=store,
        outbox=outbox,
        peers=peers,
        server=server,
        membership=membership,
        directory=FullView(membership),
        counters=counters,
        steps=steps,
        blocking=blocking,
    )
    return Foundation(context, space)

"""Assembles a node's place in the network: its connections, its membership, its coordinate, and what it knows of distances."""

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sbon_node.base.clock import Clock
from sbon_node.base.store import RecordStore
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Identity, Peers, PeerServer
from sbon_node.net.settings import NetSettings
from sbon_node.net.transport import Address, Transport
from sbon_node.overlay.directory.measuring import Measurer
from sbon_node.overlay.directory.settings import DirectorySettings
from sbon_node.overlay.directory.view import FullView
from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.presence import Presence
from sbon_node.overlay.rejoin import Rejoin
from sbon_node.overlay.space.local import LocalCoordinate
from sbon_node.overlay.space.settings import SpaceSettings


class Network(NamedTuple):
    """The network and clock of the overlay, real or simulated."""

    transport: Transport
    clock: Clock
    rng: random.Random
    counters: Counters


class OverlaySettings(NamedTuple):
    """Settings of the overlay's packages. ``graces`` are those of the rules of presence, by the names of their settings."""

    net: NetSettings
    space: SpaceSettings
    membership: MembershipSettings
    directory: DirectorySettings
    graces: Mapping[str, float]


class Addresses(NamedTuple):
    """Where the node listens, what it announces to others, and who it joins through."""

    bind: Address
    advertise: Address
    api: Address
    seeds: Sequence[Address]


class Overlay(NamedTuple):
    """A node's place in the network."""

    peers: Peers
    """Connections to other nodes."""
    server: PeerServer
    """Connections from other nodes, to whose calls parts of the node answer."""
    space: LocalCoordinate
    membership: Membership
    measurer: Measurer
    """Measures round-trip times on request."""
    directory: FullView
    presence: Presence
    """Whether another node is gone, by the rule of what depends on that."""
    rejoin: Rejoin


def assemble(
    identity: Identity, incarnation: int, network: Network, store: RecordStore, addresses: Addresses, settings: OverlaySettings
) -> Overlay:
    """Build the overlay of a node with this identity, of which nothing runs or listens yet."""
    transport, clock, rng, counters = network
    peers = Peers(transport, clock, identity, settings.net, counters)
    server = PeerServer(transport, clock, identity, settings.net, counters)
    space = LocalCoordinate(settings.space, rng)
    membership = Membership(
        identity,
        advertise=addresses.advertise,
        api=addresses.api,
        bind=addresses.bind,
        transport=transport,
        peers=peers,
        server=server,
        clock=clock,
        rng=rng,
        settings=settings.membership,
        space=space,
        incarnation=incarnation,
        counters=counters,
    )
    measurer = Measurer(
        membership,
        peers=peers,
        server=server,
        clock=clock,
        settings=settings.directory,
        max_rtt_ms=settings.space.max_rtt_ms,
        counters=counters,
    )
    presence = Presence(membership.table, clock.now, clock.wall_ms, settings.graces)
    rejoin = Rejoin(membership, store=store, clock=clock, rng=rng, seeds=addresses.seeds, settings=settings.membership)
    directory = FullView(membership, measurer, settings.space.load_weight_ms)
    return Overlay(peers, server, space, membership, measurer, directory, presence, rejoin)

"""The daemon's membership alone, in virtual time: a thousand nodes fit in one process.

There are no engine, streams or stores. Each site has the daemon's own membership, coordinate, and calls between peers, over
the simulated network.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence

from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.network.network import SimulatedNetwork
from sbon_lab.simulation.network.paths import Latency, NetworkQuality
from sbon_lab.simulation.network.stall import Stall, StallingClock, StallingTransport
from sbon_lab.simulation.process import Process
from sbon_lab.simulation.warm_start import warm_start
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Identity, Peers, PeerServer
from sbon_node.net.settings import NetSettings
from sbon_node.net.transport import Address
from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.membership.table import Change
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.overlay.space.local import LocalCoordinate
from sbon_node.overlay.space.settings import SpaceSettings
from sbon_protocol.errors import SbonError

PORT = 7400
CLUSTER = "sbon"
TRIES = 10
"""Tries of a site's seeds, a second apart, before it gives up silent seeds."""
Notify = Callable[[str, str, Change], None]
"""Callback with (observer, member, change)."""


class Site:
    """One node over its lives; ``membership`` belongs to the last life."""

    def __init__(self, name: str, address: Address) -> None:
        self.name, self.address = name, address
        self.lives = 0
        self.stall = Stall()
        self.process: Process
        self.membership: Membership
        self.counters: Counters

    @property
    def alive(self) -> bool:
        return self.lives > 0 and self.process.alive


class Overlay:
    """Sites by name. The overlay calls ``listen`` with every change of every member at every site."""

    def __init__(
        self,
        seed: int | str,
        latency: Latency,
        *,
        settings: MembershipSettings | None = None,
        space: SpaceSettings | None = None,
        quality: NetworkQuality | None = None,
        listen: Notify = lambda observer, member, change: None,
    ) -> None:
        self._seed, self._settings, self._space = seed, settings or MembershipSettings(), space or SpaceSettings()
        self._net = NetSettings()
        self._listener = listen
        self.network = SimulatedNetwork(random.Random(f"network/{seed}"), latency, quality)
        self.rng = random.Random(f"overlay/{seed}")
        self.sites: dict[str, Site] = {}

    def add(self, name: str) -> Site:
        index = len(self.sites)
        self.sites[name] = site = Site(name, Address(f"10.{index // 62500}.{index // 250 % 250}.{index % 250 + 1}", PORT))
        return site

    def living(self) -> list[Site]:
        return [site for site in self.sites.values() if site.alive]

    async def boot(self, site: Site, seeds: Sequence[Address] = ()) -> None:
        """Start a life of the site, with the next incarnation; return when it has joined, after any number of tries."""
        site.lives += 1
        site.process = process = Process(f"{site.name}#{site.lives}")
        server = self._wire(site)
        await process.start(_begin(site, server, seeds))

    def crash(self, site: Site) -> None:
        site.process.kill()

    async def leave(self, site: Site) -> None:
        await site.process.start(site.membership.leave())
        site.process.kill()

    def call(self, site: Site, work: Callable[[], None]) -> None:
        """Run a function in the site's process."""
        site.process.context.copy().run(work)

    def warm_start(self, coordinates: Mapping[str, Coordinate]) -> None:
        """Start all sites as if they had been together for long."""
        warm_start({site.name: site.membership for site in self.living()}, coordinates, asyncio.get_running_loop().time())

    def agreed(self) -> bool:
        """Whether every living site regards exactly the living sites as alive or suspected."""
        living = frozenset(site.name for site in self.living())
        return all(len(s.membership.table.there) == len(living) - 1 and _knows(s, living) for s in self.living())

    async def until(self, condition: Callable[[], bool], within_s: float, *, pause_s: float = 0.25) -> float:
        """Return the seconds until the condition holds, or infinity."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not condition():
            if loop.time() - began > within_s:
                return float("inf")
            await asyncio.sleep(pause_s)
        return loop.time() - began

    async def close(self) -> None:
        for site in self.living():
            site.process.kill()
        await asyncio.sleep(0)

    def _wire(self, site: Site) -> PeerServer:
        transport = StallingTransport(self.network.transport(site.process, site.name, site.address.host), site.stall)
        identity = Identity(CLUSTER, site.name, f"i-{site.name}")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        clock = StallingClock(loop, site.stall)
        site.counters = Counters(loop.time)
        rng = random.Random(f"{self._seed}/{site.process.name}")
        peers = Peers(transport, clock, identity, self._net, site.counters)
        server = PeerServer(transport, clock, identity, self._net, site.counters)
        site.membership = Membership(
            identity,
            advertise=site.address,
            api=Address(site.address.host, 7480),
            bind=site.address,
            transport=transport,
            peers=peers,
            server=server,
            clock=clock,
            rng=rng,
            settings=self._settings,
            space=LocalCoordinate(self._space, rng),
            incarnation=site.lives,
            counters=site.counters,
        )
        site.membership.listen(lambda member, change: self._listener(site.name, member, change))
        return server


async def _begin(site: Site, server: PeerServer, seeds: Sequence[Address]) -> None:
    await server.start(site.address)
    await site.membership.start()
    left = list(seeds)
    for _ in range(TRIES if seeds else 0):
        left = [seed for seed in left if not await _met(site, seed)]
        if not left:
            return
        await asyncio.sleep(1.0)


async def _met(site: Site, seed: Address) -> bool:
    try:
        await site.membership.join([seed])
    except SbonError as error:
        if error.code != "join-failed":
            raise
        return False
    return True


def _knows(site: Site, living: frozenset[str]) -> bool:
    alive = site.membership.table.there
    return all(name in alive for name in living if name != site.name)

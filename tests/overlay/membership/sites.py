"""Members on a network in memory, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_lab.simulation.network.network import SimulatedNetwork
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.process import Process
from sbon_node.base.clock import Clock
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Identity, Peers, PeerServer
from sbon_node.net.settings import NetSettings
from sbon_node.net.transport import Address, Transport
from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.space.local import LocalCoordinate
from sbon_node.overlay.space.settings import SpaceSettings

ONE_WAY_S = 0.1
LATE_S = 0.2
"""Duration of a process's stall; measurements during it are not believed."""
NET = NetSettings(connect_timeout_s=2.0)


class Site:
    """One node's net, space and membership."""

    def __init__(
        self, transport: Transport, clock: Clock, at: Address, who: Identity, incarnation: int, settings: MembershipSettings
    ) -> None:
        self.at, self.counters = at, Counters(clock.now)
        self.peers = Peers(transport, clock, who, NET, self.counters)
        self.server = PeerServer(transport, clock, who, NET, self.counters)
        rng = random.Random(f"{who.node}/{incarnation}")
        self.space = LocalCoordinate(SpaceSettings(), rng)
        self.heard: list[tuple[str, str]] = []
        self.membership = Membership(
            who,
            advertise=at,
            api=Address(at.host, 7480),
            bind=at,
            transport=transport,
            peers=self.peers,
            server=self.server,
            clock=clock,
            rng=rng,
            settings=settings,
            space=self.space,
            incarnation=incarnation,
            counters=self.counters,
        )
        self.membership.listen(lambda member, change: self.heard.append((member, change)))

    async def start(self) -> None:
        await self.server.start(self.at)
        await self.membership.start()

    async def close(self) -> None:
        await self.membership.close()
        await self.peers.close()
        await self.server.close()

    def states(self) -> dict[str, str]:
        return {view.name: view.state for view in self.membership.members()}


class World:
    """Sites by name, 200 ms of round trip apart."""

    def __init__(self, loop: VirtualLoop, quality: NetworkQuality) -> None:
        self.clock = loop.clock()
        self.network = SimulatedNetwork(random.Random(1), lambda a, b: ONE_WAY_S, quality)
        self.sites: dict[str, Site] = {}
        self.processes: dict[str, Process] = {}
        self._starts = 0

    def at(self, name: str) -> Address:
        return Address(f"10.0.0.{ord(name) - 96}", 7400)

    async def start(
        self,
        name: str,
        *seeds: str,
        called: str = "",
        instance: str = "",
        incarnation: int = 1,
        cluster: str = "sbon",
        replace: bool = False,
    ) -> Site:
        self._starts += 1
        self.processes[name] = process = Process(f"{name}#{self._starts}")
        transport = self.network.transport(process, name, self.at(name).host)
        called = called or name
        who = Identity(cluster, called, instance or f"i-{called}")
        site = Site(transport, self.clock, self.at(name), who, incarnation, MembershipSettings(replace=replace))
        self.sites[name] = site

        async def begin() -> None:
            await site.start()
            if seeds:
                await site.membership.join([self.at(seed) for seed in seeds])

        await process.start(begin())
        return site

    async def cluster(self, names: str) -> list[Site]:
        return [await self.start(name, *([names[0]] if name != names[0] else [])) for name in names]

    async def until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Seconds until it holds."""
        began = self.clock.now()
        while not condition():
            assert self.clock.now() - began < within_s, {n: s.states() for n, s in self.sites.items()}
            await asyncio.sleep(0.1)
        return self.clock.now() - began

    async def close(self) -> None:
        for name, site in self.sites.items():
            if self.processes[name].alive:
                await self.processes[name].start(site.close())


def in_virtual_time(body: Callable[[World], Coroutine[Any, Any, None]], quality: NetworkQuality | None = None) -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        world = World(loop, quality or NetworkQuality(jitter=0.0, spike=0.0))
        await body(world)
        await world.close()
        assert loop.unhandled == []

    run(main, seed=1, max_time_s=7200)

"""Membership over the network in memory, in virtual time, and once over real sockets."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sbon_node.clock import Clock
from sbon_node.errors import SbonError
from sbon_node.membership.service import Membership
from sbon_node.membership.settings import MembershipSettings
from sbon_node.net.counters import Counters
from sbon_node.net.delays import Delays, DelayTable
from sbon_node.net.emulation import EmulatedTransport
from sbon_node.net.peers import Identity, Peers, PeerServer
from sbon_node.net.settings import NetSettings
from sbon_node.net.sockets import SocketTransport
from sbon_node.net.transport import Address, Transport
from sbon_node.simulation.loop import VirtualLoop, run
from sbon_node.simulation.network import SimulatedNetwork
from sbon_node.simulation.paths import NetworkQuality
from sbon_node.simulation.process import Process
from sbon_node.space.local import LocalCoordinate
from sbon_node.space.settings import SpaceSettings
from sbon_protocol import datagram
from sbon_protocol.messages import Ack, Coordinate, Endpoint, Member, Packet, Ping
from tests.addresses import own_host

ONE_WAY_S = 0.1
LATE_S = 0.2
"""For so long a process stands still: what it measured meanwhile is not believed."""
NET = NetSettings(connect_timeout_s=2.0)


class Site:
    """One node's net, space and membership."""

    def __init__(
        self, transport: Transport, clock: Clock, at: Address, name: str, instance: str, incarnation: int, cluster: str
    ) -> None:
        who = Identity(cluster, name, instance)
        self.at, self.counters = at, Counters(clock.now)
        self.peers = Peers(transport, clock, who, NET, self.counters)
        self.server = PeerServer(transport, clock, who, NET, self.counters)
        rng = random.Random(f"{name}/{incarnation}")
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
            settings=MembershipSettings(),
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
        self, name: str, *seeds: str, called: str = "", instance: str = "", incarnation: int = 1, cluster: str = "sbon"
    ) -> Site:
        self._starts += 1
        self.processes[name] = process = Process(f"{name}#{self._starts}")
        transport = self.network.transport(process, name, self.at(name).host)
        called = called or name
        site = Site(transport, self.clock, self.at(name), called, instance or f"i-{called}", incarnation, cluster)
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


def test_nodes_that_join_through_one_know_each_other_and_measure_the_way() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abcdef")
        await world.until(lambda: all(len(s.membership.alive()) == 5 for s in sites), 5)
        await asyncio.sleep(30)
        for site in sites:
            views = site.membership.members()
            assert [v.name for v in views] == list("abcdef")
            assert {v.state for v in views} == {"alive"}
            for view in views:
                assert view.rtt_ms == pytest.approx(0.0 if view.name == site.membership.own_name else 200.0)
                assert view.address == world.at(view.name)
                assert view.coordinate is not None
            assert {change for _, change in site.heard} == {"joined"}
            assert site.counters.snapshot() == {}
        moved = sites[0].membership.coordinate_of("b")
        assert moved is not None
        assert moved.vector != (0.0, 0.0, 0.0)

    in_virtual_time(body)


def test_a_killed_node_is_found_and_comes_back_with_a_higher_incarnation() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abcdef")
        await asyncio.sleep(20)
        world.processes["d"].kill()
        rest = [s for s in sites if s.at != world.at("d")]
        assert await world.until(lambda: all(s.states()["d"] == "dead" for s in rest), 15) < 12
        with pytest.raises(SbonError) as refused:
            rest[0].membership.address_of("d")
        assert refused.value.code == "node-away"
        assert all(("d", "suspected") in s.heard and ("d", "died") in s.heard for s in rest)
        back = await world.start("d", "b", incarnation=1)
        await world.until(lambda: all(s.states()["d"] == "alive" for s in rest), 10)
        assert [rest[0].membership.address_of("d"), len(back.membership.alive())] == [world.at("d"), 5]
        found = rest[0].membership.get("d")
        assert found is not None
        assert found.incarnation > 1
        assert all(s.heard[-1] == ("d", "returned") for s in rest)

    in_virtual_time(body)


@pytest.mark.parametrize("way, state, change", [("leave", "left", "left"), ("go_away", "away", "went-away")])
def test_leaving_and_going_away_are_known_at_once_and_for_long(way: str, state: str, change: str) -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abcd")
        await asyncio.sleep(10)
        gone, rest = sites[2], [*sites[:2], sites[3]]
        await world.processes["c"].start(getattr(gone.membership, way)())
        world.processes["c"].kill()
        await world.until(lambda: all(s.states()["c"] == state for s in rest), 1)
        await asyncio.sleep(120)
        assert all(s.states()["c"] == state for s in rest)
        assert all([c for n, c in s.heard if n == "c"] == ["joined", change] for s in rest)
        await world.start("c", "a", incarnation=2)
        await world.until(lambda: all(s.states()["c"] == "alive" for s in rest), 5)

    in_virtual_time(body)


def test_a_partition_heals_without_seeds() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abcd")
        await asyncio.sleep(10)
        world.network.partition(("a", "b"), ("c", "d"))
        await world.until(lambda: all(sorted(s.states().values()) == ["alive"] * 2 + ["dead"] * 2 for s in sites), 40)
        world.network.heal()
        await world.until(lambda: all(set(s.states().values()) == {"alive"} for s in sites), 180)

    in_virtual_time(body)


def test_who_is_reached_over_tcp_alone_is_not_taken_for_dead() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abcd")
        await asyncio.sleep(10)
        world.network.quality = NetworkQuality(loss=1.0)
        await asyncio.sleep(60)
        assert not [event for site in sites for event in site.heard if event[1] == "died"]
        assert all(site.counters.snapshot()["reached-by-tcp-only"] for site in sites)
        world.network.quality = NetworkQuality()
        await world.until(lambda: all(set(s.states().values()) == {"alive"} for s in sites), 30)

    in_virtual_time(body)


def test_a_node_that_starts_again_elsewhere_is_found_there_before_anybody_misses_it() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abcd")
        await asyncio.sleep(10)
        world.processes["d"].kill()
        await world.start("e", "a", called="d", incarnation=2)
        await world.until(lambda: all(s.membership.address_of("d") == world.at("e") for s in sites[:3]), 3)
        assert all(s.states()["d"] == "alive" and s.membership.rtt_ms("d") is None for s in sites[1:3])
        await asyncio.sleep(30)
        assert not [event for site in sites[:3] for event in site.heard if event[1] == "died"]
        assert all(s.membership.rtt_ms("d") == pytest.approx(200.0) for s in sites[:3])

    in_virtual_time(body)


def test_what_a_node_says_of_itself_is_known_to_all() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abc")
        sites[2].membership.describe(cores=4.0, memory_mb=8000.0, bandwidth_bytes_s=1e6)
        await world.until(lambda: all(_cores(s, "c") == 4.0 for s in sites), 5)
        assert [_cores(s, "b") for s in sites] == [0.0] * 3
        assert {s.membership.get("c").traits.memory_mb for s in sites} == {8000.0}  # type: ignore[union-attr]

    in_virtual_time(body)


def _cores(site: Site, name: str) -> float:
    view = site.membership.get(name)
    assert view is not None
    return view.traits.cores


def test_nobody_dies_of_bad_weather() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abcdef")
        await asyncio.sleep(600)
        assert not [event for site in sites for event in site.heard if event[1] == "died"]

    in_virtual_time(body, NetworkQuality(jitter=0.2, loss=0.1, duplicate=0.05, spike=0.01))


@pytest.mark.parametrize(
    "joiner, seeds, code",
    [
        ({"called": "a", "instance": "i-other"}, "a", "name-taken"),
        ({"called": "b", "instance": "i-other"}, "a", "name-taken"),
        ({"cluster": "elsewhere"}, "a", "wrong-cluster"),
        ({}, "xy", "join-failed"),
    ],
)
def test_who_may_not_join_is_told_why(joiner: dict[str, str], seeds: str, code: str) -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("ab")
        await asyncio.sleep(2)
        with pytest.raises(SbonError) as refused:
            await world.start("d", *seeds, **joiner)  # type: ignore[arg-type]
        assert refused.value.code == code
        if code == "join-failed":
            assert [line.split(": ")[0] for line in refused.value.details] == [str(world.at("x")), str(world.at("y"))]
        assert [list(s.states()) for s in sites] == [["a", "b"]] * 2

    in_virtual_time(body)


def test_the_name_of_a_dead_node_passes_to_the_next_instance() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abc")
        world.processes["c"].kill()
        await world.until(lambda: all(s.states()["c"] == "dead" for s in sites[:2]), 15)
        await world.start("d", "a", called="c", instance="i-new")
        await world.until(lambda: all(s.states()["c"] == "alive" for s in sites[:2]), 5)
        assert [s.membership.address_of("c") for s in sites[:2]] == [world.at("d")] * 2

    in_virtual_time(body)


def test_a_dead_seed_is_passed_over_and_one_that_is_oneself_founds_a_cluster() -> None:
    async def body(world: World) -> None:
        first = await world.start("a", "a")
        assert first.states() == {"a": "alive"}
        second = await world.start("b", "x", "b", "a")
        assert list(second.states()) == ["a", "b"]

    in_virtual_time(body)


def test_what_no_node_would_send_is_counted_and_dropped() -> None:
    absurd = Coordinate((1e300, 0.0, 0.0))
    liar = Member("liar", Endpoint("10.0.0.9", 1), Endpoint("10.0.0.9", 1), 2**60, "alive")
    impostor = Member("b", Endpoint("10.0.0.9", 1), Endpoint("10.0.0.9", 1), 9, "alive", None, 0, "i-other")
    cases = {
        "datagram-malformed": b"not ours",
        "datagram-wrong-cluster": datagram.pack(Packet("elsewhere", Ping(1, "b", "a"))),
        "coordinate-refused": datagram.pack(Packet("sbon", Ack(77, "b", absurd, 9**9))),
        "coordinate-stale": datagram.pack(Packet("sbon", Ack(78, "b", Coordinate((0.0, 0.0, 0.0)), 0))),
        "incarnation-refused": datagram.pack(Packet("sbon", None, (liar,))),
        "name-conflict": datagram.pack(Packet("sbon", None, (impostor,))),
    }

    async def body(world: World) -> None:
        a, _ = await world.cluster("ab")
        await asyncio.sleep(20)
        before = a.membership.members()
        stranger = await world.network.transport(Process("x#1"), "x", "10.0.0.24").open_datagrams(
            Address("10.0.0.24", 7400), lambda *_: None
        )
        for payload in cases.values():
            stranger.send(payload, world.at("a"))
        await asyncio.sleep(0.2)
        assert a.counters.snapshot() == dict.fromkeys(sorted(cases), 1)
        after = a.membership.members()
        assert [(m.name, m.address, m.incarnation, m.state) for m in after] == [
            (m.name, m.address, m.incarnation, m.state) for m in before
        ]

    in_virtual_time(body)


def test_a_listener_that_fails_harms_nobody_else() -> None:
    async def body(world: World) -> None:
        first = await world.start("a")

        def fail(name: str, change: str) -> None:
            raise RuntimeError(change)

        first.membership.listen(fail)
        await world.start("b", "a")
        await asyncio.sleep(5)
        assert first.heard == [("b", "joined")]
        assert first.membership.rtt_ms("b") == pytest.approx(200)

    in_virtual_time(body)


def test_unknown_nodes_are_named() -> None:
    async def body(world: World) -> None:
        site = await world.start("a")
        with pytest.raises(SbonError) as refused:
            site.membership.address_of("nobody")
        assert refused.value.code == "unknown-node"
        assert site.membership.get("nobody") is None

    in_virtual_time(body)


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(1500):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("never came true")


async def test_two_nodes_over_real_sockets() -> None:
    clock = Clock.real()
    sites: list[Site] = []
    try:
        for number, name in enumerate("ab", start=1):
            transport = SocketTransport(clock, NET, Counters(clock.now))
            at = Address(own_host(number), 4700)
            site = Site(transport, clock, at, name, f"i-{name}", 1, "sbon")
            sites.append(site)
            await site.start()
        a, b = sites
        assert await b.membership.join([a.at]) == 2
        await _until(lambda: a.membership.rtt_ms("b") is not None and b.membership.rtt_ms("a") is not None)
        rtt_ms = b.membership.rtt_ms("a")
        assert rtt_ms is not None
        assert 0 < rtt_ms < 1000
        await b.membership.leave()
        await _until(lambda: a.states()["b"] == "left")
    finally:
        for site in sites:
            await site.close()


async def test_what_a_process_that_stood_still_has_measured_is_not_believed() -> None:
    """Answers are 100 ms under way, and every other 50 ms the loop stands still for longer than that."""
    clock, counters = Clock.real(), Counters(time.monotonic)
    hosts = [own_host(number) for number in (1, 2)]
    table = DelayTable(sites=dict(zip(hosts, "xy", strict=True)), names=("x", "y"), rtt_ms=((0, 100), (100, 0)), jitter=0.0)
    sites: list[Site] = []
    try:
        for host, name in zip(hosts, "ab", strict=True):
            sockets = SocketTransport(clock, NET, counters, source_host=host)
            transport = EmulatedTransport(sockets, Delays(table), host, clock, random.Random(1), NET, counters)
            sites.append(Site(transport, clock, Address(host, 4705), name, f"i-{name}", 1, "sbon"))
            await sites[-1].start()
        a, b = sites
        await b.membership.join([a.at])
        await _until(lambda: b.membership.rtt_ms("a") is not None)
        while not b.counters.snapshot().get("rtt-under-lag"):
            time.sleep(LATE_S)  # noqa: ASYNC251
            await asyncio.sleep(0.05)
        rtt_ms = b.membership.rtt_ms("a")
        assert rtt_ms is not None
        assert rtt_ms >= 99
    finally:
        for site in sites:
            await site.close()

"""Membership over the network in memory, in virtual time, and once over real sockets."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import pytest

from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.process import Process
from sbon_node.base.clock import Clock
from sbon_node.net.counters import Counters
from sbon_node.net.emulation import Delays, DelayTable, EmulatedTransport
from sbon_node.net.peers import Identity
from sbon_node.net.sockets import SocketTransport
from sbon_node.net.transport import Address
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_protocol import datagram
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Ack, Coordinate, Endpoint, Member, NodeMeta, Packet, Ping
from tests.addresses import own_host
from tests.overlay.membership.sites import LATE_S, NET, Site, World, in_virtual_time


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
        for site, others in zip(sites, ("cd", "cd", "ab", "ab"), strict=True):
            died, returned = (sorted(name for name, heard in site.heard if heard == change) for change in ("died", "returned"))
            assert set(others) <= set(died)
            assert returned == died, "each death is followed by one return"

    in_virtual_time(body)


def test_a_member_reached_over_tcp_alone_is_not_dead() -> None:
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


def test_node_metadata_reaches_all_members() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abc")
        sites[2].membership.describe(NodeMeta({}, 4.0, 8000.0, 1e6))
        await world.until(lambda: all(_cores(s, "c") == 4.0 for s in sites), 5)
        assert [_cores(s, "b") for s in sites] == [0.0] * 3
        assert {s.membership.get("c").meta.memory_mb for s in sites} == {8000.0}  # type: ignore[union-attr]

    in_virtual_time(body)


def _cores(site: Site, name: str) -> float:
    view = site.membership.get(name)
    assert view is not None
    return view.meta.cores


@pytest.mark.one_part_per_commit("clusters of members", parts=6)
def test_bad_weather_kills_no_member() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abcdef")
        await asyncio.sleep(600)
        assert not [event for site in sites for event in site.heard if event[1] == "died"]

    in_virtual_time(body, NetworkQuality(jitter=0.2, loss=0.1, duplicate=0.05, spike=0.01))


def test_impossible_packets_are_counted_and_dropped() -> None:
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


def test_a_failing_listener_harms_no_other() -> None:
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
            site = Site(transport, clock, at, Identity("sbon", name, f"i-{name}"), 1, MembershipSettings())
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


@pytest.mark.one_part_per_commit("clusters of members", parts=6)
async def test_samples_of_a_process_that_stood_still_are_dropped() -> None:
    """Answers take 100 ms, and in every other period of 50 ms the loop stalls for longer than that."""
    clock, counters = Clock.real(), Counters(time.monotonic)
    hosts = [own_host(number) for number in (1, 2)]
    table = DelayTable(sites=dict(zip(hosts, "xy", strict=True)), names=("x", "y"), rtt_ms=((0, 100), (100, 0)), jitter=0.0)
    sites: list[Site] = []
    try:
        for host, name in zip(hosts, "ab", strict=True):
            sockets = SocketTransport(clock, NET, counters, source_host=host)
            transport = EmulatedTransport(sockets, Delays(table), host, clock, random.Random(1), NET, counters)
            who = Identity("sbon", name, f"i-{name}")
            sites.append(Site(transport, clock, Address(host, 4705), who, 1, MembershipSettings()))
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

"""Strangers' rumours about members, and the answers; honest nodes still agree under the same bounds."""

from __future__ import annotations

import asyncio

import pytest

from sbon_lab.simulation.process import Process
from sbon_node.net.peers import Expected, Identity, Peers
from sbon_node.net.transport import Address, ConnectionLostError, DatagramEndpoint
from sbon_node.overlay.membership.detector.instructions import Disputed, Happened, Refused, Send
from sbon_node.overlay.membership.detector.swim import Swim
from sbon_node.overlay.membership.table import MAX_INCARNATION, Table
from sbon_protocol import datagram
from sbon_protocol.calls import AskNode
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import (
    Ack,
    Coordinate,
    CoordinateUpdate,
    Digest,
    Endpoint,
    Member,
    NodeMeta,
    Packet,
    Ping,
    PingRequest,
    Rumour,
    StateUpdate,
    Want,
)
from sbon_protocol.version import VERSION
from tests.overlay.membership.cores import SETTINGS, core, heard, member
from tests.overlay.membership.sites import NET, Site, World, in_virtual_time

ELSEWHERE = Coordinate((900.0, 900.0, 900.0))


class Stranger:
    """An address that no member has, and the datagrams that arrive there."""

    def __init__(self, world: World, host: str = "10.0.0.200") -> None:
        self.at = Address(host, 7400)
        self.got: list[bytes] = []
        self._transport = world.network.transport(Process(f"{host}#1"), host, host)
        self._endpoint: DatagramEndpoint | None = None

    async def open(self) -> Stranger:
        self._endpoint = await self._transport.open_datagrams(self.at, lambda payload, *_: self.got.append(payload))
        return self

    def send(self, payload: bytes, to: Address) -> int:
        assert self._endpoint is not None
        self._endpoint.send(payload, to)
        return len(payload)

    def tell(self, world: World, names: str, *rumours: Rumour) -> int:
        payload, taken = datagram.fill("sbon", None, rumours)
        assert taken == len(rumours)
        return sum(self.send(payload, world.at(name)) for name in names)


def _incarnation(site: Site, name: str) -> int:
    view = site.membership.get(name)
    assert view is not None
    return view.incarnation


@pytest.mark.one_part_per_commit("rumours that take a name", parts=20)
@pytest.mark.parametrize("state", ["dead", "left", "away", "suspect"])
@pytest.mark.parametrize("leap", [1, 1000, MAX_INCARNATION // 2, MAX_INCARNATION - 1, MAX_INCARNATION])
def test_no_datagram_takes_a_name_from_its_node_for_good(state: str, leap: int) -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abcd")
        await asyncio.sleep(10)
        stranger = await Stranger(world).open()
        for round_ in range(3):
            stranger.tell(world, "abcd", StateUpdate("b", min(MAX_INCARNATION, leap + round_), state))  # type: ignore[arg-type]
            await asyncio.sleep(1)
        await world.until(lambda: all(s.states()["b"] == "alive" for s in sites), 60)
        await asyncio.sleep(60)
        assert all(set(s.states().values()) == {"alive"} for s in sites)
        assert _incarnation(sites[0], "b") <= 4 * (SETTINGS.max_leap + 1)
        if leap > 2000:
            assert all(s.counters.snapshot()["rumour-leapt"] for s in sites if s is not sites[1])
        # True rumours about the member still win afterwards.
        world.processes["b"].kill()
        await world.until(lambda: all(s.states()["b"] == "dead" for s in sites if s is not sites[1]), 30)
        await world.start("b", "a", incarnation=2)
        await world.until(lambda: all(s.states()["b"] == "alive" for s in sites if s is not sites[1]), 30)

    in_virtual_time(body)


def test_a_node_that_lived_through_thousands_of_incarnations_apart_is_believed_after_the_partition() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abcd")
        await asyncio.sleep(10)
        world.network.partition(("a", "b"), ("c", "d"))
        await world.until(lambda: all("dead" in s.states().values() for s in sites), 60)
        for cores in range(10 * SETTINGS.max_leap):
            sites[3].membership.describe(NodeMeta({}, float(cores), 1.0, 1.0))
        await asyncio.sleep(10)
        world.network.heal()
        await world.until(lambda: all(set(s.states().values()) == {"alive"} for s in sites), 180)
        await world.until(lambda: all(_incarnation(s, "d") > 10 * SETTINGS.max_leap for s in sites), 60)

    in_virtual_time(body)


@pytest.mark.one_part_per_commit("ways to forget incarnations", parts=2)
@pytest.mark.parametrize("instance", ["i-d", "i-anew"], ids=["restored-from-an-old-copy", "data-directory-lost"])
@pytest.mark.parametrize("behind", [900, 20_000])
def test_a_node_that_has_forgotten_its_incarnations_comes_back(instance: str, behind: int) -> None:
    async def body(world: World) -> None:
        first = [await world.start("a"), await world.start("b", "a"), await world.start("c", "a")]
        await world.start("d", "a", incarnation=behind)
        await world.until(lambda: all(s.states().get("d") == "alive" for s in first), 10)
        world.processes["d"].kill()
        await world.until(lambda: all(s.states()["d"] == "dead" for s in first), 60)
        await world.start("d", "a", instance=instance, incarnation=1, replace=True)
        await world.until(lambda: all(s.states()["d"] == "alive" for s in first), 300)
        await asyncio.sleep(60)
        assert all(set(s.states().values()) == {"alive"} for s in first)

    in_virtual_time(body)


@pytest.mark.one_part_per_commit("versions of forged coordinates", parts=3)
@pytest.mark.parametrize("leap", [1, 900, 2**53])
def test_a_coordinate_that_a_node_did_not_publish_is_refuted(leap: int) -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abc")
        await asyncio.sleep(60)
        own = sites[1].membership.table.own
        stranger = await Stranger(world).open()
        stranger.tell(world, "abc", CoordinateUpdate("b", own.incarnation, ELSEWHERE, own.coordinate_version + leap))

        def agreed() -> bool:
            there = sites[1].membership.coordinate_of("b")
            told = [s.membership.coordinate_of("b") for s in (sites[0], sites[2])]
            return there is not None and all(one is not None and one.distance_ms(there) < 20 + 2 * there.height for one in told)

        await asyncio.sleep(1)
        await world.until(agreed, 30)
        assert sites[1].membership.table.own.coordinate_version > own.coordinate_version
        before = sites[1].membership.table.own.coordinate_version
        await asyncio.sleep(120)
        assert agreed()
        assert all(_version(s, "b") >= before for s in (sites[0], sites[2]))

    in_virtual_time(body)


def _version(site: Site, name: str) -> int:
    row = site.membership.table.get(name)
    assert row is not None
    return row.member.coordinate_version


def test_coordinates_that_moved_thousands_of_times_apart_are_believed_of_the_member_itself() -> None:
    swim = core(others="b")
    place = CoordinateUpdate("b", 1, ELSEWHERE, 10 * SETTINGS.max_leap)
    (refused, asked) = swim.take_rumours((place,), 1.0)
    assert refused == Refused("rumour-leapt", "b")
    assert isinstance(asked, Send)
    assert isinstance(asked.message, Ping)
    swim.received(Ack(asked.message.sequence + 1, "b", ELSEWHERE, place.coordinate_version, 1), asked.to, 1.1)
    assert swim.table.everyone()[1].coordinate_version == 0, "no request for this answer was sent"
    swim.received(Ack(asked.message.sequence, "b", ELSEWHERE, place.coordinate_version, 1), asked.to, 1.2)
    assert swim.table.everyone()[1].coordinate_version == place.coordinate_version


@pytest.mark.parametrize("instance", ["", "i-other"])
def test_a_rumour_without_the_right_instance_moves_no_name(instance: str) -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abc")
        await asyncio.sleep(10)
        stranger = await Stranger(world).open()
        there = Endpoint(*stranger.at)
        own = sites[1].membership.table.own
        stranger.tell(world, "ac", Member("b", there, there, own.incarnation + 1, "alive", None, 0, instance))
        await asyncio.sleep(5)
        assert [s.membership.address_of("b") for s in sites] == [world.at("b")] * 3
        assert all(s.counters.snapshot()["name-conflict"] for s in (sites[0], sites[2]))

    in_virtual_time(body)


def test_no_instance_is_another_instance() -> None:
    swim = core(others="b")
    nameless = Member("b", Endpoint("elsewhere", 1), Endpoint("elsewhere", 1), 2, "alive", None, 0, "")
    assert swim.take_rumours((nameless,), 1.0) == [Disputed("b", nameless.address)]


def test_only_who_answers_a_ping_becomes_a_member() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abc")
        await asyncio.sleep(10)
        stranger = await Stranger(world).open()
        silent = [
            Member(f"x{i}", Endpoint(f"10.9.0.{i}", 7400), Endpoint("10.9.0.9", 1), 1, "alive", None, 0, "i") for i in range(9)
        ]
        for _ in range(20):
            stranger.tell(world, "abc", *silent)
            await asyncio.sleep(0.5)
        assert [list(s.states()) for s in sites] == [["a", "b", "c"]] * 3
        await asyncio.sleep(10)
        assert [len(s.membership._swim.candidates) for s in sites] == [0, 0, 0]
        assert all(s.heard == [] or {name for name, _ in s.heard} <= set("abc") for s in sites)

    in_virtual_time(body)


@pytest.mark.parametrize(
    "answer, joins",
    [
        (Ack(0, "x", None, 0, 1, "i-x"), True),
        (Ack(0, "x", None, 0, 7, "i-x"), True),
        (Ack(0, "x", None, 0, 1, "i-other"), False),
        (Ack(0, "x", None, 0, 1, ""), False),
        (Ack(0, "x", None, 0, 0, "i-x"), False),
        (Ack(0, "y", None, 0, 1, "i-x"), False),
    ],
    ids=["as-rumoured", "a-later-life", "another", "nobody", "an-earlier-life", "another-name"],
)
def test_a_candidate_says_who_it_is(answer: Ack, joins: bool) -> None:
    swim = core()
    one = Member("x", Endpoint("192.0.2.1", 7400), Endpoint("192.0.2.1", 1), 1, "alive", None, 0, "i-x")
    (ping,) = swim.take_rumours((one,), 1.0)
    assert isinstance(ping, Send)
    assert isinstance(ping.message, Ping)
    said = Ack(ping.message.sequence, answer.source, None, 0, answer.incarnation, answer.instance)
    assert swim.received(said, Endpoint("192.0.2.9", 7400), 1.1) == [], "from elsewhere"
    assert swim.received(said, one.address, 1.2) == ([Happened("joined", "x")] if joins else [])


def test_members_at_an_address_are_bounded_and_the_dead_make_room() -> None:
    table = Table(member("a"), 100, most_at_an_address=2)
    source = core()
    swim = Swim(table, source.gossip, SETTINGS, source._rng)

    def at(port: int) -> Member:
        here = Endpoint("192.0.2.1", port)
        return Member(f"x{port}", here, here, 1, "alive", None, 0, f"i-{port}")

    assert heard(swim, at(1), at(2), at(3)) == [Happened("joined", "x1"), Happened("joined", "x2"), Refused("address-full", "x3")]
    table.mark("x1", "dead", 1, 2.0)
    assert heard(swim, at(3), now=3.0) == [Happened("joined", "x3")]
    back = Member("x1", at(1).address, at(1).api, 2, "alive", None, 0, "i-1")
    assert heard(swim, back, now=4.0) == [Refused("address-full", "x1")]


def test_a_node_that_is_reached_as_another_is_not_asked() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("ab")
        who = Identity("sbon", "c", "i-c")
        sites[1].server.on_stream(lambda channel, hello: asyncio.sleep(1))
        process = Process("c#1")

        async def ask() -> None:
            peers = Peers(world.network.transport(process, "c", "10.0.0.3"), world.clock, who, NET, sites[0].counters)
            with pytest.raises(SbonError, match="b is there, not a") as refused:
                await peers.call(world.at("b"), AskNode(cores=1, memory_mb=1, bandwidth_bytes_s=1), expected=Expected("a"))
            assert refused.value.code == "peer-unreachable"
            with pytest.raises(ConnectionLostError, match="b is there, not a"):
                await peers.open_stream(world.at("b"), Expected("a"))
            await peers.close()

        await process.start(ask())
        assert sites[0].counters.snapshot()["wrong-node"] == 2

    in_virtual_time(body)


def _requests(world: World, to: str) -> dict[str, bytes]:
    """Requests that a stranger may send; the shortest ping has 23 bytes."""
    shortest = b"SB" + bytes([VERSION, 0]) + b"\x92\xa4sbon" + b"\x94\xa4ping\x01\xa1x" + b"\xa1" + to.encode()
    bare = {"shortest": shortest}
    asked = {
        "ping": Ping(1, "x", to),
        "identify": Ping(1, "x", to, None, 0, True),
        "padded": Ping(1, "x", to, None, 0, True, bytes(40)),
        "as a member": Ping(1, "b", to),
        "digest": Digest("b", bytes(4)),
        "want": Want("b", ("a", "b", "c")),
        "request": PingRequest(1, "x", "b", Endpoint("10.0.0.200", 7400)),
    }
    return {**bare, **{name: datagram.pack(Packet("sbon", message)) for name, message in asked.items()}}


def test_a_stranger_is_sent_no_more_than_it_sends_and_no_rumours() -> None:
    async def body(world: World) -> None:
        await world.cluster("abcdefgh")
        await asyncio.sleep(1)
        stranger = await Stranger(world).open()
        for name, request in _requests(world, "a").items():
            world.sites["a"].membership.describe(NodeMeta({}, float(len(name)), 1.0, 2.0))
            for other in "bcdefgh":
                world.sites["a"].membership.gossip.spread(world.sites[other].membership.table.own)
            stranger.got.clear()
            sent = stranger.send(request, world.at("a"))
            await asyncio.sleep(1)
            received = sum(map(len, stranger.got))
            assert received <= sent, f"{name}: {sent} bytes in, {received} out"
            packets = [datagram.unpack(payload) for payload in stranger.got]
            assert not any(packet.members or packet.state_updates or packet.coordinate_updates for packet in packets)
            assert all(packet.message is None or getattr(packet.message, "coordinate", None) is None for packet in packets)
            if name == "padded":
                assert [packet.message for packet in packets] == [Ack(1, "a", None, 0, packets[0].message.incarnation, "i-a")]  # type: ignore[union-attr]

    in_virtual_time(body)


def test_a_rumour_sends_no_more_to_the_address_it_names_than_it_weighs() -> None:
    async def body(world: World) -> None:
        await world.cluster("abc")
        await asyncio.sleep(1)
        victim, stranger = await Stranger(world, "10.0.0.201").open(), await Stranger(world).open()
        at = Endpoint(*victim.at)
        sent = 0
        for turn in range(20):
            named = [Member(f"{turn}-{i}", at, at, 1, "alive", None, 0, "i") for i in range(20)]
            sent += stranger.tell(world, "abc", *named)
            await asyncio.sleep(0.3)
        await asyncio.sleep(20)
        assert sum(map(len, victim.got)) <= sent
        assert victim.got

    in_virtual_time(body)

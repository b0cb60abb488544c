"""Tables that differ agree after some rounds of datagrams; the dead are doubted, not believed."""

from __future__ import annotations

import random

import msgspec
import pytest

from sbon_node.overlay.membership.detector.instructions import Instruction, Send
from sbon_node.overlay.membership.detector.swim import Swim
from sbon_node.overlay.membership.dissemination.gossip import CoordinateThrottle, GossipQueue
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.membership.table import Fingerprints, Roster, Table
from sbon_protocol import datagram
from sbon_protocol.messages import Coordinate, CoordinateUpdate, Digest, Endpoint, Gossip, Member, Ping, Rumour, StateUpdate
from tests.overlay.membership.cores import heard

SETTINGS = MembershipSettings()


def address(name: str) -> Endpoint:
    return Endpoint(f"host-{name}", 7400)


def member(name: str, version: int = 1, incarnation: int = 1) -> Member:
    place = Coordinate((float(version), 0.0, 0.0))
    return Member(name, address(name), address(name), incarnation, "alive", place, version, f"i-{name}")


def core(name: str, others: list[Member], most: int = 4000) -> Swim:
    swim = Swim(Table(member(name), most), GossipQueue(1.0), SETTINGS, random.Random(name))
    for other in others:
        swim.table.hear(other, 0.0)
    return swim


def deliver(to: Swim, source: Swim, message: Gossip | None, rumours: tuple[Rumour, ...]) -> list[Instruction]:
    """Through real datagrams, as many as it takes."""
    out: list[Instruction] = []
    while True:
        payload, taken = datagram.fill("c", message, rumours)
        packet = datagram.unpack(payload)
        out += heard(to, *packet.members, *packet.state_updates, *packet.coordinate_updates)
        if packet.message is not None:
            out += to.received(packet.message, address(source.table.own.name), 1.0)
        message, rumours = None, rumours[taken:]
        if not rumours:
            return out


def reconcile(a: Swim, b: Swim) -> int:
    """One round, opened by a; returns the number of answers."""
    answers = 0
    waiting = [(b, a, Digest(a.table.own.name, a.table.fingerprints.digest()), ())]
    while waiting:
        to, source, message, rumours = waiting.pop()  # type: ignore[var-annotated]
        for one in deliver(to, source, message, rumours):
            if isinstance(one, Send) and one.to == address(source.table.own.name):
                answers += 1
                first = () if one.first is None else (one.first,)
                waiting.append((source, to, one.message, (*first, *one.carries)))  # type: ignore[arg-type]
    return answers


def known(swim: Swim) -> dict[str, tuple[int, str, int]]:
    return {m.name: (m.incarnation, m.state, m.coordinate_version) for m in swim.table.everyone()}


@pytest.mark.parametrize("count, differing", [(10, 3), (300, 40), (300, 300), (2000, 100)])
def test_tables_that_differ_agree_after_some_rounds(count: int, differing: int) -> None:
    rng = random.Random(count)
    everyone = [member(f"node-{i:04d}") for i in range(count)]
    a, b = core("a", [*everyone, member("b")]), core("b", [*everyone, member("a")])
    for one in rng.sample(everyone, differing):
        newer, which = rng.choice([a, b]), rng.random()
        if which < 0.4:
            newer.table.coordinate_update(one.name, 1, Coordinate((9.0, 0.0, 0.0)), 9, 1.0)
        elif which < 0.7:
            newer.take_rumours((msgspec.structs.replace(one, incarnation=2, address=Endpoint("elsewhere", 1)),), 1.0)
        elif which < 0.85:
            newer.take_rumours((StateUpdate(one.name, 1, "left"),), 1.0)
        else:
            newer.take_rumours((StateUpdate(one.name, 1, "away"),), 1.0)
    rounds = 0
    while known(a) != known(b):
        rounds += 1
        assert reconcile(a, b)
        a, b = b, a
        assert rounds <= 2 + differing // 5
    assert reconcile(a, b) == 0
    assert a.table.get("node-0000").member.address == b.table.get("node-0000").member.address  # type: ignore[union-attr]


def test_a_member_that_only_one_table_has_is_exchanged() -> None:
    a, b = core("a", [member("b"), member("x")]), core("b", [member("a"), member("y")])
    reconcile(a, b)
    assert set(known(a)) == set(known(b)) == {"a", "b", "x", "y"}


@pytest.mark.parametrize("at", ["a", "b"])
def test_one_that_a_side_holds_for_dead_is_asked_and_not_believed_dead(at: str) -> None:
    cores = {"a": core("a", [member("b"), member("x")]), "b": core("b", [member("a"), member("x")])}
    cores[at].take_rumours((StateUpdate("x", 1, "dead"),), 0.5)
    asked: list[Send] = []
    digest = Digest("a", cores["a"].table.fingerprints.digest())
    (answer,) = deliver(cores["b"], cores["a"], digest, ())
    assert isinstance(answer, Send)
    for one in deliver(cores["a"], cores["b"], answer.message, answer.carries):
        if isinstance(one, Send) and isinstance(one.message, Ping):
            asked.append(one)
    assert [(one.to, one.first) for one in asked] == [(address("x"), StateUpdate("x", 1, "dead"))]
    assert known(cores["a"])["x"][1] == ("dead" if at == "a" else "alive")
    assert known(cores["b"])["x"][1] == ("dead" if at == "b" else "alive")


def test_tombstones_that_only_one_side_has_are_no_difference() -> None:
    a, b = core("a", [member("b"), member("x")]), core("b", [member("a")])
    a.take_rumours((StateUpdate("x", 1, "dead"),), 0.5)
    assert reconcile(a, b) == 0


def test_strangers_and_senders_from_elsewhere_get_no_members() -> None:
    a = core("a", [member("b"), member("x")])
    nothing = Fingerprints().fold(1)
    assert a.received(Digest("stranger", nothing), address("stranger"), 1.0) == []
    assert a.received(Digest("b", nothing), address("elsewhere"), 1.0) == []
    assert a.received(Digest("b", b"123"), address("b"), 1.0) == []
    assert len(a.received(Digest("b", nothing), address("b"), 1.0)) == 1


def test_fingerprints_do_not_depend_on_the_way_a_table_came_about() -> None:
    one, other = Fingerprints(), Fingerprints()
    for i in range(50):
        one.put(member(f"n{i}"))
    one.digest()
    for i in reversed(range(60)):
        other.put(member(f"n{i}", version=7))
    other.digest()
    for i in range(60):
        other.put(member(f"n{i}")) if i < 50 else other.drop(f"n{i}")
    assert one.digest() == other.digest()
    other.put(member("n7", version=2))
    assert len(one.differing(other.digest())) == 1


def test_a_roster_draws_everyone_alike() -> None:
    roster, rng = Roster(), random.Random(1)
    for i in range(12):
        roster.add(f"n{i}")
    roster.discard("n0")
    roster.discard("n11")
    drawn = [name for _ in range(3000) for name in roster.sample(rng, 3)]
    counts = [drawn.count(f"n{i}") for i in range(12)]
    assert counts[0] == counts[11] == 0
    assert min(counts[1:11]) > 750
    assert sorted(roster.sample(rng, 99)) == sorted(roster.names())


def test_a_coordinate_is_published_often_at_first_and_then_as_the_cluster_allows() -> None:
    announcements = CoordinateThrottle(MembershipSettings(coordinate_step_ms=2.0, coordinate_pause_s=0.4))
    told = [s for s in range(1000) if announcements.due(Coordinate((float(5 * s), 0.0)), float(s), 200)]
    assert told[:6] == [0, 1, 2, 4, 8, 16]
    assert told[-1] - told[-2] == 80
    assert not announcements.due(Coordinate((5.0 * told[-1] + 1.9, 0.0)), 5000.0, 200)
    assert announcements.due(Coordinate((5.0 * told[-1], 2.1)), 5000.0, 200)


@pytest.mark.parametrize("load_ms", [1000.0, 20.0])
def test_a_sudden_change_of_load_is_published_at_once_and_at_the_cost_of_the_next(load_ms: float) -> None:
    announcements = CoordinateThrottle(MembershipSettings(coordinate_step_ms=2.0, coordinate_pause_s=0.4))
    told = [s for s in range(4000) if announcements.due(Coordinate((0.0, 0.0), load=load_ms * (s % 20 >= 10)), float(s), 200)]
    late = [s for s in told if s >= 1000]
    assert 30 <= len(late) <= 3000 / 80 + 1, "at most one in 80 s for 200 members, whatever changes"
    calm = CoordinateThrottle(MembershipSettings(coordinate_step_ms=2.0, coordinate_pause_s=0.4))
    told = [s for s in range(1000) if calm.due(Coordinate((float(5 * s), 0.0)), float(s), 200)]
    changed = [s for s in range(1000, 1300) if calm.due(Coordinate((5.0 * s, 0.0), load=load_ms), float(s), 200)]
    assert (changed[0] == 1000) == (load_ms >= 25)
    assert changed[1] - changed[0] > 80 or load_ms < 25, "the next publication is the later for it"
    assert 1000 - told[-1] < 80


def test_a_coordinate_of_another_incarnation_or_older_version_has_no_effect() -> None:
    a = core("a", [member("x", version=3)])
    for place in (
        CoordinateUpdate("x", 1, Coordinate((8.0,)), 2),
        CoordinateUpdate("x", 2, Coordinate((8.0,)), 9),
        CoordinateUpdate("y", 1, Coordinate((8.0,)), 9),
    ):
        a.take_rumours((place,), 1.0)
    assert known(a) == {"a": (1, "alive", 1), "x": (1, "alive", 3)}

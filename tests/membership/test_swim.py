"""SWIM's pure core: instructions by table, and eight cores on a toy network that is the same in every run."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import msgspec
import pytest

from sbon_node.membership.gossip import GossipQueue
from sbon_node.membership.instructions import Call, Disputed, Happened, Instruction, Measured, Send
from sbon_node.membership.settings import MembershipSettings
from sbon_node.membership.suspicion import Suspicions
from sbon_node.membership.swim import Swim
from sbon_node.membership.table import MAX_INCARNATION, Table
from sbon_protocol.messages import Ack, Coordinate, Endpoint, Finding, Member, MemberState, Nack, Ping, PingRequest, Rumour

SETTINGS = MembershipSettings()


def address(name: str) -> Endpoint:
    return Endpoint(f"host-{name}", 7400)


def member(name: str, state: MemberState = "alive", incarnation: int = 1, *, version: int = 0, instance: str = "") -> Member:
    place = Coordinate((float(version), 0.0, 0.0))
    return Member(name, address(name), address(name), incarnation, state, place, version, instance or f"i-{name}")


def core(name: str = "a", others: str = "", *, incarnation: int = 1, most: int = 100, seed: int = 1) -> Swim:
    table = Table(member(name, incarnation=incarnation), most)
    swim = Swim(table, GossipQueue(SETTINGS.retransmit_margin), SETTINGS, random.Random(f"{seed}/{name}"))
    swim.heard(tuple(member(other) for other in others), 0.0)
    for other in others:
        swim.gossip.forget(other)
    return swim


# -- which rumour wins ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "known, rumour, change, left_with",
    [
        (("alive", 1), ("suspect", 1), "suspected", ("suspect", 1)),
        (("suspect", 1), ("alive", 1), "", ("suspect", 1)),
        (("suspect", 1), ("alive", 2), "updated", ("alive", 2)),
        (("alive", 2), ("suspect", 1), "", ("alive", 2)),
        (("alive", 2), ("dead", 1), "", ("alive", 2)),
        (("alive", 2), ("left", 1), "", ("alive", 2)),
        (("suspect", 1), ("away", 1), "went-away", ("away", 1)),
        (("away", 1), ("suspect", 1), "", ("away", 1)),
        (("away", 1), ("alive", 2), "returned", ("alive", 2)),
        (("away", 1), ("suspect", 2), "returned", ("suspect", 2)),
        (("alive", 1), ("dead", 1), "died", ("dead", 1)),
        (("dead", 1), ("left", 1), "left", ("left", 1)),
        (("left", 1), ("dead", 1), "", ("left", 1)),
        (("dead", 1), ("alive", 1), "", ("dead", 1)),
        (("dead", 1), ("alive", 2), "returned", ("alive", 2)),
        (("left", 3), ("alive", 4), "returned", ("alive", 4)),
        (("alive", 1), ("alive", MAX_INCARNATION + 1), "", ("alive", 1)),
    ],
)
def test_which_rumour_wins(
    known: tuple[MemberState, int], rumour: tuple[MemberState, int], change: str, left_with: tuple[MemberState, int]
) -> None:
    swim = core(others="b")
    swim.table.hear(member("b", "alive", known[1]), 0.0)
    swim.table.mark("b", known[0], known[1], 0.0)
    assert swim.heard((member("b", *rumour),), 1.0) == ([Happened(change, "b")] if change else [])  # type: ignore[arg-type]
    row = swim.table.get("b")
    assert row is not None
    assert (row.member.state, row.member.incarnation) == left_with


@pytest.mark.parametrize(
    "rumour, incarnation, answer",
    [
        (member("a", "suspect", 5), 6, []),
        (member("a", "dead", 7), 8, []),
        (member("a", "suspect", 4), 5, []),
        (member("a", "alive", 5), 5, []),
        (member("a", "alive", 9), 10, []),
        (member("a", "alive", 5, version=50), 6, []),
        (member("a", "dead", 7, instance="i-before"), 8, []),
        (member("a", "alive", 7, instance="i-other"), 5, [Disputed("a", address("a"))]),
        (member("a", "suspect", MAX_INCARNATION + 1), 5, []),
    ],
    ids=["suspected", "dead", "stale", "present", "earlier-life", "earlier-moves", "heir", "impostor", "absurd"],
)
def test_what_is_said_of_oneself_is_outbid(rumour: Member, incarnation: int, answer: list[Instruction]) -> None:
    swim = core(incarnation=5)
    assert swim.heard((rumour,), 1.0) == answer
    assert swim.table.own.incarnation == incarnation
    assert [m.incarnation for m in swim.gossip.due()] == ([incarnation] if incarnation != 5 else [])


@pytest.mark.parametrize("state, free", [("alive", False), ("suspect", False), ("away", False), ("dead", True), ("left", True)])
def test_a_name_is_free_once_its_node_is_dead_or_has_left(state: MemberState, free: bool) -> None:
    swim = core(others="b")
    swim.table.mark("b", state, 1, 0.0)
    heir = member("b", incarnation=2, instance="i-heir")
    assert swim.table.conflicts(heir) is not free
    assert swim.heard((heir,), 1.0) == ([Happened("returned", "b")] if free else [Disputed("b", address("b"))])


def test_coordinates_go_by_their_own_version_and_start_over_with_a_life() -> None:
    swim = core(others="b")
    swim.heard((member("b", version=5), member("b", version=3)), 1.0)
    assert swim.table.everyone()[1].coordinate_version == 5
    swim.heard((msgspec.structs.replace(member("b", "suspect"), coordinate=None), member("b", version=4)), 1.5)
    assert swim.table.everyone()[1].coordinate == Coordinate((5.0, 0.0, 0.0))
    swim.heard((member("b", incarnation=2, version=1),), 2.0)
    assert swim.table.everyone()[1].coordinate_version == 1


def test_the_table_is_bounded_and_tombstones_make_room() -> None:
    swim = core(most=2)
    assert swim.heard((member("b"), member("c"), member("d")), 0.0) == [Happened("joined", "b"), Happened("joined", "c")]
    swim.table.mark("b", "dead", 1, 1.0)
    assert swim.heard((member("d"),), 2.0) == [Happened("joined", "d")]
    assert swim.table.get("b") is None


def test_the_dead_are_not_taken_in_and_are_forgotten_in_the_end() -> None:
    swim = core(others="b")
    assert swim.heard((member("x", "dead"), member("y", "left")), 0.0) == []
    swim.table.mark("b", "dead", 1, 10.0)
    assert swim.table.expire(10.0 + SETTINGS.tombstone_s, SETTINGS.tombstone_s) == []
    assert swim.table.expire(10.1 + SETTINGS.tombstone_s, SETTINGS.tombstone_s) == ["b"]


# -- rumours on their way ---------------------------------------------------------------------------------------------


def test_the_least_sent_rumour_goes_first_and_none_for_ever() -> None:
    queue = GossipQueue(0.5)
    queue.spread(member("b"))
    assert queue.limit(7) == 3
    queue.sent(queue.due(), 7)
    queue.spread(member("c"))
    assert [m.name for m in queue.due()] == ["c", "b"]
    for _ in range(3):
        queue.sent(queue.due(), 7)
    assert queue.due() == []


def test_a_newer_rumour_of_a_node_starts_again_and_an_old_copy_does_not_count() -> None:
    queue = GossipQueue(0.5)
    old, new = member("b"), member("b", "suspect")
    queue.spread(old)
    queue.spread(new)
    for _ in range(9):
        queue.sent([old], 7)
    assert queue.due() == [new]


TIMES = MembershipSettings(suspicion_min_s=2.0, suspicion_max_factor=4.0, suspicion_confirmations=3, gossip_interval_s=0.25)


@pytest.mark.parametrize(
    "confirmations, witness, members, expected_s",
    [
        (0, True, 1000, 8.0),
        (1, True, 1000, 5.0),
        (3, True, 1000, 2.0),
        (9, True, 1000, 2.0),
        (3, False, 1023, 2.0 + 5.0),
        (3, False, 3, 2.0 + 1.0),
    ],
)
def test_the_time_to_refute_shrinks_with_confirmations_and_is_longer_for_hearsay(
    confirmations: int, witness: bool, members: int, expected_s: float
) -> None:
    assert Suspicions(TIMES).timeout_s(confirmations, witness=witness, members=members) == pytest.approx(expected_s)


def test_nobody_confirms_twice_and_the_time_to_refute_rests_while_we_do() -> None:
    suspicions = Suspicions(TIMES)
    assert suspicions.begin("b", 1, 10.0, ["x"], witness=True)
    assert not suspicions.begin("b", 1, 11.0, ["x"])
    assert suspicions.expired(9, 14.9) == []
    assert suspicions.begin("b", 1, 12.0, ["y", "z"])
    assert not suspicions.begin("b", 1, 12.0, ["one-too-many"])
    assert suspicions.expired(9, 12.1) == [("b", 1)]
    suspicions.pause(5.0)
    assert suspicions.expired(9, 16.9) == []
    assert suspicions.begin("b", 2, 20.0, ["x"])
    assert suspicions.expired(9, 24.0) == []


# -- what is sent -----------------------------------------------------------------------------------------------------


def sent(out: list[Instruction]) -> list[tuple[Endpoint, object]]:
    return [(i.to, i.message) for i in out if isinstance(i, Send)]


def only_this(swim: Swim) -> None:
    """No probe in turn, and no reconciliation, disturbs what the test has begun."""
    swim._ticked = 0.0
    swim._next_probe = swim._next_sync = 1e9


def test_a_ping_is_answered_unless_it_is_for_somebody_else() -> None:
    swim, own = core(others="b"), member("a")
    place = Coordinate((9.0, 0.0, 0.0))
    assert swim.received(Ping(7, "b", "a", place, 4), address("b"), 1.0) == [
        Send(address("b"), Ack(7, "a", own.coordinate, own.coordinate_version))
    ]
    assert swim.table.everyone()[1].coordinate == place
    assert swim.received(Ping(8, "b", "z"), address("b"), 1.0) == []


@pytest.mark.parametrize("nacks", [0, 1, 3])
def test_an_unanswered_probe_is_taken_up_by_others_then_suspected_then_dead(nacks: int) -> None:
    swim = core(others="bcdef")
    (probe,) = swim.ping("b", 0.0)
    assert isinstance(probe, Send)
    assert (probe.to, probe.timed, probe.first) == (address("b"), True, None)
    only_this(swim)
    assert swim.tick(0.4) == []
    asked = sent(swim.tick(0.5))
    assert len(asked) == 3
    assert {to for to, _ in asked} < {address(n) for n in "cdef"}
    assert all(message == PingRequest(probe.message.sequence, "a", "b", address("b")) for _, message in asked)
    helpers = [to.host.removeprefix("host-") for to, _ in asked]
    assert swim.tick(0.9) == []
    (call,) = swim.tick(1.0)
    assert isinstance(call, Call)
    assert call.member.name == "b"
    for helper in helpers[:nacks]:
        swim.received(Nack(probe.message.sequence, helper), address(helper), 1.2)
    suspected = swim.tick(1.5)
    assert suspected[0] == Happened("suspected", "b")
    buddy = Finding("b", 1, "suspect")
    assert [i.message.target for i in suspected if isinstance(i, Send) and i.first == buddy and isinstance(i.message, Ping)] == [
        "b"
    ]
    assert Finding("b", 1, "suspect", "a") in swim.gossip.due()
    assert swim.awareness.score == 3 - nacks
    limit_s = Suspicions(SETTINGS).timeout_s(nacks, witness=True, members=6)
    waiting = [i for tick in range(16, round((1.5 + limit_s) * 10)) for i in swim.tick(tick / 10)]
    assert not [i for i in waiting if isinstance(i, Happened)]
    insisted = [i for i in waiting if isinstance(i, Send) and isinstance(i.message, Ping) and i.first == buddy]
    assert len(insisted) == pytest.approx(limit_s / SETTINGS.insist_s, abs=2)
    assert Happened("died", "b") in swim.tick(1.6 + limit_s)


@pytest.mark.parametrize(
    "at_s, source, sender, expected",
    [
        (0.1, "b", "b", True),
        (0.9, "b", "b", True),
        (0.9, "b", "c", False),
        (0.1, "c", "c", None),
    ],
    ids=["in-time", "late-but-direct", "relayed", "somebody-else"],
)
def test_an_answer_ends_the_probe_and_is_a_measurement_if_direct(
    at_s: float, source: str, sender: str, expected: bool | None
) -> None:
    swim = core(others="bcd")
    (probe,) = swim.ping("b", 0.0)
    assert isinstance(probe, Send)
    only_this(swim)
    swim.tick(0.05)
    if at_s > SETTINGS.probe_timeout_s:
        swim.tick(0.7)
    out = swim.received(Ack(probe.message.sequence, source), address(sender), at_s)
    assert out == ([Measured("b", probe.message.sequence)] if expected else [])
    later = [i for tick in range(1, 25) for i in swim.tick(at_s + tick / 10) if isinstance(i, Happened)]
    assert later == ([Happened("suspected", "b")] if expected is None else [])


@pytest.mark.parametrize(
    "host, sender, asked, measured",
    [
        ("192.0.2.2", "192.0.2.2", False, True),
        ("192.0.2.2", "192.0.2.9", False, False),
        ("b.example.org", "192.0.2.2", False, True),
        ("b.example.org", "192.0.2.9", True, False),
    ],
    ids=["as-announced", "another-address", "announced-by-name", "by-name-and-perhaps-relayed"],
)
def test_who_is_announced_by_a_name_is_measured_too(host: str, sender: str, asked: bool, measured: bool) -> None:
    swim = core(others="cd")
    swim.heard((msgspec.structs.replace(member("b"), address=Endpoint(host, 7400)),), 0.0)
    (probe,) = swim.ping("b", 0.0)
    assert isinstance(probe, Send)
    only_this(swim)
    if asked:
        swim.tick(0.05)
        swim.tick(0.7)
    out = swim.received(Ack(probe.message.sequence, "b"), Endpoint(sender, 7400), 0.8)
    assert out == ([Measured("b", probe.message.sequence)] if measured else [])
    sequence, _ = swim.measure("b") or (0, None)
    out = swim.received(Ack(sequence, "b"), Endpoint(sender, 7400), 0.9)
    assert out == ([Measured("b", sequence)] if host != "192.0.2.2" or sender == host else [])


def test_a_helper_relays_the_answer_or_says_that_there_was_none() -> None:
    swim = core(others="bc")
    only_this(swim)
    for sequence in (41, 42):
        (ping,) = swim.received(PingRequest(sequence, "c", "b", address("elsewhere")), address("c"), 0.0)
        assert isinstance(ping, Send)
        assert ping.to == address("b")
        if sequence == 41:
            number = ping.message.sequence
            assert swim.received(Ack(number, "c"), address("c"), 0.1) == []
            assert sent(swim.received(Ack(number, "b"), address("b"), 0.1)) == [(address("c"), Ack(41, "b"))]
    assert swim.tick(0.3) == []
    assert sent(swim.tick(0.4)) == [(address("c"), Nack(42, "a"))]
    assert sent(swim.received(PingRequest(43, "c", "stranger", address("x")), address("c"), 1.0)) == [
        (address("c"), Nack(43, "a"))
    ]


def test_who_stood_still_blames_nobody() -> None:
    swim = core(others="bcd")
    assert swim.ping("b", 0.0)
    swim.tick(0.0)
    assert not [i for i in swim.tick(60.0) if isinstance(i, Happened)]
    assert swim.awareness.score == 1


# -- eight of them ----------------------------------------------------------------------------------------------------


class ToyNetwork:
    """Cores that tick every 100 ms; a datagram takes 100 ms and carries what the core's queue says, as packets do."""

    def __init__(self, names: str, seed: int = 1) -> None:
        self.now, self.seed = 0.0, seed
        self.cores: dict[str, Swim] = {}
        self.events: list[tuple[float, str, str, str]] = []
        self.cut: Callable[[str, str], bool] = lambda a, b: False
        self._flying: list[tuple[float, int, str, str, Send, tuple[Rumour, ...]]] = []
        self._number = 0
        for name in names:
            self.add(name, names)

    def add(self, name: str, known: str, incarnation: int = 1) -> None:
        others = "".join(other for other in known if other != name)
        self.cores[name] = core(name, others, incarnation=incarnation, seed=self.seed)

    def follow(self, name: str, out: list[Instruction]) -> None:
        for instruction in out:
            if isinstance(instruction, Happened):
                self.events.append((self.now, name, instruction.change, instruction.name))
            if isinstance(instruction, Send):
                swim = self.cores[name]
                due = swim.gossip.due()[:6]
                swim.gossip.sent(due, len(swim.table) + 1)
                first = () if instruction.first is None else (instruction.first,)
                self._number += 1
                to = instruction.to.host.removeprefix("host-")
                heapq.heappush(
                    self._flying, (self.now + 0.1, self._number, name, to, instruction, (*first, *instruction.carries, *due))
                )

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.now = round(self.now + 0.1, 1)
            while self._flying and self._flying[0][0] <= self.now + 1e-9:
                _, _, source, to, send, rumours = heapq.heappop(self._flying)
                if to in self.cores and source in self.cores and not self.cut(source, to):
                    swim = self.cores[to]
                    self.follow(to, swim.heard(rumours, self.now))
                    if send.message is not None:
                        self.follow(to, swim.received(send.message, address(source), self.now))
            for name in sorted(self.cores):
                self.follow(name, self.cores[name].tick(self.now))

    def states(self, of: str) -> dict[str, tuple[str, int]]:
        found = {}
        for name, swim in self.cores.items():
            row = swim.table.get(of)
            if row is not None:
                found[name] = (row.member.state, row.member.incarnation)
        return found

    def announce(self, name: str, state: MemberState) -> None:
        """As the service does on leaving: two others are told, and the node is gone."""
        gone = msgspec.structs.replace(self.cores[name].table.own, state=state)
        del self.cores[name]
        for other in sorted(self.cores)[:2]:
            self.follow(other, self.cores[other].heard((gone,), self.now))


EIGHT = "abcdefgh"


@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_suspected_while_all_is_well(seed: int) -> None:
    net = ToyNetwork(EIGHT, seed)
    net.run(120)
    assert net.events == []


@pytest.mark.parametrize("seed", range(5))
def test_a_crash_is_found_by_all_within_ten_seconds(seed: int) -> None:
    net = ToyNetwork(EIGHT, seed)
    net.run(20)
    del net.cores["d"]
    net.run(10)
    assert set(net.states("d").values()) == {("dead", 1)}
    assert {(change, name) for _, _, change, name in net.events} == {("suspected", "d"), ("died", "d")}


@pytest.mark.parametrize("seed", range(20))
def test_a_false_suspicion_is_refuted(seed: int) -> None:
    net = ToyNetwork(EIGHT, seed)
    net.run(5)
    net.follow("a", net.cores["a"].heard((member("d", "suspect"),), net.now))
    net.run(30)
    assert set(net.states("d").values()) == {("alive", 2)}
    assert "died" not in [change for _, _, change, _ in net.events]


def test_one_cut_path_makes_nobody_suspect() -> None:
    net = ToyNetwork(EIGHT)
    net.cut = lambda a, b: {a, b} == {"a", "d"}
    net.run(120)
    assert net.events == []


@pytest.mark.parametrize("state, change", [("left", "left"), ("away", "went-away")])
def test_leaving_and_going_away_spread_without_suspicion(state: MemberState, change: str) -> None:
    net = ToyNetwork(EIGHT)
    net.run(5)
    net.announce("d", state)
    net.run(20)
    assert set(net.states("d").values()) == {(state, 1)}
    assert sorted(net.events, key=lambda e: e[1]) == [
        (at, name, change, "d") for at, name, _, _ in sorted(net.events, key=lambda e: e[1])
    ]
    assert len(net.events) == 7


@pytest.mark.parametrize("incarnation", [1, 2], ids=["counted-too-low", "counted-on"])
@pytest.mark.parametrize("crashed_for_s", [1, 30], ids=["before-it-is-found", "after-it-is-dead"])
def test_a_node_that_comes_back_is_taken_for_its_new_life(incarnation: int, crashed_for_s: int) -> None:
    net = ToyNetwork(EIGHT)
    net.run(5)
    net.follow("a", net.cores["a"].heard((member("d", version=50),), net.now))
    del net.cores["d"]
    net.run(crashed_for_s)
    net.add("d", "", incarnation)
    net.follow("a", net.cores["a"].heard(tuple(net.cores["d"].table.everyone()), net.now))
    net.follow("d", net.cores["d"].heard(tuple(net.cores["a"].table.everyone()), net.now))
    net.run(30)
    found = net.states("d")
    assert {state for state, _ in found.values()} == {"alive"}
    assert {life for _, life in found.values()} == {net.cores["d"].table.own.incarnation}
    assert net.cores["d"].table.own.incarnation > 1
    assert len(found) == 7

"""SWIM's pure core: instructions by table, and eight cores on a deterministic toy network."""

from __future__ import annotations

import msgspec
import pytest

from sbon_node.overlay.membership.detector.instructions import Call, Happened, Measured, Send
from sbon_node.overlay.membership.detector.probes import MAX_RELAYED
from sbon_node.overlay.membership.detector.suspicion import Suspicions
from sbon_node.overlay.membership.detector.swim import MAX_TICK_S
from sbon_protocol.messages import Ack, Coordinate, Endpoint, Nack, Ping, PingRequest, StateUpdate
from tests.overlay.membership.cores import SETTINGS, address, core, member, only_this, sent


def test_a_ping_is_answered_unless_it_is_for_somebody_else() -> None:
    swim, own = core(others="b"), member("a")
    place = Coordinate((9.0, 0.0, 0.0))
    assert swim.received(Ping(7, "b", "a", place, 4), address("b"), 1.0) == [
        Send(address("b"), Ack(7, "a", own.coordinate, own.coordinate_version, own.incarnation))
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
    out = swim.tick(0.5)
    asked = sent(out)
    assert len(asked) == 3
    assert {to for to, _ in asked} < {address(n) for n in "cdef"}
    assert [i.member.name for i in out if isinstance(i, Call)] == ["b"]
    assert all(message == PingRequest(probe.message.sequence, "a", "b", address("b")) for _, message in asked)
    helpers = [to.host.removeprefix("host-") for to, _ in asked]
    assert swim.tick(1.0) == []
    for helper in helpers[:nacks]:
        swim.received(Nack(probe.message.sequence, helper), address(helper), 1.2)
    suspected = swim.tick(1.5)
    assert suspected[0] == Happened("suspected", "b")
    buddy = StateUpdate("b", 1, "suspect")
    assert [i.message.target for i in suspected if isinstance(i, Send) and i.first == buddy and isinstance(i.message, Ping)] == [
        "b"
    ]
    assert StateUpdate("b", 1, "suspect", "a") in swim.gossip.due()
    assert swim.awareness.score == 3 - nacks
    limit_s = Suspicions(SETTINGS).timeout_s(nacks, witness=True, members=6)
    waiting = [i for tick in range(31, round((1.5 + limit_s) * 20)) for i in swim.tick(tick / 20)]
    assert not [i for i in waiting if isinstance(i, Happened)]
    insisted = [i for i in waiting if isinstance(i, Send) and isinstance(i.message, Ping) and i.first == buddy]
    assert len(insisted) == pytest.approx(limit_s / SETTINGS.insist_s, abs=2)
    assert Happened("died", "b") in swim.tick(1.6 + limit_s)


@pytest.mark.parametrize("by", ["itself", "a helper", "TCP", "nobody"])
def test_a_witness_that_is_answered_late_leaves_the_time_of_hearsay(by: str) -> None:
    swim = core(others="bcdef")
    (probe,) = swim.ping("b", 0.0)
    assert isinstance(probe, Send)
    only_this(swim)
    swim.tick(0.5)
    assert Happened("suspected", "b") in swim.tick(1.5)
    if by == "TCP":
        assert swim.reached("b", probe.message.sequence, 2.0)
        assert not swim.reached("b", probe.message.sequence, 2.1)
    elif by != "nobody":
        assert swim.received(Ack(probe.message.sequence, "b"), address("b" if by == "itself" else "c"), 2.0) == []
        swim.received(Ack(probe.message.sequence, "b"), address("b"), 4.0)  # once more: the same answer counts once
    limits = Suspicions(SETTINGS)
    as_witness, as_hearsay = (limits.timeout_s(0, witness=witness, members=6) for witness in (True, False))
    out = [i for tick in range(16, round((1.5 + as_witness) * 10) + 2) for i in swim.tick(tick / 10)]
    assert (Happened("died", "b") in out) == (by == "nobody")
    if by != "nobody":
        first, last = round((1.5 + as_witness) * 10) + 2, round((2.0 + as_hearsay) * 10) + 1
        later = [(tick, i) for tick in range(first, last + 1) for i in swim.tick(tick / 10)]
        asked = [(tick, to) for tick, i in later if isinstance(i, Send) and i.timed for to in [i.to]]
        assert [to for _, to in asked] == [address("b")], "then it looks for itself"
        assert asked[0][0] == pytest.approx(last - 1, abs=1)


def test_a_witness_whose_later_probe_is_answered_through_a_helper_is_none_any_more() -> None:
    swim = core(others="bcdef")
    assert swim.ping("b", 0.0)
    only_this(swim)
    swim.tick(0.5)
    assert Happened("suspected", "b") in swim.tick(1.5)
    (again,) = swim.ping("b", 1.6)
    assert isinstance(again, Send)
    swim.received(Ack(again.message.sequence, "b"), address("c"), 3.0)
    as_witness_s = Suspicions(SETTINGS).timeout_s(0, witness=True, members=6)
    later = [i for tick in range(31, round((1.5 + as_witness_s) * 10) + 2) for i in swim.tick(tick / 10)]
    assert Happened("died", "b") not in later


def test_a_helper_that_could_not_look_confirms_nothing() -> None:
    swim = core(others="bcdef")
    (probe,) = swim.ping("b", 0.0)
    assert isinstance(probe, Send)
    only_this(swim)
    for to, _ in sent(swim.tick(0.5)):
        helper = to.host.removeprefix("host-")
        for at_s in (0.6, 1.3):  # only its first report counts
            swim.received(Nack(probe.message.sequence, helper), to, at_s)
    assert Happened("suspected", "b") in swim.tick(1.5)
    assert swim.awareness.score == 0, "they have answered, all the same"
    least_s = Suspicions(SETTINGS).timeout_s(3, witness=True, members=6)
    later = [i for tick in range(16, round((1.5 + least_s) * 10) + 5) for i in swim.tick(tick / 10)]
    assert Happened("died", "b") not in later


def test_an_unanswered_relay_makes_room_for_others() -> None:
    swim = core(others="bc")
    only_this(swim)
    asked = [swim.received(PingRequest(n, "c", "b", address("b")), address("c"), 0.0) for n in range(MAX_RELAYED)]
    assert all(isinstance(out[0], Send) and isinstance(out[0].message, Ping) for out in asked)
    full = swim.received(PingRequest(5000, "c", "b", address("b")), address("c"), 0.1)
    assert sent(full) == [(address("c"), Nack(5000, "a"))]
    assert len(sent(swim.tick(0.4))) == MAX_RELAYED
    in_vain = swim.received(PingRequest(5000, "c", "stranger", address("x")), address("c"), 0.5)
    assert sent(in_vain) == [(address("c"), Nack(5000, "a"))]
    assert isinstance(asked[0][0], Send)
    first = swim.received(Ack(asked[0][0].message.sequence, "b"), address("b"), 0.5)
    assert sent(first) == [(address("c"), Ack(0, "b"))], "an unreachable member takes no other's room"
    assert isinstance(swim.received(PingRequest(0, "c", "b", address("b")), address("c"), 0.5)[0], Send)
    (ping,) = swim.received(PingRequest(5001, "c", "b", address("b")), address("c"), 0.5)
    assert isinstance(ping, Send)
    assert isinstance(ping.message, Ping)
    assert sent(swim.received(Ack(ping.message.sequence, "b"), address("b"), 0.6)) == [(address("c"), Ack(5001, "b"))]


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
def test_a_member_announced_by_name_is_measured(host: str, sender: str, asked: bool, measured: bool) -> None:
    swim = core(others="cd")
    swim.table.hear(msgspec.structs.replace(member("b"), address=Endpoint(host, 7400)), 0.0)
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
        (ping,) = swim.received(PingRequest(sequence, "c", "b", address("b")), address("c"), 0.0)
        assert isinstance(ping, Send)
        assert ping.to == address("b")
        if sequence == 41:
            number = ping.message.sequence
        later = ping.message.sequence
        if sequence == 41:
            assert swim.received(Ack(number, "c"), address("c"), 0.1) == []
            assert sent(swim.received(Ack(number, "b"), address("b"), 0.1)) == [(address("c"), Ack(41, "b"))]
    assert swim.tick(0.3) == []
    assert sent(swim.tick(0.4)) == [(address("c"), Nack(42, "a"))]
    assert sent(swim.tick(0.8)) == []
    assert sent(swim.received(Ack(later, "b"), address("b"), 0.9)) == [(address("c"), Ack(42, "b"))], "later, all the same"
    assert sent(swim.received(Ack(later, "b"), address("b"), 0.95)) == []
    for target, at in (("stranger", "x"), ("b", "elsewhere")):
        unknown = swim.received(PingRequest(43, "c", target, address(at)), address("c"), 1.0)
        assert sent(unknown) == [(address("c"), Nack(43, "a"))], "perhaps another instance is there"


def test_a_node_that_stood_still_suspects_no_member() -> None:
    swim = core(others="bcd")
    assert swim.ping("b", 0.0)
    swim.tick(0.0)
    assert not [i for i in swim.tick(60.0) if isinstance(i, Happened)]
    assert swim.awareness.score == 1


def test_a_suspect_is_not_blamed_for_the_time_this_process_stood_still() -> None:
    swim = core(others="bcd")
    assert swim.ping("b", 0.0)
    only_this(swim)
    swim.tick(0.0)
    swim.tick(0.5)
    assert Happened("suspected", "b") in swim.tick(1.5)
    limit_s, stall_s = Suspicions(SETTINGS).timeout_s(0, witness=True, members=4), 60.0
    swim.tick(2.0)
    began = 2.0 + stall_s
    died = [
        at / 10
        for at in range(round(began * 10), round((began + limit_s + 5) * 10))
        if Happened("died", "b") in swim.tick(at / 10)
    ]
    assert died == [pytest.approx(1.5 + stall_s - MAX_TICK_S + limit_s, abs=0.15)]

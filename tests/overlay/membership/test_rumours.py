"""Rumours about members: precedence, number of transmissions, and a suspect's time to refute."""

from __future__ import annotations

import msgspec
import pytest

from sbon_node.overlay.membership.detector.instructions import Disputed, Happened, Instruction, Refused
from sbon_node.overlay.membership.detector.suspicion import Suspicions
from sbon_node.overlay.membership.dissemination.gossip import GossipQueue
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.membership.table import MAX_INCARNATION
from sbon_protocol.messages import Coordinate, Member, MemberState
from tests.overlay.membership.cores import SETTINGS, address, core, heard, member


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
    ],
)
def test_which_rumour_wins(
    known: tuple[MemberState, int], rumour: tuple[MemberState, int], change: str, left_with: tuple[MemberState, int]
) -> None:
    swim = core(others="b")
    swim.table.hear(member("b", "alive", known[1]), 0.0)
    swim.table.mark("b", known[0], known[1], 0.0)
    assert heard(swim, member("b", *rumour)) == ([Happened(change, "b")] if change else [])  # type: ignore[arg-type]
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
def test_a_rumour_about_the_node_itself_is_outbid(rumour: Member, incarnation: int, answer: list[Instruction]) -> None:
    swim = core(incarnation=5)
    assert swim.take_rumours((rumour,), 1.0) == answer
    assert swim.table.own.incarnation == incarnation
    assert [m.incarnation for m in swim.gossip.due()] == ([incarnation] if incarnation != 5 else [])


@pytest.mark.parametrize("state, free", [("alive", False), ("suspect", False), ("away", False), ("dead", True), ("left", True)])
def test_a_name_is_free_once_its_node_is_dead_or_has_left(state: MemberState, free: bool) -> None:
    swim = core(others="b")
    swim.table.mark("b", state, 1, 0.0)
    heir = member("b", incarnation=2, instance="i-heir")
    assert swim.table.conflicts(heir) is not free
    assert heard(swim, heir) == ([Happened("returned", "b")] if free else [Disputed("b", address("b"))])


def test_coordinates_go_by_their_own_version_and_start_over_with_a_life() -> None:
    swim = core(others="b")
    swim.take_rumours((member("b", version=5), member("b", version=3)), 1.0)
    assert swim.table.everyone()[1].coordinate_version == 5
    swim.take_rumours((msgspec.structs.replace(member("b", "suspect"), coordinate=None), member("b", version=4)), 1.5)
    assert swim.table.everyone()[1].coordinate == Coordinate((5.0, 0.0, 0.0))
    heard(swim, member("b", incarnation=2, version=1), now=2.0)
    assert swim.table.everyone()[1].coordinate_version == 1


def test_the_table_is_bounded_and_tombstones_make_room() -> None:
    swim = core(most=2)
    full = Refused("members-full", "d")
    assert heard(swim, member("b"), member("c"), member("d")) == [Happened("joined", "b"), Happened("joined", "c"), full]
    swim.table.mark("b", "dead", 1, 1.0)
    assert heard(swim, member("d"), now=2.0) == [Happened("joined", "d")]
    assert swim.table.get("b") is None


def test_the_dead_are_not_taken_in_and_are_forgotten_in_the_end() -> None:
    swim = core(others="b")
    assert swim.take_rumours((member("x", "dead"), member("y", "left")), 0.0) == []
    swim.table.mark("b", "dead", 1, 10.0)
    assert swim.table.expire(10.0 + SETTINGS.tombstone_s, SETTINGS.tombstone_s) == []
    assert swim.table.expire(10.1 + SETTINGS.tombstone_s, SETTINGS.tombstone_s) == ["b"]


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


def test_a_second_confirmation_does_not_count_and_the_time_to_refute_rests() -> None:
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


def test_a_coordinate_of_the_same_life_never_goes_back() -> None:
    """An older coordinate may come with a graver state; only the state is news."""
    swim = core(others="b")
    heard(swim, member("b", "alive", 1, version=7))
    heard(swim, member("b", "suspect", 1, version=3))
    row = swim.table.get("b")
    assert row is not None
    assert (row.member.state, row.member.coordinate_version) == ("suspect", 7)
    assert row.member.coordinate == Coordinate((7.0, 0.0, 0.0))

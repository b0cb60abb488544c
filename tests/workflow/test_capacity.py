"""Capacity is promised once: to a reservation, until it lapses, is released, or stays."""

from __future__ import annotations

from contextlib import suppress

import pytest

from sbon_node.engine.interface import EngineCapacity
from sbon_node.errors import SbonError
from sbon_node.hosting.capacity import Reservations
from sbon_node.model.operators import Needs

CAPACITY = EngineCapacity(cores=2.0, memory_mb=1000.0, bandwidth_bytes_s=1e6, operators=3)


@pytest.mark.parametrize(
    "needs, reason",
    [
        (Needs(cores=2.0, memory_mb=1000.0, bandwidth_bytes_s=1e6), ""),
        (Needs(cores=2.1), "2.00 cores free, 2.10 needed"),
        (Needs(memory_mb=1001), "1000 MB free, 1001 needed"),
        (Needs(bandwidth_bytes_s=1e6 + 1), "1000000 B/s free, 1000001 needed"),
    ],
)
def test_operators_beyond_capacity_are_refused_with_a_reason(needs: Needs, reason: str) -> None:
    assert Reservations(CAPACITY).refusal(needs, now=0.0) == reason


def test_a_reservation_holds_room_until_it_lapses() -> None:
    held = Reservations(CAPACITY)
    held.reserve("a", Needs(cores=1.5), now=0.0, deadline=10.0)
    with pytest.raises(SbonError) as refusal:
        held.reserve("b", Needs(cores=1.0), now=9.0, deadline=19.0)
    assert refusal.value.code == "no-capacity"
    held.reserve("b", Needs(cores=1.0), now=10.0, deadline=20.0)


def test_a_running_operator_keeps_its_capacity_until_released() -> None:
    held = Reservations(CAPACITY)
    for operator in ("a", "b", "c"):
        held.reserve(operator, Needs(), now=0.0, deadline=1.0)
        held.confirm(operator, Needs(), now=0.5)
    assert held.operators() == ("a", "b", "c")
    assert held.refusal(Needs(), now=100.0) == "hosts 3 operators, its limit is 3"
    held.release("b")
    assert held.refusal(Needs(), now=100.0) == ""


def test_a_repeated_reservation_is_counted_once_and_needs_no_room_of_its_own() -> None:
    held = Reservations(CAPACITY)
    needs = Needs(cores=1.5, memory_mb=600.0)
    for operator in ("a", "b"):
        held.reserve(operator, Needs(cores=0.0, memory_mb=0.0), now=0.0, deadline=5.0)
    for now in (0.0, 1.0, 2.0):
        held.reserve("c", needs, now=now, deadline=now + 10.0)
        free, count = held.free(now)
        assert (free.cores, free.memory_mb, count) == (0.5, 400.0, 3)
    held.confirm("c", needs, now=3.0)
    assert held.free(6.0)[1] == 1
    held.release("c")
    assert held.free(6.0) == (Needs(cores=2.0, memory_mb=1000.0, bandwidth_bytes_s=1e6), 0)


TEN = EngineCapacity(cores=100.0, memory_mb=1e6, bandwidth_bytes_s=1e9, operators=10)


def taken(held: Reservations, holder: str, count: int, now: float) -> int:
    """Return how many of ``count`` reservations the holder gets, under ids and names of its choice."""
    got = 0
    for number in range(count):
        with suppress(SbonError):
            held.reserve(f"{holder}.{now}.{number}", Needs(), now, now + 300.0, owner=f"{holder}{number}", holder=holder)
            got += 1
    return got


def test_one_holder_cannot_keep_all_places_from_others() -> None:
    held = Reservations(TEN, share=0.5, grace_s=15.0)
    assert taken(held, "mallory", 12, now=0.0) == 10
    assert taken(held, "alice", 1, now=14.0) == 0, "it may be about to start a query of ten operators"
    assert held.refusal(Needs(), 15.0, "alice") == ""
    assert held.refusal(Needs(), 15.0, "mallory") != ""
    assert taken(held, "alice", 9, now=15.0) == 5
    assert taken(held, "mallory", 9, now=16.0) == 0
    assert len(held.promised(16.0)) == 10


def test_a_holder_that_asks_again_and_again_gains_nothing() -> None:
    held = Reservations(TEN, share=0.5, grace_s=15.0)
    for second in range(40):
        taken(held, "mallory", 10, now=float(second))
    assert taken(held, "alice", 5, now=40.0) == 5


def test_capacity_of_running_operators_is_never_taken_away() -> None:
    held = Reservations(TEN, share=0.5, grace_s=15.0)
    for number in range(10):
        held.reserve(f"{number}", Needs(), 0.0, 300.0, owner="bob")
        held.confirm(f"{number}", Needs(), 1.0, owner="bob")
    assert taken(held, "alice", 1, now=100.0) == 0
    assert len(held.operators()) == 10


def test_no_holder_gives_up_more_than_is_needed() -> None:
    held = Reservations(TEN, share=0.5, grace_s=15.0)
    assert taken(held, "bob", 10, now=0.0) == 10
    assert taken(held, "alice", 1, now=20.0) == 1
    assert len([one for one in held.promised(20.0) if one.startswith("bob")]) == 9


def test_what_a_query_holds_is_free_for_itself() -> None:
    held = Reservations(CAPACITY)
    for operator in ("q.a", "q.b", "other.a"):
        held.reserve(operator, Needs(cores=0.6, memory_mb=300.0), now=0.0, deadline=10.0)
    assert held.refusal(Needs(cores=0.3, memory_mb=0.0), now=1.0)
    assert held.refusal(Needs(cores=1.4, memory_mb=700.0), now=1.0, beside="q") == ""
    assert held.free(1.0, beside="q")[1] == 1
    assert held.refusal(Needs(cores=0.9, memory_mb=0.0), now=1.0, beside="oth") == held.refusal(
        Needs(cores=0.9, memory_mb=0.0), now=1.0
    )

"""Room is promised once: to what is reserved, until it lapses, is released, or stays."""

from __future__ import annotations

import pytest

from sbon_node.control.capacity import Reservations
from sbon_node.engine.interface import EngineCapacity, Needs
from sbon_node.errors import SbonError

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
def test_what_does_not_fit_is_refused_with_its_reason(needs: Needs, reason: str) -> None:
    assert Reservations(CAPACITY).refusal(needs, now=0.0) == reason


def test_a_reservation_holds_room_until_it_lapses() -> None:
    held = Reservations(CAPACITY)
    held.reserve("a", Needs(cores=1.5), now=0.0, deadline=10.0)
    with pytest.raises(SbonError) as refusal:
        held.reserve("b", Needs(cores=1.0), now=9.0, deadline=19.0)
    assert refusal.value.code == "no-room"
    held.reserve("b", Needs(cores=1.0), now=10.0, deadline=20.0)


def test_what_runs_keeps_its_room_until_it_is_released() -> None:
    held = Reservations(CAPACITY)
    for operator in ("a", "b", "c"):
        held.reserve(operator, Needs(), now=0.0, deadline=1.0)
        held.confirm(operator, Needs(), now=0.5)
    assert held.operators() == ("a", "b", "c")
    assert held.refusal(Needs(), now=100.0) == "hosts 3 operators, its limit is 3"
    held.release("b")
    assert held.refusal(Needs(), now=100.0) == ""

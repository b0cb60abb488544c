"""Clock offsets from pings over asymmetric, jittery paths: always within the stated error."""

from __future__ import annotations

import random

import pytest

from sbon_node.overlay.membership.clocks import DRIFT, SAMPLES, ClockOffsets

HOUR_S = 3600.0
EPOCH_S = 1.7e9


def answer(
    offsets: ClockOffsets, at_s: float, ahead_s: float, there_s: float, back_s: float, own_wall_s: float = EPOCH_S
) -> float:
    """A ping sent at ``at_s``, answered at once by a clock ``ahead_s`` ahead; return when the answer arrives."""
    read_s = at_s + there_s
    offsets.observe("b", at_s, read_s + back_s, round((EPOCH_S + read_s + ahead_s) * 1e6))
    return read_s + back_s


def wall_ms(now: float, own_wall_s: float = EPOCH_S) -> float:
    return (own_wall_s + now) * 1000


@pytest.mark.parametrize("ahead_s", [-HOUR_S, -0.005, 0.0, 2.0, HOUR_S])
def test_the_offset_is_right_within_its_error_however_asymmetric_the_path(ahead_s: float) -> None:
    rng, offsets, now = random.Random(3), ClockOffsets(), 10.0
    for _ in range(200):
        now = answer(offsets, now, ahead_s, 0.02 + rng.expovariate(50.0), 0.005 + rng.expovariate(20.0))
        found = offsets.offset("b", now, wall_ms(now))
        assert found is not None
        assert abs(found.ahead_ms - ahead_s * 1000) <= found.error_ms + 0.01
        now += rng.uniform(0.5, 5.0)
    assert found.error_ms < 30.0, "the answer with the least time counts"


def test_the_error_is_half_the_least_round_trip_and_grows_with_its_age() -> None:
    offsets = ClockOffsets()
    now = answer(offsets, 0.0, 5.0, 0.004, 0.004)
    for step in range(1, 5):
        now = answer(offsets, step * 1.0, 5.0, 0.1, 0.1)
    found = offsets.offset("b", now, wall_ms(now))
    assert found is not None
    assert found.error_ms == pytest.approx(4.0 + DRIFT * (now - 0.008) * 1000)


def test_old_answers_give_way_to_new_ones() -> None:
    offsets, now = ClockOffsets(), 0.0
    now = answer(offsets, now, 5.0, 0.001, 0.001)
    for _ in range(SAMPLES):
        now = answer(offsets, now + 1.0, 5.0, 0.02, 0.02)
    found = offsets.offset("b", now, wall_ms(now))
    assert found is not None
    assert found.error_ms == pytest.approx(20.0, rel=0.2)


def test_a_clock_that_is_set_is_believed_at_once() -> None:
    offsets = ClockOffsets()
    now = answer(offsets, 0.0, 5.0, 0.001, 0.001)
    now = answer(offsets, 10.0, -60.0, 0.1, 0.1)
    found = offsets.offset("b", now, wall_ms(now))
    assert found is not None
    assert abs(found.ahead_ms + 60_000) <= found.error_ms


def test_a_change_of_the_own_wall_clock_does_no_harm() -> None:
    offsets = ClockOffsets()
    now = answer(offsets, 0.0, 5.0, 0.01, 0.01)
    found = offsets.offset("b", now, wall_ms(now, EPOCH_S + HOUR_S))
    assert found is not None
    assert found.ahead_ms == pytest.approx(5_000 - HOUR_S * 1000, abs=found.error_ms)


def test_answers_without_a_clock_and_forgotten_members_are_unknown() -> None:
    offsets = ClockOffsets()
    offsets.observe("b", 0.0, 0.1, 0)
    assert offsets.offset("b", 1.0, wall_ms(1.0)) is None
    answer(offsets, 0.0, 1.0, 0.01, 0.01)
    offsets.forget("b")
    assert offsets.offset("b", 1.0, wall_ms(1.0)) is None

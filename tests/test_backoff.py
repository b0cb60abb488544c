"""Pauses between tries: doubled, bounded, jittered, and short again after a success."""

from __future__ import annotations

import random

import pytest

from sbon_node.base.backoff import Backoff


@pytest.mark.parametrize(
    "first_s, longest_s, pauses_s",
    [(0.5, 3.0, [0.5, 1.0, 2.0, 3.0, 3.0]), (1.0, 1.0, [1.0, 1.0]), (5.0, 2.0, [2.0, 2.0])],
)
def test_pauses_double_up_to_the_longest(first_s: float, longest_s: float, pauses_s: list[float]) -> None:
    backoff = Backoff(first_s, longest_s)
    assert [backoff.next_s() for _ in pauses_s] == pauses_s


def test_a_success_makes_the_next_pause_the_shortest() -> None:
    backoff = Backoff(0.5, 8.0)
    assert [backoff.next_s() for _ in range(3)] == [0.5, 1.0, 2.0]
    backoff.reset()
    assert [backoff.next_s() for _ in range(2)] == [0.5, 1.0]


def test_jitter_shortens_each_pause_by_half_at_most_and_comes_from_the_generator() -> None:
    one, same, plain = (Backoff(1.0, 64.0, rng) for rng in (random.Random(3), random.Random(3), None))
    drawn = [(one.next_s(), same.next_s(), plain.next_s()) for _ in range(20)]
    assert all(a == b and longest / 2 <= a <= longest for a, b, longest in drawn)
    assert len({a / longest for a, _, longest in drawn}) == 20


def test_the_thousandth_pause_is_the_longest() -> None:
    backoff = Backoff(0.1, 30.0)
    assert [backoff.next_s() for _ in range(5000)][-1] == 30.0

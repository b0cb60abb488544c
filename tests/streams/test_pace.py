"""A stream's rate, computed from timed observations."""

from __future__ import annotations

import pytest

from sbon_node.streams.mean_rate import MeanRate


def test_no_rate_is_reported_before_two_observations() -> None:
    pace = MeanRate()
    assert (pace.rows_s, pace.bytes_s) == (None, None)
    pace.observe(5.0, 10_000, 10**6)
    assert (pace.rows_s, pace.bytes_s) == (None, None)


@pytest.mark.parametrize("every_s", [0.05, 1.0, 7.0])
def test_a_steady_stream_has_its_exact_rate(every_s: float) -> None:
    pace = MeanRate()
    for step in range(200):
        pace.observe(step * every_s, 30, 900)
    assert pace.rows_s == pytest.approx(30 / every_s, rel=1e-6)
    assert pace.bytes_s == pytest.approx(900 / every_s, rel=1e-6)


def test_changes_are_followed_by_half_lives() -> None:
    pace = MeanRate(half_life_s=10.0)
    for second in range(200):
        pace.observe(float(second), 100, 0)
    for second in range(200, 210):
        pace.observe(float(second), 0, 0)
    assert pace.rows_s == pytest.approx(50, rel=0.1)
    for second in range(210, 300):
        pace.observe(float(second), 0, 0)
    assert pace.rows_s is not None
    assert 0 <= pace.rows_s < 1


def test_silence_counts_and_a_pause_does_not() -> None:
    silent, paused = MeanRate(), MeanRate()
    for pace in (silent, paused):
        pace.observe(0.0, 100, 0)
        pace.observe(1.0, 100, 0)
    paused.pause()
    for pace in (silent, paused):
        pace.observe(100.0, 5000, 0)
        pace.observe(101.0, 100, 0)
    assert paused.rows_s == pytest.approx(100)
    assert silent.rows_s == pytest.approx(5200 / 101, rel=0.2)


def test_two_observations_at_one_time_are_one() -> None:
    pace = MeanRate()
    pace.observe(0.0, 1, 1)
    pace.observe(2.0, 10, 10)
    pace.observe(2.0, 10, 10)
    assert pace.rows_s == 10.0


@pytest.mark.parametrize("paused", [False, True])
def test_the_present_rate_falls_in_silence(*, paused: bool) -> None:
    pace = MeanRate()
    assert pace.at_present(0.0) == (None, None)
    for second in range(100):
        pace.observe(float(second), 15, 150)
    if paused:
        pace.pause()
    assert pace.at_present(99.0) == (pytest.approx(15.0), pytest.approx(150.0))
    rates = [pace.at_present(99.0 + silent_s).rows_s or 0.0 for silent_s in (1.0, 30.0, 80.0)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 1.5
    assert pace.at_present(99.0 + 300.0) == (0.0, 0.0)
    assert pace.rows_s == pytest.approx(15.0)


def test_the_present_rate_is_that_of_an_observation_without_rows() -> None:
    looked_at, observed = MeanRate(), MeanRate()
    for pace in (looked_at, observed):
        for second in range(50):
            pace.observe(float(second), 7, 0)
    observed.observe(90.0, 0, 0)
    assert looked_at.at_present(90.0).rows_s == pytest.approx(observed.rows_s)

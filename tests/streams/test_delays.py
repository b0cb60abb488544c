"""Quantiles of delays over the newest frames."""

from __future__ import annotations

import random

import pytest

from sbon_node.streams.measures.delays import Delays


def test_quantiles_are_those_of_the_rows() -> None:
    rng = random.Random(5)
    delays, rows = Delays(most=1000, window_s=1e9), []
    for number in range(500):
        delay_ms, count = rng.expovariate(0.02), rng.randint(1, 50)
        delays.observe(float(number), delay_ms, 1.5, count)
        rows += [delay_ms] * count
    rows.sort()
    found = delays.report(500.0)
    assert found.p50_ms == rows[(len(rows) + 1) // 2 - 1]
    assert found.p95_ms == rows[-(-95 * len(rows) // 100) - 1]
    assert (found.frames, found.error_ms) == (500, 1.5)


def test_only_the_newest_frames_within_the_window_count() -> None:
    delays = Delays(most=3, window_s=10.0)
    for number, delay_ms in enumerate((900.0, 1.0, 2.0, 3.0)):
        delays.observe(float(number), delay_ms, delay_ms, 1)
    assert delays.report(3.0).p95_ms == 3.0
    assert delays.report(12.5).frames == 1
    late = delays.report(60.0)
    assert (late.frames, late.p50_ms, late.error_ms) == (0, None, None)


def test_frames_without_a_time_are_counted_apart() -> None:
    delays = Delays(most=3, window_s=10.0)
    delays.observe_undated(1.0)
    delays.observe(2.0, -0.4, 1.0, 1)
    found = delays.report(2.0)
    assert (found.frames, found.undated, found.p50_ms) == (1, 1, pytest.approx(0.0))

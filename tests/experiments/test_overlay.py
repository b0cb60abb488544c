"""Figures of coordinates: real daemons beside simulated ones."""

from __future__ import annotations

import pytest

from sbon_lab.experiments.live.overlay import Crash, Sight, death_figures, figures, simulated, victims
from sbon_node.overlay.space.coordinate import Coordinate

NAMES = ("a", "b", "c")
RTT_MS = ((0.0, 10.0, 20.0), (10.0, 0.0, 30.0), (20.0, 30.0, 0.0))
TRUE = {"a": 10.0, "b": 0.0, "c": 30.0}


def sight(at_s: float, off_ms: float) -> Sight:
    """All in a line as they are, but for c, which is too far away."""
    places = {name: Coordinate(vector=(x + (off_ms if name == "c" else 0.0), 0.0, 0.0)) for name, x in TRUE.items()}
    return Sight(at_s, places)


def test_figures_are_of_the_last_look_and_movement_of_the_second_half() -> None:
    found = figures([sight(0, 30), sight(10, 6), sight(20, 5), sight(30, 3)], NAMES, RTT_MS)
    assert found["median"] == pytest.approx(0.1)
    assert found["p90"] == pytest.approx(0.1 + 0.8 * 0.05)
    assert found["movement_ms_s"] == pytest.approx((1 + 2) / 3 / 20)


def test_a_cluster_has_settled_when_its_error_stays_within_a_tenth_of_the_last() -> None:
    assert figures([sight(0, 3), sight(10, 6), sight(20, 3.2), sight(30, 3)], NAMES, RTT_MS)["settle_s"] == 20
    assert figures([sight(0, 3), sight(10, 3)], NAMES, RTT_MS)["settle_s"] == 0


def test_deaths_are_reported_with_false_ones() -> None:
    sights = [Sight(0, {}), Sight(10, {}, frozenset({"a"})), Sight(20, {}, frozenset({"a", "b"}))]
    found = death_figures(sights, [Crash(4, 5), Crash(3, 6), Crash(9, 9)])
    assert found == {"false_deaths": 2, "detect_s": 4, "detect_most_s": 9, "all_more_s": 1, "all_more_most_s": 3}
    assert victims("abcdefg") == ("e", "f", "g")
    assert victims(NAMES) == ("c",)


def test_simulated_daemons_find_their_places() -> None:
    found = simulated(NAMES, RTT_MS, seconds=40, every_s=10)
    assert found["median"] < 0.1
    assert found["movement_ms_s"] < 0.5
    assert 50 < found["bytes_s"] < 1500
    assert found["false_deaths"] == 0
    assert 1 < found["detect_s"] <= found["detect_s"] + found["all_more_s"] < 15
    assert found == simulated(NAMES, RTT_MS, seconds=40, every_s=10)

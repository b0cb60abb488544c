"""Whom a node measures: who has a slot, who loses it, whose turn it is."""

from __future__ import annotations

import random

from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.overlay.space.local import LocalCoordinate, Neighbours
from sbon_node.overlay.space.settings import SpaceSettings

ESTIMATES = {f"n{number:02}": float(number) for number in range(40)}


def slots(random_slots: int, near_slots: int) -> Neighbours:
    return Neighbours(random_slots, near_slots, random.Random(1))


def test_random_slots_are_kept_and_near_ones_follow_the_estimates() -> None:
    neighbours = slots(4, 3)
    neighbours.renew(ESTIMATES, near=True)
    first = neighbours.names()
    others = sorted(set(ESTIMATES) - set(first[:4]))
    assert len(set(first)) == 7
    assert first[4:] == others[:3]
    farther = {name: 100 - estimate for name, estimate in ESTIMATES.items()}
    fresh = neighbours.renew(farther, near=True)
    assert neighbours.names()[:4] == first[:4]
    assert sorted(neighbours.names()[4:]) == others[-3:]
    assert sorted(name for _, name in fresh) == others[-3:]
    assert neighbours.renew(farther, near=True) == []


def test_some_near_slots_try_who_was_never_measured() -> None:
    neighbours = slots(0, 8)
    measured = {f"n{number:02}" for number in range(20)}
    neighbours.renew(ESTIMATES, near=True, measured=measured)
    assert sorted(neighbours.names()) == [*(f"n{number:02}" for number in range(6)), "n20", "n21"]
    neighbours.renew(ESTIMATES, near=True, measured=ESTIMATES)
    assert sorted(neighbours.names()) == [f"n{number:02}" for number in range(8)]


def test_a_departed_neighbour_makes_room_for_another() -> None:
    neighbours = slots(4, 0)
    neighbours.renew(ESTIMATES, near=True)
    gone, *kept = neighbours.names()
    rest = {name: estimate for name, estimate in ESTIMATES.items() if name != gone}
    ((slot, name),) = neighbours.renew(rest, near=True)
    assert (slot, name in rest) == (0, True)
    assert neighbours.names()[1:] == kept
    assert neighbours.slot_of(gone) is None


def test_all_take_turns_and_a_small_cluster_has_room_for_everyone() -> None:
    neighbours = slots(3, 2)
    assert neighbours.next() is None
    assert [neighbours.admit(name) for name in "abcdea"] == [0, 1, 2, 3, 4, 0]
    assert neighbours.admit("f") is None
    assert [neighbours.next() for _ in range(7)] == [*"abcde", "a", "b"]
    assert neighbours.forget("c") == 2
    assert [neighbours.next() for _ in range(4)] == ["d", "e", "a", "b"]
    assert neighbours.admit("f") == 2


def test_a_node_measured_as_far_is_not_estimated_as_near_again() -> None:
    """Coordinates that put a far node near would else fill the near slots with it for ever."""
    node = LocalCoordinate(SpaceSettings(random_neighbours=1, near_neighbours=1), random.Random(1))
    here, near = Coordinate(vector=(0, 0, 0)), Coordinate(vector=(1, 0, 0))
    for number in range(8):
        node.observe(f"r{number % 2}", 100.0, here, float(number))
    candidates = {"r0": here, "deceiver": node.coordinate, "r1": near}
    node.choose_neighbours(candidates)
    assert "deceiver" in node.neighbours()
    node.observe("deceiver", 900.0, node.coordinate, 5.0)
    node.choose_neighbours(candidates)
    assert node.neighbours() == ["r0", "r1"]


def test_a_departed_neighbour_pulls_the_coordinate_no_more() -> None:
    """Of two neighbours at the same distance one lies about its place, and leaves."""
    node = LocalCoordinate(SpaceSettings(height=False), random.Random(1))
    near, far = Coordinate(vector=(0, 0, 0)), Coordinate(vector=(100, 0, 0))
    for number in range(30):
        node.observe("honest", 20.0, near, float(number))
        node.observe("liar", 20.0, far, float(number))
    node.forget("liar")
    for number in range(30, 90):
        node.observe("honest", 20.0, near, float(number))
    assert abs(node.coordinate.distance_ms(near) - 20.0) < 1.0

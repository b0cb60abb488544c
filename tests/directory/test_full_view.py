"""The full view: nearest nodes, owners of keys, and round-trip times, over a membership that stands still."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from sbon_node.directory.view import FullView
from sbon_node.space.coordinate import Coordinate


class StillMembership:
    """Members with their coordinates; ``measured`` is what this node, ``own_name``, has measured itself."""

    def __init__(self, places: dict[str, Coordinate | None], own_name: str, measured: dict[str, float] | None = None) -> None:
        self.places, self._own_name, self.measured = places, own_name, measured or {}

    @property
    def own_name(self) -> str:
        return self._own_name

    def alive(self) -> list[str]:
        return sorted(name for name in self.places if name != self._own_name)

    def coordinate_of(self, name: str) -> Coordinate | None:
        return self.places.get(name)

    def rtt_ms(self, name: str) -> float | None:
        return self.measured.get(name)


def view(places: dict[str, Coordinate | None], own_name: str = "a", measured: dict[str, float] | None = None) -> FullView:
    return FullView(StillMembership(places, own_name, measured))


def at(*vector: float, load: float = 0.0, height: float = 0.0) -> Coordinate:
    return Coordinate(vector=vector, load=load, height=height)


PLACES: dict[str, Coordinate | None] = {
    "a": at(0, 0, 0),
    "b": at(10, 0, 0),
    "c": at(0, 10, 0),
    "d": at(3, 4, 0, load=12),
    "e": at(0, 0, 50),
    "nowhere": None,
}
ORIGIN = (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "k, exclude, load, expected",
    [
        (3, (), True, [("a", 0), ("b", 10), ("c", 10)]),
        (3, (), False, [("a", 0), ("d", 5), ("b", 10)]),
        (4, (), True, [("a", 0), ("b", 10), ("c", 10), ("d", 13)]),
        (2, ("a", "b"), True, [("c", 10), ("d", 13)]),
        (99, (), True, [("a", 0), ("b", 10), ("c", 10), ("d", 13), ("e", 50)]),
        (0, (), True, []),
        (3, tuple(PLACES), True, []),
    ],
)
def test_nearest(k: int, exclude: tuple[str, ...], load: bool, expected: list[tuple[str, float]]) -> None:
    found = view(PLACES).nearest(ORIGIN, k, exclude=frozenset(exclude), load=load)
    assert [name for name, _ in found] == [name for name, _ in expected]
    assert [distance for _, distance in found] == pytest.approx([distance for _, distance in expected])


def test_nearest_is_what_sorting_all_by_cost_gives() -> None:
    rng = random.Random(4)
    places: dict[str, Coordinate | None] = {
        f"n{i:03}": at(*(rng.uniform(-99, 99) for _ in range(3)), load=rng.uniform(0, 80), height=rng.uniform(0, 9))
        for i in range(200)
    }
    point = (5.0, -7.0, 20.0)
    by_cost = sorted(
        (math.hypot(math.dist(point, place.vector), place.load) + place.height, name)
        for name, place in places.items()
        if place is not None
    )
    found = view(places, "n000").nearest(point, 25)
    assert [name for name, _ in found] == [name for _, name in by_cost[:25]]


@pytest.mark.parametrize(
    "a, b, expected",
    [
        ("a", "b", (31.0, True)),
        ("b", "a", (31.0, True)),
        ("a", "c", (10.0, False)),
        ("b", "c", (200**0.5, False)),
        ("d", "d", (0.0, True)),
        ("a", "nowhere", (7.0, True)),
        ("b", "nowhere", (0.0, False)),
    ],
)
def test_a_measurement_beats_the_coordinates(a: str, b: str, expected: tuple[float, bool]) -> None:
    rtt_ms, measured = view(PLACES, measured={"b": 31.0, "nowhere": 7.0}).estimate_rtt_ms(a, b)
    assert (pytest.approx(rtt_ms), measured) == expected


NODES: dict[str, Coordinate | None] = {f"n{i}": None for i in range(10)}


def test_every_node_names_the_same_owners() -> None:
    for key in ("flights", "q-1", ""):
        owners = view(NODES, "n0").owner(key, 3)
        assert owners == view(NODES, "n7").owner(key, 3)
        assert len(set(owners)) == 3
        assert owners[:1] == view(NODES, "n0").owner(key)
    assert view(NODES, "n0").owner("flights", 3) == ["n8", "n9", "n4"]
    assert len(view(NODES, "n0").owner("flights", 99)) == 10


def test_keys_are_spread_and_a_node_that_goes_moves_only_its_own() -> None:
    keys = [f"key-{i}" for i in range(2000)]
    before = {key: view(NODES, "n0").owner(key)[0] for key in keys}
    shares = Counter(before.values())
    assert set(shares) == set(NODES)
    assert max(shares.values()) < 1.4 * 200
    rest = {name: place for name, place in NODES.items() if name != "n3"}
    after = {key: view(rest, "n0").owner(key)[0] for key in keys}
    assert {key for key in keys if before[key] != after[key]} == {key for key in keys if before[key] == "n3"}

"""The full view: nearest nodes, owners of keys, and round-trip times, over a membership that stands still."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbon_node.net.transport import Address
from sbon_node.overlay.directory.measuring import MeasuredPairs, Measurement, Outcome, Pair
from sbon_node.overlay.directory.view import FullView
from sbon_node.overlay.membership.views import MemberView
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_protocol.messages import NodeMeta


class StillMembership:
    """Members with their coordinates; ``measured`` is what this node, ``own_name``, has measured itself. Their cores are as many
    as their names have characters."""

    def __init__(self, places: Mapping[str, Coordinate | None], own_name: str, measured: dict[str, float] | None = None) -> None:
        self.places, self._own_name, self.measured = places, own_name, measured or {}

    @property
    def own_name(self) -> str:
        return self._own_name

    def alive(self) -> list[str]:
        return sorted(name for name in self.places if name != self._own_name)

    def get(self, name: str) -> MemberView | None:
        return MemberView(
            name=name,
            state="alive",
            address=Address("h", 1),
            api=Address("h", 2),
            incarnation=1,
            coordinate=self.places[name],
            rtt_ms=None,
            meta=NodeMeta({}, cores=float(len(name))),
        )

    def coordinate_of(self, name: str) -> Coordinate | None:
        return self.places.get(name)

    def coordinate_age_s(self, name: str) -> float | None:
        return None if self.places.get(name) is None else 3.0

    def rtt_ms(self, name: str) -> float | None:
        return self.measured.get(name)


class StillPairs:
    """Pairs that were measured before, and no others."""

    def __init__(self, pairs: Mapping[Pair, float]) -> None:
        self.pairs = MeasuredPairs(limit=16)
        for pair, rtt_ms in pairs.items():
            self.pairs.put(pair, Measurement(rtt_ms, pair[0], 0.0))

    def known(self, pair: Pair) -> Measurement | None:
        return self.pairs.get(pair, 1.0, 0.0)

    def fresh(self) -> Iterable[tuple[Pair, Measurement]]:
        return self.pairs.fresh(1.0, 0.0)

    async def measure(
        self, pairs: Sequence[Pair], *, max_age_s: float | None = None, sparing: bool = False
    ) -> Mapping[Pair, Outcome]:
        return {pair: known for pair in pairs if (known := self.known(pair)) is not None}


def view(
    places: Mapping[str, Coordinate | None],
    own_name: str = "a",
    measured: dict[str, float] | None = None,
    pairs: Mapping[Pair, float] | None = None,
) -> FullView:
    return FullView(StillMembership(places, own_name, measured), StillPairs(pairs or {}), 50.0)


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
    "k, exclude, expected",
    [
        (3, (), [("a", 0), ("b", 10), ("c", 10)]),
        (4, (), [("a", 0), ("b", 10), ("c", 10), ("d", 13)]),
        (2, ("a", "b"), [("c", 10), ("d", 13)]),
        (99, (), [("a", 0), ("b", 10), ("c", 10), ("d", 13), ("e", 50)]),
        (0, (), []),
        (3, tuple(PLACES), []),
    ],
)
def test_nearest(k: int, exclude: tuple[str, ...], expected: list[tuple[str, float]]) -> None:
    found = view(PLACES).nearest(ORIGIN, k, exclude=frozenset(exclude))
    assert [name for name, _ in found] == [name for name, _ in expected]
    assert [distance for _, distance in found] == pytest.approx([distance for _, distance in expected])


numbers = st.integers(-3, 3).map(float)
coordinates = st.builds(
    lambda x, height, load: Coordinate(vector=(x,), height=height, load=load), numbers, numbers.map(abs), numbers.map(abs)
)
"""On a line, a few milliseconds apart: many are as far as others, exactly."""


@given(
    places=st.dictionaries(st.text("abc", min_size=1, max_size=4), st.none() | coordinates, min_size=1),
    point=st.tuples(numbers),
    k=st.integers(-1, 9),
    exclude=st.frozensets(st.text("abc", min_size=1, max_size=2)),
    cores=st.none() | st.integers(1, 4),
)
def test_nearest_is_what_sorting_all_that_fulfil_the_condition_by_cost_and_name_gives(
    places: dict[str, Coordinate | None],
    point: tuple[float],
    k: int,
    exclude: frozenset[str],
    cores: int | None,
) -> None:
    by_cost = sorted(
        (math.hypot(math.dist(point, place.vector), place.load) + place.height, name)
        for name, place in places.items()
        if place is not None and name not in exclude and (cores is None or len(name) >= cores)
    )
    condition = None if cores is None else lambda member: member.meta.cores >= cores
    found = view(places, next(iter(places))).nearest(point, k, condition, exclude=exclude)
    assert [distance for _, distance in found] == pytest.approx([distance for distance, _ in by_cost[: max(0, k)]])
    assert [name for name, _ in found] == [name for _, name in by_cost[: max(0, k)]]


@pytest.mark.parametrize(
    "a, b, expected, source",
    [
        ("a", "b", 31.0, "probes"),
        ("b", "a", 31.0, "probes"),
        ("a", "c", 12.0, "measured"),
        ("c", "a", 12.0, "measured"),
        ("b", "c", 200**0.5, "coordinates"),
        ("d", "d", 0.0, "self"),
        ("a", "nowhere", 7.0, "probes"),
        ("e", "nowhere", 55.0, "measured"),
        ("b", "nowhere", None, "unknown"),
    ],
)
def test_probes_beat_what_was_measured_on_request_which_beats_the_coordinates(
    a: str, b: str, expected: float | None, source: str
) -> None:
    pairs = {("a", "b"): 99.0, ("c", "a"): 12.0, ("nowhere", "e"): 55.0}
    found = view(PLACES, measured={"b": 31.0, "nowhere": 7.0}, pairs=pairs).estimate_rtt_ms(a, b)
    assert found.rtt_ms == (None if expected is None else pytest.approx(expected))
    assert found.one_way_ms == (None if expected is None else pytest.approx(expected / 2))
    assert (found.source, found.measured) == (source, source not in ("coordinates", "unknown"))


def test_all_at_once_are_as_one_by_one() -> None:
    """Any nodes in any order, this one among them or not; NaN stands for what is not known."""
    measured, pairs = {"a": 0.0, "b": 31.0, "nowhere": 7.0}, {("a", "b"): 99.0, ("c", "a"): 12.0, ("nowhere", "e"): 55.0}
    places = {**PLACES, "b": at(10, 0, 0, height=4.0)}
    known, blind = view(places, measured=measured, pairs=pairs), view(places)
    for sources, targets in (("abcde", "edcba"), (["nowhere", "b"], ["e", "b", "nowhere"]), (["c", "c"], "a"), ("", "ab")):
        for asked, directory in ((True, known), (False, blind)):
            expected = [[directory.estimate_rtt_ms(a, b).rtt_ms for b in targets] for a in sources]
            found = known.estimates_ms(sources, targets, measured=asked)
            assert found.shape == (len(sources), len(targets))
            assert found.tolist() == [
                pytest.approx([np.nan if ms is None else ms for ms in row], nan_ok=True) for row in expected
            ]


def test_keys_belong_to_this_node_and_those_that_are_there() -> None:
    assert sorted(view(PLACES, "a").owner("flights", 99)) == sorted(PLACES)
    assert view(PLACES, "a").owner("flights", 2) == view(PLACES, "e").owner("flights", 2)


def test_a_key_is_routed_to_its_owner_and_nodes_whose_place_is_unknown_are_the_last_resort() -> None:
    names = [f"m{i}" for i in range(40)]
    known = view({name: at(float(i), 0, 0) for i, name in enumerate(names)}, "m0")
    for key in ("flights", "weather", "taxis"):
        assert known.route(key)[0] == "m0"
        assert known.route(key, "m7")[0] == "m7"
        assert known.route(key)[-1] == known.route(key, "m7")[-1] == known.owner(key)[0]
    lost = view({name: at(float(i), 0, 0) if i % 2 else None for i, name in enumerate(names)}, "m1")
    routes = [lost.route_to(target) for target in names]
    assert [(route[0], route[-1]) for route in routes] == [("m1", name) for name in names]
    first = {route[1] for route in routes if len(route) > 2}
    assert first
    assert all(int(name[1:]) % 2 for name in first)

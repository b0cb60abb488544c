"""Prefix routing: tables as their definition says, and routes that arrive, in few hops, on short ways."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbon_node.overlay.directory.view import ID_BITS, PrefixRouting, identifier


class Plane:
    """Nodes at random places in a square of 100 ms."""

    def __init__(self, count: int, seed: int) -> None:
        rng = random.Random(seed)
        self.points = {f"n{i}": (rng.uniform(0, 100), rng.uniform(0, 100)) for i in range(count)}

    def far(self, a: str, b: str) -> float:
        return math.dist(self.points[a], self.points[b])

    def latencies(self, node: str, others: object) -> list[float]:
        return [self.far(node, other) for other in others]  # type: ignore[attr-defined]

    def length(self, route: list[str]) -> float:
        return sum(self.far(a, b) for a, b in itertools.pairwise(route))


def digits(name: str, bits: int) -> list[int]:
    return [identifier(name) >> rest & ((1 << bits) - 1) for rest in range(ID_BITS - bits, -1, -bits)]


def test_identifiers_are_those_of_another_implementation() -> None:
    """By coreutils: ``printf são | b2sum -l 128``."""
    assert f"{identifier('são'):032x}" == "8ba0069de57f89ccb2d50542ae32202a"


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_an_entry_is_the_nearest_of_those_with_its_prefix(bits: int) -> None:
    plane = Plane(60, 1)
    routing = PrefixRouting(plane.points, plane.latencies, bits)
    for node in list(plane.points)[:10]:
        own = digits(node, bits)
        expected: dict[tuple[int, int], str] = {}
        for name in sorted((name for name in plane.points if name != node), key=lambda name: plane.far(node, name)):
            other = digits(name, bits)
            row = next(i for i, (a, b) in enumerate(zip(own, other, strict=True)) if a != b)
            expected.setdefault((row, other[row]), name)
        assert routing.table(node) == expected


@given(
    names=st.lists(st.text(max_size=6), min_size=1, max_size=40, unique=True), rng=st.randoms(), bits=st.sampled_from([1, 2, 4])
)
def test_every_route_arrives_and_each_hop_is_in_the_table_of_the_one_before(
    names: list[str], rng: random.Random, bits: int
) -> None:
    place = {name: rng.random() for name in names}
    routing = PrefixRouting(names, lambda node, others: [abs(place[node] - place[other]) for other in others], bits)
    source, target = rng.choice(names), rng.choice(names)
    route = routing.route(source, target)
    assert (route[0], route[-1]) == (source, target)
    for node, hop in itertools.pairwise(route):
        assert hop in routing.table(node).values()
    rng.shuffle(names)
    shuffled = PrefixRouting(names, lambda node, others: [abs(place[node] - place[other]) for other in others], bits)
    assert shuffled.route(source, target) == route


def test_routes_have_some_log_n_hops_and_are_shorter_by_near_neighbours() -> None:
    """To the base of 4 each hop settles a digit or more, of which log4 n and a little tell nodes apart."""
    plane, rng = Plane(400, 2), random.Random(3)
    near = PrefixRouting(plane.points, plane.latencies)
    order = {name: rng.random() for name in plane.points}
    anyone = PrefixRouting(plane.points, lambda _, others: [order[other] for other in others])
    pairs = [tuple(rng.sample(sorted(plane.points), 2)) for _ in range(300)]
    hops = [len(near.route(*pair)) - 1 for pair in pairs]
    assert max(hops) <= math.log(400, 4) + 4
    assert 0.7 * math.log(400, 4) < sum(hops) / len(hops) < math.log(400, 4) + 0.5
    direct = sum(plane.far(*pair) for pair in pairs)
    stretch, of_anyone = (sum(plane.length(r.route(*pair)) for pair in pairs) / direct for r in (near, anyone))
    assert stretch < 2.2
    assert of_anyone > 1.6 * stretch


def test_a_target_that_is_no_member_is_refused() -> None:
    plane = Plane(5, 1)
    with pytest.raises(ValueError, match="not among"):
        PrefixRouting(plane.points, plane.latencies).route("n1", "stranger")

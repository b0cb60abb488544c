"""The decision to move an operator, against closed forms: when it may move, when to look, and what has to be saved."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbon_node.adaptation.rules import (
    EXPECTED_FOLLOW_S,
    EXPECTED_PAUSE_S,
    HOUR_MS,
    VIRTUAL_MOVED,
    Glance,
    Link,
    Offer,
    Why,
    cost_of_move,
    decide,
    group_of,
    hastens,
    late_ms,
    left_lately,
    looks,
    may_save,
    mean_ms_of,
    once_a_node,
    outer_links,
    usage_of,
    waits,
    way_of,
)
from sbon_node.adaptation.settings import PRESETS, AdaptationSettings, preset
from sbon_protocol.api.adaptation import PastMove

CALM = AdaptationSettings()
NOW_MS = 10 * HOUR_MS
LINKS = (Link("q.s1", "paris", 3000.0, True), Link("q.s2", "london", 1000.0, True), Link("q.sink", "oslo", 500.0, False))
HERE_MS = {"paris": 20.0, "london": 40.0, "oslo": 8.0}


def left(node: str, ago_s: float) -> PastMove:
    return PastMove(node=node, at_ms=round(NOW_MS - ago_s * 1000))


def offer(usage: float, way_ms: float = 10.0, path_ms: float = 25.0) -> Offer:
    return Offer("rome", usage, way_ms, path_ms)


def test_usage_is_rate_by_latency_and_the_way_is_the_longest() -> None:
    assert usage_of(LINKS, HERE_MS) == pytest.approx(3000 * 0.020 + 1000 * 0.040 + 500 * 0.008)
    assert way_of(LINKS, HERE_MS) == 40.0 + 8.0


def test_readers_at_one_node_count_once() -> None:
    read, first, second, third = (
        Link("q.s1", "oslo", 3000.0, True),
        Link("q.sink", "oslo", 500.0, False),
        Link("r.sink", "oslo", 500.0, False),
        Link("s.o1", "rome", 500.0, False),
    )
    again = [read, first, second, third]
    assert [link.bytes_s for link in once_a_node(again)] == [3000.0, 250.0, 250.0, 500.0]
    assert usage_of(once_a_node(again), {"oslo": 10.0, "rome": 100.0}) == pytest.approx(3000 * 0.01 + 500 * 0.01 + 500 * 0.1)
    other = read._replace(vertex="q.s2")
    assert once_a_node([read, read, other]) == (read._replace(bytes_s=1500.0), read._replace(bytes_s=1500.0), other)


@pytest.mark.parametrize(
    "measured_s, past, code",
    [
        (29.9, (), "measures"),
        (30.0, (), None),
        (99.0, (left("a", 299),), "rests"),
        (99.0, (left("a", 301),), None),
        (99.0, (left("a", -5),), "rests"),  # the clock of the former host is ahead
        (99.0, (left("a", -3601),), None),  # its clock is wrong
        (99.0, (left("a", -9e6),) * 16, None),
        (99.0, tuple(left(node, ago_s) for node, ago_s in (("a", 3500), ("b", 2000), ("c", 1500), ("d", 400))), "moved-often"),
        (99.0, tuple(left(node, ago_s) for node, ago_s in (("a", 3700), ("b", 2000), ("c", 1500), ("d", 400))), None),
    ],
)
def test_an_operator_waits(measured_s: float, past: tuple[PastMove, ...], code: str | None) -> None:
    why = waits(measured_s, past, NOW_MS, CALM)
    assert (why.code if why is not None else None) == code


@pytest.mark.parametrize(
    "virtual, usage, now_s, code",
    [
        ((0.0, 4.9), 1000.0, 10.0, "unchanged"),
        ((3.0, 4.1), 1000.0, 10.0, "virtual-moved"),
        ((0.0, 0.0), 1099.0, 10.0, "unchanged"),
        ((0.0, 0.0), 1101.0, 10.0, "usage-grown"),
        ((0.0, 0.0), 500.0, 10.0, "unchanged"),
        ((0.0, 0.0), 1000.0, 900.0, "looked-long-ago"),
    ],
)
def test_another_host_is_looked_for_if_something_has_changed(
    virtual: tuple[float, ...], usage: float, now_s: float, code: str
) -> None:
    assert looks(virtual, usage, now_s, Glance((0.0, 0.0), 1000.0, 0.0), CALM).code == code


@pytest.mark.parametrize("links_ms, code", [(79.0, "virtual-moved"), (81.0, "unchanged")])
def test_a_virtual_coordinate_among_far_neighbours_may_move_further(links_ms: float, code: str) -> None:
    assert looks((0.0, 8.0), 1000.0, 10.0, Glance((0.0, 0.0), 1000.0, 0.0), CALM, links_ms=links_ms).code == code
    assert mean_ms_of(LINKS, HERE_MS) == pytest.approx(1000 * usage_of(LINKS, HERE_MS) / 4500)


@pytest.mark.parametrize("there, code", [(97.0, "virtual-moved"), (99.0, "unchanged"), (101.0, "unchanged")])
def test_nothing_is_measured_where_no_node_is_better_by_the_coordinates(there: float, code: str) -> None:
    looked, eager = Why(VIRTUAL_MOVED, "it has moved"), preset("eager")
    assert may_save(looked, {"oslo": 100.0, "rome": there, "bonn": 300.0}, "oslo", eager).code == code
    assert may_save(looked, {"rome": there}, "oslo", eager) == looked
    assert may_save(looked, {"oslo": 100.0}, "oslo", eager) == looked


def test_the_first_look_needs_no_change_and_little_usage_never_grows() -> None:
    assert looks((0.0,), 0.0, 0.0, None, CALM).code == "first-look"
    assert looks((0.0,), 60.0, 1.0, Glance((0.0,), 11.0, 0.0), CALM).code == "unchanged"
    assert looks((0.0,), 62.0, 1.0, Glance((0.0,), 11.0, 0.0), CALM).code == "usage-grown"


def test_the_cost_of_a_move_has_three_parts() -> None:
    copy, twice = 1_000_000 * 0.025, EXPECTED_FOLLOW_S * 60.0
    pause = 4000.0 * EXPECTED_PAUSE_S**2 / 2
    assert cost_of_move(LINKS, 1_000_000, offer(60.0)) == pytest.approx(copy + twice + pause)


@pytest.mark.parametrize(
    "usage, there, cost, past_s, bounded, way_ms, code",
    [
        (1000.0, 800.0, 1000.0, (), False, 10.0, "saves"),
        (1000.0, 901.0, 1000.0, (), False, 10.0, "saves-little"),
        (1000.0, 1000.0, 0.0, (), False, 10.0, "no-better"),
        (1000.0, 1200.0, 0.0, (), False, 10.0, "no-better"),
        (400.0, 351.0, 0.0, (), False, 10.0, "saves-little"),  # a large share, but less than 50 bytes
        (1000.0, 800.0, 119_000.0, (), False, 10.0, "saves"),
        (1000.0, 800.0, 121_000.0, (), False, 10.0, "costs-more"),  # 200 bytes saved for 600 s
        (1000.0, 800.0, 0.0, (400, 1000), False, 10.0, "saves-little"),  # 30 % after two moves within the hour
        (1000.0, 690.0, 0.0, (400, 1000), False, 10.0, "saves"),
        (1000.0, 800.0, 0.0, (3700, 4000), False, 10.0, "saves"),
        (1000.0, 800.0, 0.0, (), True, 12.1, "too-slow"),
        (1000.0, 800.0, 0.0, (), True, 12.0, "saves"),
        (1000.0, 800.0, 0.0, (), False, 12.1, "saves"),
    ],
)
def test_a_move_has_to_pay(
    usage: float, there: float, cost: float, past_s: tuple[float, ...], bounded: bool, way_ms: float, code: str
) -> None:
    past = tuple(left("a", ago_s) for ago_s in past_s)
    why = decide(usage, 12.0, offer(there, way_ms), cost, past, NOW_MS, CALM, bounded=bounded)
    assert why.code == code
    assert "rome" in why.text


def test_hosts_that_were_left_lately_are_left_alone() -> None:
    past = (left("a", 1801), left("b", 1799), left("c", 5))
    assert left_lately(past, NOW_MS, CALM) == {"b", "c"}


USAGES = st.floats(min_value=0, max_value=1e12)


@given(USAGES, USAGES, USAGES, st.integers(0, 16))
def test_no_move_loses(usage: float, there: float, cost: float, moves: int) -> None:
    """A move saves at least its share and its cost, and never so little that going back could save it again."""
    past = tuple(left("a", 100.0 * number) for number in range(moves, 0, -1))
    why = decide(usage, 0.0, offer(there), cost, past, NOW_MS, CALM)
    if why.code == "saves":
        assert usage - there >= max(CALM.least_saving * (1 + moves) * usage * (1 - 1e-9), CALM.least_saving_bytes)
        assert (usage - there) * CALM.payback_s >= cost
        assert decide(there, 0.0, offer(usage), 0.0, past, NOW_MS, CALM).code == "no-better"


@given(st.lists(st.floats(0, 7200), max_size=16), st.floats(0, 1e6))
def test_an_operator_moves_at_most_so_often(ago_s: list[float], measured_s: float) -> None:
    past = tuple(left("a", ago) for ago in sorted(ago_s, reverse=True))
    if waits(measured_s, past, NOW_MS, CALM) is None:
        assert sum(move.at_ms > NOW_MS - HOUR_MS for move in past) < CALM.most_moves


def test_presets_keep_a_host_for_ten_periods() -> None:
    for name in PRESETS:
        settings = preset(name)
        assert settings.return_s >= 10 * settings.period_s
        assert settings.most_moves <= 5
        assert math.isfinite(settings.payback_s)


def test_a_node_that_has_joined_is_looked_at_if_it_saves_enough() -> None:
    last = Glance((0.0,), 1000.0, 0.0)
    assert looks((0.0,), 1000.0, 1.0, last, CALM, joined={"far": 2000.0, "near": 899.0}).code == "joined"
    assert looks((0.0,), 1000.0, 1.0, last, CALM, joined={"far": 2000.0, "near": 901.0}).code == "unchanged"


@pytest.mark.parametrize(
    "there, way_ms, bounded, code",
    [
        (1490.0, 10.0, False, "relieves"),
        (1510.0, 10.0, False, "too-far"),
        (500.0, 10.0, False, "relieves"),
        (1200.0, 20.0, True, "no-better"),  # a longer way, although the query has a bound
        (900.0, 20.0, True, "too-slow"),
    ],
)
def test_an_operator_leaves_an_overloaded_node_within_limits(there: float, way_ms: float, bounded: bool, code: str) -> None:
    why = decide(1000.0, 12.0, offer(there, way_ms), 1e9, (), NOW_MS, CALM, bounded=bounded, overloaded=True)
    assert why.code == code


def test_a_group_has_the_links_that_leave_it() -> None:
    links = {
        "q.a": (Link("q.s", "paris", 10.0, True), Link("q.b", "here", 500.0, False)),
        "q.b": (Link("q.a", "here", 500.0, True), Link("q.c", "here", 400.0, False)),
        "q.c": (Link("q.b", "here", 400.0, True), Link("q.sink", "oslo", 5.0, False)),
        "q.z": (Link("q.s", "paris", 10.0, True), Link("q.sink", "oslo", 5.0, False)),
    }
    assert group_of("q.b", links) == ("q.a", "q.b", "q.c")
    assert group_of("q.z", links) == ("q.z",)
    assert outer_links(("q.a", "q.b", "q.c"), links) == (links["q.a"][0], links["q.c"][1])
    assert outer_links(("q.a",), links) == links["q.a"]


@pytest.mark.parametrize(
    "delay_ms, bound_ms, late",
    [(100.0, 100.0, 10.0), (90.0, 100.0, 0.0), (250.0, 100.0, 160.0), (None, 100.0, 0.0), (900.0, None, 0.0)],
)
def test_a_query_is_late_if_its_bound_is_about_to_be_broken(delay_ms: float | None, bound_ms: float | None, late: float) -> None:
    assert late_ms(delay_ms, bound_ms, CALM) == pytest.approx(late)


@pytest.mark.parametrize(
    "way_ms, there_ms, past_s, code",
    [
        (100.0, 90.0, (), "hastens"),
        (100.0, 91.0, (), "no-faster"),
        (100.0, 85.0, (1000,), "no-faster"),  # a fifth after a move within the hour
        (100.0, 80.0, (1000,), "hastens"),
        (5.0, 4.1, (), "no-faster"),  # less than a millisecond
        (100.0, 120.0, (), "no-faster"),
    ],
)
def test_a_late_query_gets_shorter_ways_whatever_they_cost(
    way_ms: float, there_ms: float, past_s: tuple[float, ...], code: str
) -> None:
    past = tuple(left("a", ago_s) for ago_s in past_s)
    assert hastens(way_ms, 30.0, offer(1e9, there_ms), past, NOW_MS, CALM).code == code

"""The decision to move two linked operators at two nodes, against closed forms."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbon_node.adaptation.rules import EXPECTED_FOLLOW_S, EXPECTED_PAUSE_S, Hosts, Link, Pair, Side, cost_of_moves, weigh
from sbon_node.adaptation.settings import AdaptationSettings
from sbon_protocol.api.adaptation import MoveDecision, PastMove
from sbon_protocol.api.operators import Needs
from sbon_protocol.codec import decode_record
from sbon_protocol.moving import JointLink
from tests.adaptation.test_rules import NOW_MS

CALM = AdaptationSettings()
PLACES = {"oslo": 0.0, "bonn": 10.0, "rome": 70.0, "bari": 75.0}
"""Nodes on a line; latency is distance, in milliseconds."""


def latency(one: str, other: str) -> float:
    return abs(PLACES[one] - PLACES[other])


def side(operator: str, node: str, *links: Link, state_bytes: int = 0, past: tuple[PastMove, ...] = ()) -> Side:
    return Side(operator, node, links, Needs(), state_bytes, past, frozenset())


def chain(writer: str = "rome", reader: str = "bari", *, past: tuple[PastMove, ...] = (), state_bytes: int = 0) -> Pair:
    """Return a filter and the aggregate that reads it; the source is at oslo, the sink at bonn."""
    return Pair(
        side("q.o1", writer, Link("s", "oslo", 5000.0, True), Link("q.o2", reader, 4000.0, False), past=past),
        side("q.o2", reader, Link("q.o1", writer, 4000.0, True), Link("q.sink", "bonn", 100.0, False), state_bytes=state_bytes),
    )


def swapped(pair: Pair) -> Pair:
    return Pair(pair.second, pair.first)


def test_usage_counts_the_link_between_them_once() -> None:
    pair = chain()
    assert pair.usage(("rome", "bari"), latency) == pytest.approx(5000 * 0.070 + 4000 * 0.005 + 100 * 0.065)
    assert pair.usage(("oslo", "oslo"), latency) == pytest.approx(100 * 0.010)
    assert pair.usage(("oslo", "bonn"), latency) == pytest.approx(4000 * 0.010)


def test_the_way_of_rows_is_the_longest_through_both() -> None:
    pair = chain()
    assert pair.way_ms(("rome", "bari"), latency) == 70 + 5 + 65
    assert pair.way_ms(("oslo", "bonn"), latency) == 0 + 10 + 0
    third = Link("q.o3", "bari", 1.0, True)
    joined = Pair(pair.first, pair.second._replace(links=(*pair.second.links, third)))
    assert joined.way_ms(("oslo", "oslo"), latency) == 75 + 10  # what the reader reads besides


def test_both_moves_cost_something() -> None:
    pair = chain(state_bytes=1_000_000)
    expected = 1_000_000 * 0.075 + EXPECTED_FOLLOW_S * 2.0 + (5000 + 4000) * EXPECTED_PAUSE_S**2 / 2
    assert cost_of_moves(pair, ("oslo", "oslo"), 2.0, latency) == pytest.approx(expected)


@pytest.mark.parametrize(
    "hosts, moves, state_bytes, bounded, code",
    [
        (("oslo", "oslo"), 0, 0, False, "saves"),
        (("oslo", "rome"), 0, 0, False, "saves"),
        (("bonn", "bonn"), 0, 0, True, "saves"),
        (("rome", "rome"), 0, 0, False, "saves-little"),  # 5 %
        (("bari", "rome"), 0, 0, False, "no-better"),
        (("oslo", "oslo"), 9, 0, False, "saves-little"),  # nine moves within the hour
        (("oslo", "oslo"), 0, 4_000_000_000, False, "costs-more"),
    ],
)
def test_two_moves_have_to_pay_together(hosts: Hosts, moves: int, state_bytes: int, bounded: bool, code: str) -> None:
    past = tuple(PastMove(node="kyiv", at_ms=NOW_MS - 1000 * number) for number in range(moves))
    pair = chain(past=past, state_bytes=state_bytes)
    assert weigh(pair, hosts, latency, NOW_MS, CALM, bounded=bounded).why.code == code
    assert weigh(swapped(pair), hosts[::-1], latency, NOW_MS, CALM, bounded=bounded).why.code == code


def test_rows_of_a_bounded_query_take_no_longer_way() -> None:
    """Usage falls with the heavy link, but the way from the light one to the sink grows."""
    light = Link("t", "oslo", 1.0, True)
    pair = Pair(
        side("q.o1", "bonn", Link("s", "bari", 5000.0, True), Link("q.o2", "bonn", 4000.0, False)),
        side("q.o2", "bonn", Link("q.o1", "bonn", 4000.0, True), light, Link("q.sink", "oslo", 1.0, False)),
    )
    hosts = ("rome", "rome")
    assert weigh(pair, hosts, latency, NOW_MS, CALM, bounded=False).pays
    assert weigh(pair, hosts, latency, NOW_MS, CALM, bounded=True).why.code == "too-slow"


def test_sides_must_agree_on_the_link() -> None:
    pair = chain()
    assert pair.is_linked()
    assert not Pair(pair.first, pair.second._replace(links=pair.second.links[1:])).is_linked()
    assert not Pair(pair.first._replace(links=pair.first.links[:1]), pair.second).is_linked()
    both_write = pair.second.links[0]._replace(reads=False)
    assert not Pair(pair.first, pair.second._replace(links=(both_write, pair.second.links[1]))).is_linked()


def test_both_are_placed_with_the_others_where_they_are() -> None:
    problem = chain().problem()
    assert [operator.id for operator in problem.operators] == ["q.o1", "q.o2"]
    assert [operator.id for operator in swapped(chain()).problem().operators] == ["q.o1", "q.o2"]
    assert {(edge.source, edge.target, edge.rate_bytes_s) for edge in problem.edges} == {
        ("s", "q.o1", 5000.0),
        ("q.o1", "q.o2", 4000.0),
        ("q.o2", "q.sink", 100.0),
    }
    assert set(problem.pinned.values()) == {"oslo", "bonn", "rome", "bari"}


NODES = st.sampled_from(sorted(PLACES))


@given(NODES, NODES, NODES, NODES)
def test_both_hosts_decide_alike(writer: str, reader: str, there: str, there_too: str) -> None:
    """From either side the numbers are the same, so what one host proposes the other accepts."""
    pair, hosts = chain(writer, reader), (there, there_too)
    one = weigh(pair, hosts, latency, NOW_MS, CALM, bounded=True)
    other = weigh(swapped(pair), hosts[::-1], latency, NOW_MS, CALM, bounded=True)
    assert (one.usage, one.usage_there, one.cost) == pytest.approx((other.usage, other.usage_there, other.cost))
    assert one.why.code == other.why.code


STATED = st.builds(
    JointLink,
    st.sampled_from(["q.o1", "s", "q.sink"]),
    st.sampled_from(["rome", "oslo", "bonn"]),
    st.floats(0.0, 1e15) | st.just(1e15),
    st.booleans(),
)


@given(
    links=st.lists(STATED, min_size=1, max_size=3, unique_by=lambda link: link.vertex).map(tuple),
    state_bytes=st.integers(0, 2**62),
    hosts=st.tuples(st.sampled_from(["oslo", "bonn"]), st.sampled_from(["oslo", "bonn"])),
)
@example(links=(JointLink("q.o1", "rome", 1e15, True),), state_bytes=2**62, hosts=("oslo", "oslo"))
def test_a_decision_about_whatever_another_node_states_can_be_sent(
    links: tuple[JointLink, ...], state_bytes: int, hosts: Hosts
) -> None:
    other = side("q.o2", "bari", *(Link(one.vertex, one.node, one.bytes_s, one.reads) for one in links), state_bytes=state_bytes)
    pair = Pair(chain().first, other)
    weighed = weigh(pair, hosts, lambda one, other: 1000 * latency(one, other), NOW_MS, CALM, bounded=True)
    decision = MoveDecision(
        operator="q.o1",
        node="rome",
        at_ms=NOW_MS,
        verdict="stays",
        code=weighed.why.code,
        reason=weighed.why.text,
        usage=weighed.usage,
        usage_there=weighed.usage_there,
        cost=weighed.cost,
    )
    assert decode_record(msgspec.to_builtins(decision), MoveDecision) == decision

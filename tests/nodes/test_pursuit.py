"""When the origin of a move should stop: while its follower has the origin's last batch alone to run."""

from __future__ import annotations

import pytest

from sbon_node.engine.alignment import Cut, cut_of
from sbon_node.hosting.moving.ends import Batch, Position, Pursuit
from sbon_node.model.frames import InputOffset

NEAR_S = 5.0


def cut(frame: int, watermark_ms: int = 0, next_ms: int = 0) -> Cut:
    return cut_of((InputOffset(frame=frame),), watermark_ms, next_ms or watermark_ms)


def pursuit(*positions: Position, has_state: bool = True, near_batches: int = 3) -> Pursuit:
    made = Pursuit(has_state=has_state, near_s=NEAR_S, near_batches=near_batches)
    for position in positions:
        made.note(position)
    return made


RUNNING = (Position(cut(10, 1, 2), ((20,),)), Position(cut(20, 2, 3), ((30,),)))
"""The origin has shown batches up to frame 20, and runs one up to 30."""
CASES = [
    ("runs the origin's newest batch", cut(20, 2, 3), ((20,), (30,)), True),
    ("has run it", cut(30, 3, 4), ((20,), (30,)), True),
    ("has the newest batch alone to run", cut(20, 1, 3), ((10,), (20,)), True),
    ("still runs the batch before", cut(10, 1, 2), ((10,), (20,)), False),
    ("runs a longer batch to the same end", cut(10, 1, 2), ((10,), (30,)), False),
    ("has run a longer batch to the same end", cut(30, 2, 4), ((10,), (30,)), False),
    ("is far behind", cut(2), ((1,), (2,)), False),
]


@pytest.mark.parametrize(("ours", "planned", "level"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_origin_stops_when_its_last_batch_can_be_repeated(ours: Cut, planned: tuple[Batch, Batch], level: bool) -> None:
    assert pursuit(*RUNNING).is_level(ours, planned, 0.0) == level


def test_an_operator_without_state_may_end_with_any_batch() -> None:
    assert pursuit(*RUNNING, has_state=False).is_level(cut(10), ((10,), (30,)), 0.0)


def test_an_idle_origin_stops_once_both_have_emitted_the_same_or_rest() -> None:
    copied = pursuit(Position(cut(10, 1, 2)))
    assert copied.is_level(cut(10, 1, 2), None, 0.0)
    assert not copied.is_level(cut(10, 0, 2), ((0,), (10,)), 0.0)
    assert pursuit(Position(cut(10, 2))).is_level(cut(10, 1, 2), ((0,), (10,)), 0.0)


def test_a_follower_that_stays_near_is_level_at_last() -> None:
    chased = pursuit(*RUNNING)
    near = (cut(10, 1, 2), ((10,), (20,)))
    assert not chased.is_level(*near, 1.0)
    assert not chased.is_level(*near, 1.0 + NEAR_S)
    assert chased.is_level(*near, 1.1 + NEAR_S)
    assert not pursuit(*RUNNING).is_level(cut(2), ((1,), (2,)), 1e6)


@pytest.mark.parametrize(("near_batches", "level"), [(1, False), (2, True)])
def test_a_follower_is_near_within_some_of_the_newest_batches(near_batches: int, level: bool) -> None:
    """The follower runs the batch up to frame 10, and two are planned after that."""
    chased = pursuit(*RUNNING, near_batches=near_batches)
    for now_s in (1.0, 1.1 + NEAR_S):
        reached = chased.is_level(cut(5, 1, 2), ((5,), (10,)), now_s)
    assert reached == level


def test_the_follower_reads_up_to_what_is_planned_and_repeats_the_last_batch() -> None:
    chased = pursuit(*RUNNING)
    assert (chased.before, chased.newest, chased.frames_behind(cut(10))) == ((20,), (30,), 20)


def test_a_batch_that_has_run_between_two_positions_is_repeated_from_where_it_began() -> None:
    """Another batch, up to frame 35, ran unseen before it: its input gave the watermark of the newest batch."""
    chased = pursuit(*RUNNING, Position(cut(40, 4, 5), before=(35,)))
    assert (chased.before, chased.newest) == ((35,), (40,))
    chased.note(Position(cut(40, 4, 5)))  # where it settles, nothing is known of earlier batches
    assert (chased.before, chased.newest) == ((35,), (40,))
    assert pursuit(*RUNNING, Position(cut(40, 4, 5))).before == (30,)

"""Registers under random schedules: one history, whatever is lost, repeated, delayed, crashed or wiped."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ownership.world import World


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.booleans())
def test_histories_are_linearizable_and_never_go_back(seed: int, sole: bool) -> None:
    World(random.Random(seed), sole=sole).run()


def test_the_schedules_reach_what_they_are_for() -> None:
    worlds = [World(random.Random(seed), sole=seed % 2 == 0) for seed in range(60)]
    for world in worlds:
        world.run()
    assert sum(world.done for world in worlds) > 500
    assert sum(world.moves for world in worlds) > 20
    assert max(max(world.contents, default=0) for world in worlds) > 5

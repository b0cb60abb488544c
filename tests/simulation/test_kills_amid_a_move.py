"""A node dies at each ask, answer, store, copied chunk and freeze of one move: the operator goes on at one place, exactly once.

The move has five roles on five nodes: the old host and the target, the leader of the query, the host of the input, and
the reader of the output.
"""

from __future__ import annotations

import functools

import pytest

from sbon_lab.simulation.casting import NODES, Casting, Life, PlannedMove, PlannedQuery
from sbon_lab.simulation.drawing import FIFTH, OF_MOVES
from sbon_lab.simulation.faults.plan import AtFailpoint, Fault, occurrences
from sbon_lab.simulation.schedule import run_schedule

ROLES = {"leader": "h", "upstream": "s", "old host": "o", "reader": "c", "target": FIFTH}
SHORT_S, LONG_S = 1.0, 25.0
"""Too short to be noticed; and so long that all others declare the node dead."""
CHUNKS = 160
CASTING = Casting(
    nodes=(*NODES, FIFTH),
    room=(*NODES, FIFTH),
    strategy="producer",
    rows=360,
    queries=(
        PlannedQuery(
            name="q",
            lives=(Life(sql="window", moves=(PlannedMove(to="o", after_s=0.3), PlannedMove(to=FIFTH, after_s=0.1))),),
        ),
    ),
)
"""The windows move from the source's node to ``o``, and then, observed, to the fifth node; the filter stays."""


@functools.cache
def steps() -> tuple[AtFailpoint, ...]:
    """Return the steps of the second move, on all nodes."""
    outcome = run_schedule((), seed=1, casting=CASTING)
    assert not outcome.failure, outcome.failure
    assert (outcome.struck["move"], outcome.ending) == (2, "finished")
    start, end = outcome.moving[1]
    return tuple(when for when in occurrences(outcome.failpoint)[start:end] if when.step in OF_MOVES)


def faults_of(role: str) -> list[Fault]:
    node = ROLES[role]
    return [Fault(when, "kill", node, down_s=SHORT_S if number % 2 else LONG_S) for number, when in enumerate(steps())]


def play(fault: Fault) -> None:
    outcome = run_schedule([fault], seed=1, casting=CASTING)
    assert not outcome.failure, outcome.failure
    assert (outcome.ending, outcome.struck["kill"]) == ("finished", 1)


@pytest.mark.one_part_per_commit("faults in virtual time", parts=6)
def test_the_move_takes_steps_of_all_kinds_on_both_hosts() -> None:
    assert {when.step for when in steps()} == set(OF_MOVES)
    for role in ("old host", "target"):
        assert {"ask", "store", "copy"} <= {when.step for when in steps() if when.node == ROLES[role]}


@pytest.mark.one_part_per_commit(f"chunks of every {CHUNKS}th step of a move", parts=4 * CHUNKS)
@pytest.mark.parametrize("role, first", [(role, first) for role in ROLES for first in range(CHUNKS)])
def test_a_node_dies_at_each_step(role: str, first: int) -> None:
    """The nodes of one run die at steps of their own."""
    offset = list(ROLES).index(role) * CHUNKS // len(ROLES)
    for fault in faults_of(role)[(first + offset) % CHUNKS :: CHUNKS]:
        play(fault)

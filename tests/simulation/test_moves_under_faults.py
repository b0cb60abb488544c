"""Operators move to and fro while faults strike: each row is delivered once, and the checks of every step hold."""

from __future__ import annotations

import random

import pytest

from sbon_lab.simulation.casting import NODES, Casting, Life, PlannedMove, PlannedQuery
from sbon_lab.simulation.faults.plan import AtTime, Fault
from sbon_lab.simulation.schedule import run_schedule


def moves_to(*nodes: str) -> tuple[PlannedMove, ...]:
    return tuple(PlannedMove(to=node, after_s=0.0 if number else 0.5) for number, node in enumerate(nodes))


MOVES = Casting(
    room=NODES,
    rows=400,
    queries=(
        PlannedQuery(name="windows", lives=(Life(sql="window", sources=("s",), moves=moves_to("c", "h", "s")),)),
        PlannedQuery(name="filter", lives=(Life(sql="filter", sources=("o",), moves=moves_to("s", "c")),)),
    ),
)
ACTIONS = ("kill", "kill-engine", "orphan", "cut", "pause", "partition")


def faults_of(seed: int) -> list[Fault]:
    """A few faults in the time of the moves."""
    rng = random.Random(seed)
    faults = []
    for _ in range(rng.randint(1, 3)):
        node, other = rng.sample(NODES, 2)
        when, down_s = AtTime(rng.uniform(1.5, 9.0)), rng.uniform(0.1, 3.0)
        faults.append(Fault(when, rng.choice(ACTIONS), node, other, down_s))  # type: ignore[arg-type]
    return faults


@pytest.mark.one_part_per_commit("faults in virtual time", parts=6)
def test_operators_move_without_faults() -> None:
    outcome = run_schedule((), seed=1, casting=MOVES)
    assert not outcome.failure, outcome.failure
    assert outcome.struck["move"] >= 4


@pytest.mark.one_part_per_commit("seeds of moves amid faults", parts=32)
@pytest.mark.parametrize("seed", range(8))
def test_operators_move_amid_faults(seed: int) -> None:
    outcome = run_schedule(faults_of(seed), seed=seed, casting=MOVES)
    assert not outcome.failure, outcome.failure

"""The table of a move's target: every outcome has a row, and no follower publishes before the register names its node."""

from __future__ import annotations

import random
from itertools import product

import pytest

from sbon_protocol.api.states.arrival_states import (
    COPYING,
    ENDING,
    ENDS,
    FOLLOWING,
    LIFECYCLE,
    LIVE,
    OVER,
    READY,
    SETTLING,
    ArrivalEvent,
    ArrivalInstruction,
    ArrivalState,
)
from sbon_protocol.api.states.lifecycle import Transition
from sbon_protocol.errors import BrokenInvariantError

E, I = ArrivalEvent, ArrivalInstruction  # noqa: E741
Row = Transition[ArrivalState]
OUTCOMES = {
    I.READ_REGISTER: (E.NAMED, E.NAMED_STOPPED),
    I.GO_LIVE: (E.ADOPTED,),
    I.RECOVER: (E.ADOPTED,),
    I.HOST: (E.HOSTED,),
    I.DELETE: (E.DELETED,),
}
"""What comes of each instruction, unless it fails."""
ANY_TIME: dict[ArrivalState, tuple[ArrivalEvent, ...]] = {
    COPYING: (E.STARTED, E.SILENT, E.REPLACED, E.GIVEN_UP),
    FOLLOWING: (E.HALTED, E.SETTLED, E.SILENT, E.REPLACED, E.GIVEN_UP),
    SETTLING: (E.HALTED, E.SETTLED, E.NOT_SETTLED, E.REPLACED, E.GIVEN_UP),
    READY: (E.HALTED, E.SETTLED, E.ACTIVATED, E.NOT_NAMED, E.GIVEN_UP),
    LIVE: (E.HALTED, E.SETTLED, E.ACTIVATED, E.NOT_NAMED, E.GIVEN_UP),
    ENDING: (E.STARTED, E.SILENT, E.REPLACED, E.NOT_NAMED, E.GIVEN_UP, E.DELETED),
    OVER: (),
}
"""Events that may come in each state beside the outcomes of instructions: a second request to rest may outlast the first."""

UNWANTED = (E.SILENT, E.REPLACED, E.NOT_NAMED, E.GIVEN_UP)


def events_after(row: Row) -> list[ArrivalEvent]:
    last = ArrivalInstruction(row.instructions[-1]) if row.instructions else None
    return [*(OUTCOMES[last] if last is not None else ()), *ANY_TIME[row.after]]


def test_every_outcome_has_its_row_and_every_row_is_reached() -> None:
    reached: set[Row] = set()
    open_ = [LIFECYCLE.on(COPYING, event, "x") for event in ANY_TIME[COPYING]]
    while open_:
        row = open_.pop()
        if row not in reached:
            reached.add(row)
            open_ += [LIFECYCLE.on(row.after, event, "x") for event in events_after(row)]
    assert reached == set(LIFECYCLE.transitions)


@pytest.mark.parametrize(
    "first, events, instructions, end",
    [
        (
            COPYING,
            [E.STARTED, E.HALTED, E.SETTLED, E.ACTIVATED, E.NAMED, E.ADOPTED, E.HOSTED],
            [I.READ_REGISTER, I.GO_LIVE, I.HOST],
            OVER,
        ),
        (READY, [E.ACTIVATED, E.NAMED_STOPPED, E.ADOPTED, E.HOSTED], [I.READ_REGISTER, I.RECOVER, I.HOST], OVER),
        (READY, [E.ACTIVATED, E.ACTIVATED, E.NAMED, E.ADOPTED], [I.READ_REGISTER, I.READ_REGISTER, I.GO_LIVE, I.HOST], LIVE),
        (LIVE, [E.ACTIVATED, E.NAMED_STOPPED, E.HOSTED], [I.READ_REGISTER, I.HOST], OVER),
        (COPYING, [E.STARTED, E.HALTED, E.NOT_SETTLED, E.SILENT, E.DELETED], [I.DELETE], OVER),
        (READY, [E.NOT_NAMED, E.GIVEN_UP, E.DELETED], [I.DELETE, I.DELETE], OVER),
    ],
    ids=["moved", "restarted", "not named at first", "not hosted at first", "silent", "not named"],
)
def test_events_choose_the_instructions_of_the_target(
    first: ArrivalState, events: list[ArrivalEvent], instructions: list[ArrivalInstruction], end: ArrivalState
) -> None:
    now, given = first, list[str]()
    for event in events:
        row = LIFECYCLE.on(now, event, "x")
        now, given = row.after, [*given, *row.instructions]
    assert (given, now) == (instructions, end)


def test_no_follower_goes_live_before_the_register_names_its_node() -> None:
    ends = set()
    for seed in range(500):
        rng, events = random.Random(seed), list[ArrivalEvent]()
        row = LIFECYCLE.on(COPYING, E.STARTED, "x")
        while row.after != OVER and len(events) < 60:
            before = row.after
            calm = [one for one in events_after(row) if one not in UNWANTED]
            events.append(rng.choice(calm if seed % 2 and calm else events_after(row)))
            row = LIFECYCLE.on(before, events[-1], "x")
            if row.instructions and row.instructions[-1] in (I.GO_LIVE, I.RECOVER):
                assert events[-1] in (E.NAMED, E.NAMED_STOPPED)
                assert E.SETTLED in events
            if row.after in (LIVE, READY):
                assert E.SETTLED in events
            assert I.HOST not in row.instructions or before == LIVE or events[-1] == E.ADOPTED
            assert (row.after in ENDS) == (I.DELETE in row.instructions or events[-1] in (E.HOSTED, E.DELETED, E.STARTED))
        ends.add(events[-1])
    assert {E.HOSTED, E.DELETED} <= ends


def test_only_the_register_or_the_host_ends_a_follower_that_may_be_the_host() -> None:
    ending = {(one.before, one.event) for one in LIFECYCLE.transitions if one.after == ENDING != one.before}
    assert {event for before, event in ending if before in (READY, LIVE)} == {E.NOT_NAMED, E.GIVEN_UP}
    assert {event for before, event in ending if before == SETTLING} == {E.REPLACED, E.GIVEN_UP}


def test_what_cannot_happen_to_a_follower_is_refused() -> None:
    rows = [(one.before, one.event) for one in LIFECYCLE.transitions]
    assert len(rows) == len(set(rows))
    for state, event in set(product(LIFECYCLE.states, ArrivalEvent)) - set(rows):
        with pytest.raises(BrokenInvariantError, match=f"the arrival x is {state}, where {event.name} must not happen"):
            LIFECYCLE.on(state, event, "x")

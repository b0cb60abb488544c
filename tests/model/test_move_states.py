"""The table of a move: what follows each event, that every move ends, and that what cannot happen is refused."""

from __future__ import annotations

import random
from itertools import product

import pytest

from sbon_protocol.api.states.lifecycle import Transition
from sbon_protocol.api.states.move_states import (
    COPYING,
    FOLLOW,
    GIVEN_UP,
    LIFECYCLE,
    MOVED,
    OVER,
    STOP,
    STOPPING,
    SWITCHING,
    MoveEvent,
    MoveInstruction,
    MoveState,
)
from sbon_protocol.errors import BrokenInvariantError

E, I = MoveEvent, MoveInstruction  # noqa: E741
OUTCOMES = {
    I.REGISTER: (E.REGISTERED,),
    I.ASK_TARGET: (E.ACCEPTED,),
    I.REST: (E.STOPPED,),
    I.PREPARE_TARGET: (E.PREPARED,),
    I.ASK_PROGRESS: (E.PART_COPIED, E.COPIED, E.STARTED),
    I.WAIT_FOR_COPY: (E.WAITED,),
    I.PURSUE: (E.BEHIND, E.LEVEL),
    I.WAIT_FOR_TARGET: (E.WAITED,),
    I.SETTLE_TARGET: (E.SETTLED,),
    I.COMMIT: (E.COMMITTED, E.SUPERSEDED, E.UNANSWERED),
    I.READ_REGISTER: (E.COMMITTED, E.SUPERSEDED, E.UNANSWERED),
    I.HAND_OVER: (E.HANDED_OVER,),
}
"""What may come of each instruction that gives an event, beside an error, a withdrawal, and the end of the query."""
BEGINNINGS: list[tuple[str, MoveState, MoveEvent]] = [
    (FOLLOW, COPYING, E.BEGUN),
    (STOP, STOPPING, E.BEGUN),
    (FOLLOW, SWITCHING, E.RESUMED),
]
COPIES = [E.PREPARED, E.PART_COPIED, E.WAITED, E.COPIED, E.WAITED, E.STARTED, E.WAITED]
FETCHES = [I.ASK_PROGRESS, I.WAIT_FOR_COPY, I.ASK_PROGRESS, I.WAIT_FOR_COPY, I.ASK_PROGRESS, I.FORGET_COPY, I.WAIT_FOR_COPY]
SWITCHES = [I.STORE, I.SETTLE_TARGET, I.COMMIT, I.ANNOUNCE, I.DEPART, I.HAND_OVER, I.LEAVE]
ENDS = [E.SETTLED, E.COMMITTED, E.HANDED_OVER]
GIVES_UP = [I.FORGET_COPY, I.THAW, I.ABANDON]
Row = Transition[MoveState]


def after(row: Row, last: MoveInstruction | None) -> list[MoveEvent]:
    """The events that may come after a row whose last instruction is ``last``."""
    outcomes = list(OUTCOMES.get(last, ())) if last is not None else []
    if row.after in OVER:
        return outcomes
    return [*outcomes, E.QUERY_ENDED, *((E.FAILED, E.CANCELLED) if row.after != SWITCHING else ())]


def driven(kind: str, step: MoveState, *events: MoveEvent) -> tuple[list[Row], list[MoveInstruction]]:
    """The rows and instructions of a move of that kind that begins at the step."""
    rows = []
    for event in events:
        rows.append(LIFECYCLE.on(step, event, "x", kind))
        step = rows[-1].after
    return rows, [MoveInstruction(one) for row in rows for one in row.instructions]


@pytest.mark.parametrize(
    "kind, first, events, instructions, end",
    [
        (
            FOLLOW,
            COPYING,
            [E.BEGUN, E.REGISTERED, *COPIES, E.BEHIND, E.WAITED, E.LEVEL, E.STOPPED, *ENDS],
            [
                *(I.REGISTER, I.PREPARE_TARGET, *FETCHES, I.PURSUE, I.WAIT_FOR_TARGET, I.PURSUE),
                *(I.HALT, I.REPEAT_LAST, I.REST, *SWITCHES),
            ],
            MOVED,
        ),
        (
            STOP,
            STOPPING,
            [E.BEGUN, E.REGISTERED, E.ACCEPTED, E.STOPPED, *COPIES, E.BEHIND, E.WAITED, E.LEVEL, *ENDS],
            [
                *(I.REGISTER, I.ASK_TARGET, I.HALT, I.REST, I.PREPARE_TARGET, *FETCHES),
                *(I.PURSUE, I.WAIT_FOR_TARGET, I.PURSUE, *SWITCHES),
            ],
            MOVED,
        ),
        (FOLLOW, SWITCHING, [E.RESUMED, E.HANDED_OVER], [I.DEPART, I.HAND_OVER, I.LEAVE], MOVED),
        (
            FOLLOW,
            SWITCHING,
            [E.UNANSWERED, E.UNANSWERED, E.SUPERSEDED],
            [I.READ_REGISTER, I.READ_REGISTER, I.THAW, I.ABANDON],
            GIVEN_UP,
        ),
        (FOLLOW, COPYING, [E.BEGUN, E.FAILED], [I.REGISTER, *GIVES_UP], GIVEN_UP),
        (STOP, STOPPING, [E.BEGUN, E.REGISTERED, E.CANCELLED], [I.REGISTER, I.ASK_TARGET, *GIVES_UP], GIVEN_UP),
        (FOLLOW, SWITCHING, [E.COMMITTED, E.QUERY_ENDED], [I.ANNOUNCE, I.DEPART, I.HAND_OVER], GIVEN_UP),
    ],
    ids=["follow", "stop", "resumed", "superseded", "failed", "cancelled", "query ended"],
)
def test_events_choose_the_instructions(
    kind: str, first: MoveState, events: list[MoveEvent], instructions: list[MoveInstruction], end: MoveState
) -> None:
    rows, given = driven(kind, first, *events)
    assert (given, rows[-1].after) == (instructions, end)


def test_every_outcome_has_its_row_and_every_row_is_reached() -> None:
    reached: set[Row] = set()
    open_ = [(kind, LIFECYCLE.on(step, event, "x", kind)) for kind, step, event in BEGINNINGS]
    seen = set(open_)
    while open_:
        kind, row = open_.pop()
        reached.add(row)
        last = MoveInstruction(row.instructions[-1]) if row.instructions else None
        assert (last in OUTCOMES) == (row.after not in OVER), row
        assert not [one for one in row.instructions[:-1] if one in OUTCOMES], "only the last one gives an event"
        following = {(kind, LIFECYCLE.on(row.after, event, "x", kind)) for event in after(row, last)} - seen
        seen |= following
        open_ += following
    assert reached == set(LIFECYCLE.transitions)


def test_what_cannot_happen_is_refused() -> None:
    listed = {(one.before, one.event, kind) for one in LIFECYCLE.transitions for kind in (FOLLOW, STOP) if one.kind in ("", kind)}
    refused = set(product(LIFECYCLE.states, MoveEvent, (FOLLOW, STOP))) - listed
    assert {(SWITCHING, E.FAILED, FOLLOW), (SWITCHING, E.CANCELLED, STOP), (MOVED, E.FAILED, FOLLOW)} <= refused
    for step, event, kind in refused:
        assert LIFECYCLE.chosen(step, event, kind) is None
        with pytest.raises(BrokenInvariantError, match=f"the move x is {step}, where {event.name} must not happen"):
            LIFECYCLE.on(step, event, "x", kind)


def test_each_step_and_event_have_one_row() -> None:
    for kind in (FOLLOW, STOP):
        keys = [(one.before, one.event) for one in LIFECYCLE.transitions if one.kind in ("", kind)]
        assert len(keys) == len(set(keys))


@pytest.mark.parametrize("kind, first, event", BEGINNINGS, ids=["follow", "stop", "resumed"])
def test_every_move_ends_and_leaves_one_host(kind: str, first: MoveState, event: MoveEvent) -> None:
    ends = set()
    for seed in range(500):
        rng, events, row = random.Random(seed), [event], LIFECYCLE.on(first, event, "x", kind)
        while row.after not in OVER:
            last = MoveInstruction(row.instructions[-1])
            is_calm = seed % 2 and rng.random() > 0.05
            events.append(rng.choice(OUTCOMES[last] if is_calm else after(row, last)))
            row = LIFECYCLE.on(row.after, events[-1], "x", kind)
            assert len(events) < 1000
        ends.add(row.after)
        _check(events, driven(kind, first, *events)[1], row.after)
    assert ends == {MOVED, GIVEN_UP}


def _check(events: list[MoveEvent], given: list[MoveInstruction], end: MoveState) -> None:
    """Check what holds for every move, whatever happens."""
    stops_here = I.DEPART in given
    if end == MOVED:
        assert stops_here
        assert given.index(I.HAND_OVER) < given.index(I.LEAVE)
    assert not (stops_here and I.THAW in given), "two hosts"
    if I.COMMIT in given:
        assert given.index(I.HALT) < given.index(I.REST) < given.index(I.STORE) < given.index(I.COMMIT)
        assert I.THAW not in given or given.index(I.THAW) > given.index(I.COMMIT)
    if I.PREPARE_TARGET in given:
        assert given.index(I.FORGET_COPY) > given.index(I.PREPARE_TARGET)
    if end == GIVEN_UP and events[-1] != E.QUERY_ENDED:
        assert given[-2:] == [I.THAW, I.ABANDON]

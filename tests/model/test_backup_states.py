"""The tables of a backup, at the host and at its keeper: every outcome has a row, and nobody goes on without the right to."""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import StrEnum
from itertools import product
from typing import Any

import pytest

from sbon_protocol.api.states import backup_states, kept_backup_states
from sbon_protocol.api.states.backup_states import (
    BEHIND,
    CAN_TAKE_OVER,
    COPYING,
    CURRENT,
    MISSING,
    BackupEvent,
    BackupInstruction,
)
from sbon_protocol.api.states.kept_backup_states import (
    ADOPTING,
    ENDED,
    ENDING,
    HOST_LOST,
    OF_OPERATOR,
    OF_SOURCE,
    STORING,
    YIELDED,
    KeptBackupEvent,
    KeptBackupInstruction,
)
from sbon_protocol.api.states.lifecycle import Lifecycle, Transition
from sbon_protocol.errors import BrokenInvariantError

E, I = BackupEvent, BackupInstruction  # noqa: E741
K, J = KeptBackupEvent, KeptBackupInstruction

OWNER, KEEPER = backup_states.LIFECYCLE, kept_backup_states.LIFECYCLE
OWNER_OUTCOMES: Mapping[StrEnum, tuple[StrEnum, ...]] = {
    I.READ_REGISTER: (E.NAMED, E.UNNAMED, E.NO_NODE, E.DISK_LOST),
    I.CHOOSE: (E.CHOSEN,),
    I.ASK: (E.ANSWERED,),
    I.SEND: (E.STORED,),
    I.NAME: (E.CONFIRMED,),
}
"""What may come of each of the host's instructions, beside a failure."""
FAILURES = (E.FAILED, E.LOST, E.FENCED)
BEGINNINGS = (E.DUE, E.UNHEARD)

NODE_KNOWN = {E.DUE, E.UNNAMED, E.LOST}
"""Events that need a node, which ``missing`` has not."""


def owner_events(row: Transition[Any]) -> list[StrEnum]:
    """The events that may come after a row of the host's table."""
    if not row.instructions or row.instructions[-1] in (I.FORGET, I.FENCE):
        return [one for one in BEGINNINGS if row.after != MISSING or one not in NODE_KNOWN]
    outcomes = [*OWNER_OUTCOMES[row.instructions[-1]], *FAILURES]
    known = row.after != MISSING
    return [one for one in outcomes if (known or one not in NODE_KNOWN) and (not known or one != E.NO_NODE)]


def test_every_outcome_of_the_host_has_its_row_and_every_row_is_reached() -> None:
    reached: set[Transition[Any]] = set()
    open_ = [OWNER.on(MISSING, E.UNHEARD, "x")]
    while open_:
        row = open_.pop()
        if row not in reached:
            reached.add(row)
            open_ += [OWNER.on(row.after, event, "x") for event in owner_events(row)]
    assert reached == set(OWNER.transitions)


def test_the_register_names_a_backup_only_after_it_has_all() -> None:
    for seed in range(300):
        rng, row, sent, events = random.Random(seed), OWNER.on(MISSING, E.UNHEARD, "x"), False, [E.UNHEARD]
        for _ in range(60):
            before, event = row.after, rng.choice(owner_events(row))
            row = OWNER.on(before, event, "x")
            events.append(event)
            sent = event == E.STORED or (sent and event not in (E.DUE, E.UNHEARD, E.CHOSEN, E.ANSWERED))
            assert I.NAME not in row.instructions or sent
            if row.after in CAN_TAKE_OVER and before not in CAN_TAKE_OVER:
                assert event in (E.CONFIRMED, E.NAMED), events
            if row.after == CURRENT:
                assert (before, event) in ((BEHIND, E.STORED), (COPYING, E.CONFIRMED))


@pytest.mark.parametrize(
    "events, instructions, state",
    [
        ([E.UNHEARD, E.NO_NODE, E.CHOSEN, E.STORED, E.CONFIRMED], [I.READ_REGISTER, I.CHOOSE, I.SEND, I.NAME], CURRENT),
        ([E.UNHEARD, E.NAMED, E.ANSWERED, E.STORED], [I.READ_REGISTER, I.ASK, I.SEND], CURRENT),
        (
            [E.UNHEARD, E.DISK_LOST, E.CHOSEN, E.FAILED, E.UNHEARD, E.UNNAMED, E.ANSWERED],
            [I.READ_REGISTER, I.FORGET, I.CHOOSE, I.SEND, I.READ_REGISTER, I.ASK, I.SEND],
            COPYING,
        ),
        ([E.UNHEARD, E.NAMED, E.LOST], [I.READ_REGISTER, I.ASK, I.FORGET], MISSING),
        ([E.UNHEARD, E.NAMED, E.FENCED], [I.READ_REGISTER, I.ASK, I.FENCE], BEHIND),
    ],
    ids=["first", "after a restart", "without its disk", "refused", "fenced"],
)
def test_events_choose_the_instructions_of_the_host(events: list[E], instructions: list[I], state: str) -> None:
    now, given = MISSING, list[StrEnum]()
    for event in events:
        row = OWNER.on(now, event, "x")
        now, given = row.after, [*given, *row.instructions]
    assert (given, now) == (instructions, state)


KEEPER_OUTCOMES: Mapping[StrEnum, tuple[StrEnum, ...]] = {J.CLAIM: (K.CLAIMED,), J.DELETE: (K.DELETED,)}
ANY_TIME = (K.ASKED, K.FED, K.PRESENT, K.SILENT, K.MISSED, K.OVERDUE, K.YIELDS, K.NAMED_HOST, K.NAMED_OTHER_HOST)
UNDER_LOCK = (K.SUCCEEDS, K.CLAIMED, K.NOT_NEEDED)


def keeper_events(row: Transition[Any]) -> list[StrEnum]:
    """The events that may come after a row of the keeper's table; an instruction may fail, and leave the state as it is."""
    if row.after == ENDED:
        return []
    outcomes = list(KEEPER_OUTCOMES.get(row.instructions[-1], ()) if row.instructions else ())
    never = {
        ENDING: {K.ASKED, K.FED, K.YIELDS, K.SUCCEEDS, K.CLAIMED},  # refused, or not tried any more
        YIELDED: {K.PRESENT, K.SILENT},  # its host counts as lost
    }.get(row.after, set())
    return [*outcomes, *(one for one in (*ANY_TIME, *UNDER_LOCK) if one not in never)]


@pytest.mark.parametrize("kind", [OF_OPERATOR, OF_SOURCE])
def test_every_outcome_of_the_keeper_has_its_row_and_every_row_is_reached(kind: str) -> None:
    reached: set[Transition[Any]] = set()
    open_ = [KEEPER.on(STORING, event, "x", kind) for event in (*ANY_TIME, *UNDER_LOCK)]
    while open_:
        row = open_.pop()
        if row not in reached:
            reached.add(row)
            open_ += [KEEPER.on(row.after, event, "x", kind) for event in keeper_events(row)]
    assert reached == {one for one in KEEPER.transitions if one.kind in ("", kind)}


@pytest.mark.parametrize("kind", [OF_OPERATOR, OF_SOURCE])
def test_the_keeper_goes_on_only_with_what_the_register_gives_it(kind: str) -> None:
    ends = set()
    for seed in range(300):
        rng, row, claimed, given = random.Random(seed), KEEPER.on(STORING, K.ASKED, "x", kind), False, list[StrEnum]()
        for _ in range(200):
            if row.after == ENDED:
                break
            event = rng.choice(keeper_events(row))
            row = KEEPER.on(row.after, event, "x", kind)
            claimed = claimed or event == K.CLAIMED
            given += row.instructions
            assert (row.after != ADOPTING and J.ADOPT not in row.instructions) or claimed
            if J.CLAIM in row.instructions:
                assert row.instructions == (J.SEAL, J.CLAIM)
                assert event == K.SUCCEEDS
            if J.RELEASE in row.instructions:
                assert event == K.NOT_NEEDED
        ends.add(row.after)
        assert row.after != ENDED or J.DELETE in given
    assert ENDED in ends


def test_a_host_that_sends_frames_again_takes_its_request_back() -> None:
    assert KEEPER.on(YIELDED, K.ASKED, "x").after == YIELDED
    assert KEEPER.on(YIELDED, K.FED, "x").after == STORING
    assert KEEPER.on(HOST_LOST, K.PRESENT, "x").after == STORING


@pytest.mark.parametrize("lifecycle, events", [(OWNER, BackupEvent), (KEEPER, KeptBackupEvent)], ids=["host", "keeper"])
def test_what_cannot_happen_to_a_backup_is_refused(lifecycle: Lifecycle[Any], events: type[StrEnum]) -> None:
    for kind in (OF_OPERATOR, OF_SOURCE):
        rows = [(one.before, one.event) for one in lifecycle.transitions if one.kind in ("", kind)]
        assert len(rows) == len(set(rows))
        refused = set(product(lifecycle.states, events)) - set(rows)
        assert refused
        for state, event in refused:
            with pytest.raises(BrokenInvariantError, match=f"x is {state}, where {event.name} must not happen"):
                lifecycle.on(state, event, "x", kind)

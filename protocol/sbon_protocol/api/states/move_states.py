"""A move of an operator to another node: its steps, its events, its origin's instructions, and the table of them all.

The origin drives the move. It has one instruction under way at a time, whose outcome is an event. Step and event choose a row of
:data:`LIFECYCLE`: the next step, and the next instructions. The last instruction of a row gives the next event, the others give
none. The instructions of a terminal step give no event: they end the move.

A move of the kind ``follow`` lets the operator run while its state is copied, until the target is level. One of the kind ``stop``
stops the operator first. From there on both are the same: both ends rest, and the register decides.

Until ``switching`` any failure gives the move up, and the operator goes on at its origin. Only the origin asks the register for
the change. So it may let the frozen operator go on (``THAW``) at any time before it has asked. After that it may do so only once
it has read that the change has not happened, or has made it impossible: ``switching`` has no row for an error or a cancellation.
"""

from enum import StrEnum
from typing import Final, Literal

from sbon_protocol.api.states.lifecycle import Lifecycle, Rows

MoveState = Literal["stopping", "copying", "starting", "following", "settling", "switching", "moved", "given-up"]

STOPPING: Final = "stopping"
COPYING: Final = "copying"
STARTING: Final = "starting"
FOLLOWING: Final = "following"
SETTLING: Final = "settling"
SWITCHING: Final = "switching"
MOVED: Final = "moved"
GIVEN_UP: Final = "given-up"

FOLLOW: Final = "follow"
STOP: Final = "stop"


class MoveEvent(StrEnum):
    """Events of a move."""

    BEGUN = "the host is asked to move the operator"
    RESUMED = "the host has restarted, and the register names the target"
    REGISTERED = "the register has the move"
    ACCEPTED = "the target has capacity for it, and its engine runs"
    STOPPED = "the last batch is visible"
    PREPARED = "the target has reserved capacity"
    PART_COPIED = "a part of the copy is missing"
    COPIED = "the whole copy is there"
    STARTED = "the follower runs"
    WAITED = "the pause is over"
    BEHIND = "the target is not level"
    LEVEL = "the target is level"
    SETTLED = "both have emitted the same"
    UNANSWERED = "it is unknown whether the register has changed"
    COMMITTED = "the register names the target"
    SUPERSEDED = "the register has not changed, and will not"
    HANDED_OVER = "the new host has answered"
    FAILED = "an error"
    CANCELLED = "a user or a drain has cancelled it"
    QUERY_ENDED = "the end of the query"


class MoveInstruction(StrEnum):
    """Steps that the origin carries out."""

    REGISTER = "enter the move in the operator's register"
    ASK_TARGET = "ask the target for capacity, and to start its engine"
    HALT = "plan no batch any more"
    REST = "wait until the last batch is visible"
    PREPARE_TARGET = "copy the checkpoint, and ask the target to fetch it"
    ASK_PROGRESS = "ask the target how far the copy is"
    WAIT_FOR_COPY = "pause for `migration.copy_poll_s`"
    FORGET_COPY = "delete the copy, and let the inputs go"
    PURSUE = "tell the target the position here, and ask whether it is level"
    WAIT_FOR_TARGET = "pause for `migration.follow_poll_s`"
    REPEAT_LAST = "let the target run the last batch as it is planned here"
    STORE = "store that the register may name the target from now on"
    SETTLE_TARGET = "wait until the target rests at the same position"
    COMMIT = "ask the register to name the target"
    READ_REGISTER = "pause, then end the move in the register, or read that it names the target"
    ANNOUNCE = "publish that the operator has moved"
    DEPART = "host the operator no more, but keep its stream"
    HAND_OVER = "send the stream until the new host has it"
    LEAVE = "delete the operator here"
    THAW = "plan batches again"
    ABANDON = "publish that the move is given up, and let all others forget it"


_BEFORE_COMMIT: Final[tuple[MoveState, ...]] = (STOPPING, COPYING, STARTING, FOLLOWING, SETTLING)


_E, _I = MoveEvent, MoveInstruction
_rows = Rows[MoveState]()

LIFECYCLE: Final = Lifecycle[MoveState](
    subject="move",
    initial=STOPPING,
    states={
        STOPPING: "The operator stops before its state is copied. A move that lets the target follow begins with `copying`.",
        COPYING: "The target fetches the state.",
        STARTING: "The target starts the operator from the copy.",
        FOLLOWING: "The target reads the same input, and catches up.",
        SETTLING: "The operator has stopped; the target runs its last batch, too.",
        SWITCHING: "The register names the new host, or is asked to; a move that goes on after a restart begins here.",
        MOVED: "The new host has the stream, and publishes.",
        GIVEN_UP: "The operator goes on where it was.",
    },
    terminal=frozenset({MOVED, GIVEN_UP}),
    transitions=(
        *_rows((STOPPING, COPYING), _E.BEGUN, None, _I.REGISTER),
        *_rows((STOPPING,), _E.REGISTERED, STOPPING, _I.ASK_TARGET),
        *_rows((STOPPING,), _E.ACCEPTED, STOPPING, _I.HALT, _I.REST),
        *_rows((STOPPING,), _E.STOPPED, COPYING, _I.PREPARE_TARGET),
        *_rows((COPYING,), _E.REGISTERED, COPYING, _I.PREPARE_TARGET),
        *_rows((COPYING,), _E.PREPARED, COPYING, _I.ASK_PROGRESS),
        *_rows((COPYING, STARTING), _E.PART_COPIED, COPYING, _I.WAIT_FOR_COPY),
        *_rows((COPYING, STARTING), _E.COPIED, STARTING, _I.WAIT_FOR_COPY),
        *_rows((COPYING, STARTING), _E.WAITED, None, _I.ASK_PROGRESS),
        *_rows((COPYING, STARTING), _E.STARTED, FOLLOWING, _I.FORGET_COPY, _I.WAIT_FOR_COPY),
        *_rows((FOLLOWING,), _E.WAITED, FOLLOWING, _I.PURSUE),
        *_rows((FOLLOWING,), _E.BEHIND, FOLLOWING, _I.WAIT_FOR_TARGET, kind=FOLLOW),
        *_rows((FOLLOWING,), _E.LEVEL, SETTLING, _I.HALT, _I.REPEAT_LAST, _I.REST, kind=FOLLOW),
        *_rows((SETTLING,), _E.STOPPED, SETTLING, _I.STORE, _I.SETTLE_TARGET, kind=FOLLOW),
        *_rows((FOLLOWING, SETTLING), _E.BEHIND, SETTLING, _I.WAIT_FOR_TARGET, kind=STOP),
        *_rows((SETTLING,), _E.WAITED, SETTLING, _I.PURSUE, kind=STOP),
        *_rows((FOLLOWING, SETTLING), _E.LEVEL, SETTLING, _I.STORE, _I.SETTLE_TARGET, kind=STOP),
        *_rows((SETTLING,), _E.SETTLED, SWITCHING, _I.COMMIT),
        *_rows((SWITCHING,), _E.UNANSWERED, SWITCHING, _I.READ_REGISTER),
        *_rows((SWITCHING,), _E.COMMITTED, SWITCHING, _I.ANNOUNCE, _I.DEPART, _I.HAND_OVER),
        *_rows((SWITCHING,), _E.RESUMED, SWITCHING, _I.DEPART, _I.HAND_OVER),
        *_rows((SWITCHING,), _E.HANDED_OVER, MOVED, _I.LEAVE),
        *_rows((SWITCHING,), _E.SUPERSEDED, GIVEN_UP, _I.THAW, _I.ABANDON),
        *_rows(_BEFORE_COMMIT, _E.FAILED, GIVEN_UP, _I.FORGET_COPY, _I.THAW, _I.ABANDON),
        *_rows(_BEFORE_COMMIT, _E.CANCELLED, GIVEN_UP, _I.FORGET_COPY, _I.THAW, _I.ABANDON),
        *_rows(_BEFORE_COMMIT, _E.QUERY_ENDED, GIVEN_UP, _I.FORGET_COPY),
        *_rows((SWITCHING,), _E.QUERY_ENDED, GIVEN_UP),
    ),
    derived={},
)

OVER: Final = LIFECYCLE.terminal
"""Steps after which nothing of a move is under way."""

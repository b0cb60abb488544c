"""Steps of a move of an operator to another node, as its origin reports them."""

from __future__ import annotations

from typing import Final, Literal

from sbon_protocol.api.states.lifecycle import Lifecycle, Transition

MoveState = Literal["stopping", "copying", "starting", "following", "settling", "switching", "moved", "given-up"]

STOPPING: Final = "stopping"
COPYING: Final = "copying"
STARTING: Final = "starting"
FOLLOWING: Final = "following"
SETTLING: Final = "settling"
SWITCHING: Final = "switching"
MOVED: Final = "moved"
GIVEN_UP: Final = "given-up"

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
        Transition(STOPPING, COPYING, "its last batch is visible"),
        Transition(COPYING, STARTING, "the whole copy is there"),
        Transition(COPYING, FOLLOWING, "the follower runs"),
        Transition(COPYING, SETTLING, "the target has the state of an operator that has stopped"),
        Transition(STARTING, COPYING, "a part of the copy is fetched again"),
        Transition(STARTING, FOLLOWING, "the follower runs"),
        Transition(STARTING, SETTLING, "the target has the state of an operator that has stopped"),
        Transition(FOLLOWING, SETTLING, "the target is level"),
        Transition(SETTLING, SWITCHING, "both have emitted the same"),
        Transition(SWITCHING, MOVED, "the new host has answered"),
        *(
            Transition(before, GIVEN_UP, "an error, or the end of the query")
            for before in (STOPPING, COPYING, STARTING, FOLLOWING, SETTLING)
        ),
        Transition(SWITCHING, GIVEN_UP, "the register has not changed, or the query is over"),
    ),
    derived={},
)

OVER: Final = LIFECYCLE.terminal
"""Steps after which nothing of a move is under way."""

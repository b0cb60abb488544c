"""States of an operator, as its engine reports them to its host."""

from typing import Final, Literal

from sbon_protocol.api.states.lifecycle import LOST, OVER, PLANNED, UNREACHABLE, Lifecycle, Transition

OperatorState = Literal["starting", "running", "stopped", "failed", "quarantined"]

STARTING: Final = "starting"
RUNNING: Final = "running"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
QUARANTINED: Final = "quarantined"

LIFECYCLE: Final = Lifecycle[OperatorState](
    subject="operator",
    initial=STARTING,
    states={
        STARTING: "It starts, or waits for its next start, its record or the engine.",
        RUNNING: "The engine runs it.",
        STOPPED: "It waits for a full or busy disk and is tried again; or its host has removed it.",
        FAILED: "Its own fault ended it, or it ended too often; its query fails.",
        QUARANTINED: "It has killed the engine too often, and is not started again, to protect the other operators.",
    },
    terminal=frozenset({FAILED, QUARANTINED}),
    transitions=(
        Transition(STARTING, RUNNING, "the engine has started it"),
        Transition(STARTING, STOPPED, "the disk is full or busy"),
        Transition(STARTING, FAILED, "it cannot be started"),
        Transition(STARTING, QUARANTINED, "the engine died of it once too often"),
        Transition(RUNNING, STARTING, "it ended, or the engine died or is replaced"),
        Transition(RUNNING, STOPPED, "the disk is full or busy"),
        Transition(RUNNING, FAILED, "its rows raise an error, or it ended too often"),
        Transition(RUNNING, QUARANTINED, "the engine died of it once too often"),
        Transition(STOPPED, STARTING, "the engine died meanwhile"),
        Transition(STOPPED, RUNNING, "another try has succeeded"),
        Transition(STOPPED, FAILED, "another try has failed for good"),
        Transition(STOPPED, QUARANTINED, "the engine died of it once too often"),
    ),
    derived={
        PLANNED: "It has not been started yet.",
        UNREACHABLE: "Its host does not answer.",
        LOST: "Its host does not know it, as after the loss of its data directory.",
        OVER: "Its query is over.",
    },
    removed=STOPPED,
)

SET_ASIDE: Final = LIFECYCLE.terminal
"""States of operators that are not started any more."""

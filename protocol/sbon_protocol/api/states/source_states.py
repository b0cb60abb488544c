"""States of a source, as its node's runner reports them; a reason may follow the state, after a colon."""

from typing import Final, Literal

from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE, Lifecycle, Transition

SourceState = Literal["idle", "running", "paused", "ended", "failed"]

IDLE: Final = "idle"
RUNNING: Final = "running"
PAUSED: Final = "paused"
ENDED: Final = "ended"
FAILED: Final = "failed"

LIFECYCLE: Final = Lifecycle[SourceState](
    subject="source",
    initial=IDLE,
    states={
        IDLE: "It waits for its first subscriber, or its node has just started.",
        RUNNING: "It is open, and reads rows as they come.",
        PAUSED: "It waits for its input, for space on the disk, or for subscribers that are behind; it continues by itself.",
        ENDED: "It is finite, and all its rows are stored.",
        FAILED: "It cannot continue: its options, its input or its stored position are wrong.",
    },
    terminal=frozenset({ENDED, FAILED}),
    transitions=(
        Transition(IDLE, RUNNING, "it is open"),
        Transition(IDLE, PAUSED, "its input is away"),
        Transition(IDLE, ENDED, "it had ended before its node restarted"),
        Transition(IDLE, FAILED, "it cannot be opened, for good"),
        Transition(RUNNING, PAUSED, "its input is away, the disk is full, or its subscribers are behind"),
        Transition(RUNNING, ENDED, "its last row is stored"),
        Transition(RUNNING, FAILED, "its input or its outbox fails for good"),
        Transition(PAUSED, RUNNING, "the cause has passed"),
        Transition(PAUSED, FAILED, "its input or its outbox fails for good"),
    ),
    derived={
        UNREACHABLE: "Its node does not answer.",
        LOST: "Its node does not know it, as after the loss of its data directory.",
    },
)

"""States of a sink that delivers by itself, as its runner reports them; a reason may follow the state, after a colon."""

from typing import Final, Literal

from sbon_protocol.api.states.lifecycle import LOST, OVER, Lifecycle, Transition

SinkState = Literal["running", "paused", "finished"]

RUNNING: Final = "running"
PAUSED: Final = "paused"
FINISHED: Final = "finished"

FAILED: Final = "failed"
"""Report of a sink's end to the query's leader, as ``FINISHED``; the sink itself is gone then."""

LIFECYCLE: Final = Lifecycle[SinkState](
    subject="sink",
    initial=RUNNING,
    states={
        RUNNING: "It delivers rows as they arrive.",
        PAUSED: "The receiver is away, or the disk is full; it takes no rows, and tries again.",
        FINISHED: "All rows are delivered, and no row follows.",
    },
    terminal=frozenset({FINISHED}),
    transitions=(
        Transition(RUNNING, PAUSED, "a delivery fails, and may succeed later"),
        Transition(RUNNING, FINISHED, "all its inputs have ended"),
        Transition(PAUSED, RUNNING, "the delivery has succeeded"),
    ),
    derived={
        LOST: "The consumer's node answers, and does not know the sink.",
        OVER: "Its query is over, and the sink had not finished.",
    },
)

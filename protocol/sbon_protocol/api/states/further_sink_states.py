"""States of a sink that is added to a query while that runs, as the query's record has them."""

from typing import Final, Literal

from sbon_protocol.api.states.lifecycle import LOST, OVER, UNREACHABLE, Lifecycle, Transition

FurtherSinkState = Literal["opening", "running", "finished", "failed", "removing"]

OPENING: Final = "opening"
RUNNING: Final = "running"
FINISHED: Final = "finished"
FAILED: Final = "failed"
REMOVING: Final = "removing"

READS: Final = frozenset({OPENING, RUNNING})
"""States in which a finite query waits for the sink."""

LIFECYCLE: Final = Lifecycle[FurtherSinkState](
    subject="further sink",
    initial=OPENING,
    states={
        OPENING: "Its node is asked to open it.",
        RUNNING: "It delivers rows, each from its own position.",
        FINISHED: "It has delivered all rows.",
        FAILED: "It has failed alone, for the reason that is shown; its rows are kept no more.",
        REMOVING: "A user has removed it, its follower has left, or it was refused; it goes from the record once it is ended.",
    },
    terminal=frozenset({REMOVING}),
    transitions=(
        Transition(OPENING, RUNNING, "its node has opened it"),
        Transition(OPENING, FINISHED, "its node has delivered all rows before the record knows that it is open"),
        Transition(OPENING, FAILED, "its node reports an error after it was opened"),
        Transition(OPENING, REMOVING, "its node refuses it, or the node that adds it is gone"),
        Transition(RUNNING, FINISHED, "all rows are delivered"),
        Transition(RUNNING, FAILED, "it fails for good, falls behind `streams.sink_quota_bytes`, or is lost"),
        Transition(RUNNING, REMOVING, "a user removes it, or its follower has left"),
        Transition(FINISHED, REMOVING, "a user removes it"),
        Transition(FAILED, REMOVING, "a user removes it, or its follower has left"),
    ),
    derived={
        LOST: "Its node answers, and does not know it.",
        UNREACHABLE: "Its node does not answer.",
        OVER: "Its query is over, and it had not finished.",
    },
)

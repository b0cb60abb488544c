"""States of a query, as its record has them."""

from typing import Final, Literal

from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE, Lifecycle, Transition

QueryState = Literal["placing", "running", "finished", "stopped", "failed", "unreachable", "lost"]

PLACING: Final = "placing"
RUNNING: Final = "running"
FINISHED: Final = "finished"
STOPPED: Final = "stopped"
FAILED: Final = "failed"

LIFECYCLE: Final = Lifecycle[QueryState](
    subject="query",
    initial=PLACING,
    states={
        PLACING: "Its submission is under way: hosts are chosen, capacity is reserved, components start.",
        RUNNING: "All its components run, or have finished; its submitter knows.",
        FINISHED: "All its sources have ended, and its sink has delivered every row.",
        STOPPED: "A user has stopped it.",
        FAILED: "A component has failed for good, or the submission was refused or interrupted.",
    },
    terminal=frozenset({FINISHED, STOPPED, FAILED}),
    transitions=(
        Transition(PLACING, RUNNING, "all components have started"),
        Transition(PLACING, FINISHED, "the sink has delivered every row before the submission was complete"),
        Transition(PLACING, STOPPED, "a user stops it"),
        Transition(PLACING, FAILED, "a component fails, the submission is refused, or its node restarts or is gone"),
        Transition(RUNNING, FINISHED, "the sink reports that it has finished"),
        Transition(RUNNING, STOPPED, "a user stops it"),
        Transition(RUNNING, FAILED, "a component reports that it has failed, or its node leaves the cluster"),
    ),
    derived={
        UNREACHABLE: "No majority of its acceptors answers, and none with its record.",
        LOST: "A majority of its acceptors answers, and none has its record.",
    },
)

LIVE: Final[frozenset[QueryState]] = frozenset({PLACING, RUNNING})
"""States of a query that is not over."""

"""States of the backup of a replicated operator, as its host knows it."""

from typing import Final, Literal

from sbon_protocol.api.states.lifecycle import Lifecycle, Transition

BackupState = Literal["missing", "copying", "current", "behind"]

MISSING: Final = "missing"
COPYING: Final = "copying"
CURRENT: Final = "current"
BEHIND: Final = "behind"

LIFECYCLE: Final = Lifecycle[BackupState](
    subject="backup",
    initial=MISSING,
    states={
        MISSING: "No node is the backup: none is chosen yet, or none can be. The operator is lost with its host.",
        COPYING: "A node takes its first, full copy. Until it is whole, the operator is lost with its host.",
        CURRENT: "The backup has each committed batch, and can go on in the host's place.",
        BEHIND: "The backup lacks a committed batch, which stays invisible until it has it. It can go on from the batch before.",
    },
    terminal=frozenset(),
    transitions=(
        Transition(MISSING, COPYING, "a backup is chosen"),
        Transition(COPYING, CURRENT, "the copy is whole, and the register names the backup"),
        Transition(COPYING, MISSING, "the copy is given up"),
        Transition(CURRENT, BEHIND, "the engine has committed a batch"),
        Transition(BEHIND, CURRENT, "the backup has stored it"),
        Transition(CURRENT, MISSING, "the backup is gone for good"),
        Transition(BEHIND, MISSING, "the backup is gone for good"),
        Transition(CURRENT, COPYING, "another backup is chosen"),
        Transition(BEHIND, COPYING, "another backup is chosen"),
    ),
    derived={},
)

CAN_TAKE_OVER: Final = frozenset({CURRENT, BEHIND})
"""States in which the backup has all that anybody has seen of the operator."""

"""The backup of a replicated operator or source: its states, its events, its host's instructions, and the table of them all.

The host has one instruction under way at a time, whose outcome is an event. State and event choose a row of :data:`LIFECYCLE`.
The last instruction of a row gives the next event, the others give none; without an instruction, or after one without an event,
the host waits until something is to be stored, or is to be tried again.

The register names a backup only once it has stored all that was shown. So whatever happens, one of the two nodes that the
register names has everything.
"""

from enum import StrEnum
from typing import Final, Literal

from sbon_protocol.api.states.lifecycle import Lifecycle, Rows

BackupState = Literal["missing", "copying", "current", "behind"]

MISSING: Final = "missing"
COPYING: Final = "copying"
CURRENT: Final = "current"
BEHIND: Final = "behind"


class BackupEvent(StrEnum):
    """Events of a backup, as its host sees them."""

    DUE = "something is to be stored"
    UNHEARD = "something is to be stored, and the backup has not answered yet, or not since it was out of reach"
    NAMED = "the register names the backup"
    UNNAMED = "the register does not name it yet, or names another node"
    NO_NODE = "no node is the backup"
    DISK_LOST = "the backup has come back without its disk"
    CHOSEN = "a node has agreed to be the backup"
    ANSWERED = "the backup says what it has"
    STORED = "the backup has all of it"
    CONFIRMED = "the register names the backup, which still has all"
    FAILED = "an error that may pass"
    LOST = "the backup refuses, has no space for it, or is gone for good"
    FENCED = "another node may be the host by now"


class BackupInstruction(StrEnum):
    """Steps that the host carries out."""

    READ_REGISTER = "read who is the host, and which node is its backup"
    CHOOSE = "ask one node after another, those of other zones and the nearest first"
    ASK = "ask the backup what it has"
    SEND = "send what it lacks"
    NAME = "let the register name the backup, then ask it again: until it is named, it may forget all"
    FORGET = "look for another backup, which needs all that is retained"
    FENCE = "show nothing more"


_E, _I = BackupEvent, BackupInstruction
_rows = Rows[BackupState]()

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
        *_rows((MISSING, COPYING, BEHIND), _E.UNHEARD, None, _I.READ_REGISTER),
        *_rows((CURRENT,), _E.UNHEARD, BEHIND, _I.READ_REGISTER),
        *_rows((MISSING,), _E.NO_NODE, MISSING, _I.CHOOSE),
        *_rows((MISSING, COPYING, BEHIND), _E.DISK_LOST, MISSING, _I.FORGET, _I.CHOOSE),
        *_rows((MISSING,), _E.CHOSEN, COPYING, _I.SEND),
        *_rows((MISSING, COPYING, BEHIND), _E.NAMED, BEHIND, _I.ASK),
        *_rows((COPYING, BEHIND), _E.UNNAMED, COPYING, _I.ASK),
        *_rows((COPYING, BEHIND), _E.ANSWERED, None, _I.SEND),
        *_rows((COPYING,), _E.DUE, COPYING, _I.SEND),
        *_rows((CURRENT, BEHIND), _E.DUE, BEHIND, _I.SEND),
        *_rows((COPYING,), _E.STORED, COPYING, _I.NAME),
        *_rows((BEHIND,), _E.STORED, CURRENT),
        *_rows((COPYING,), _E.CONFIRMED, CURRENT),
        *_rows((MISSING, COPYING, BEHIND), _E.FAILED, None),
        *_rows((COPYING, BEHIND), _E.LOST, MISSING, _I.FORGET),
        *_rows((MISSING, COPYING, BEHIND), _E.FENCED, None, _I.FENCE),
    ),
    derived={},
)

CAN_TAKE_OVER: Final = frozenset({CURRENT, BEHIND})
"""States in which the register names the backup, and it has all that anybody has seen of the operator."""

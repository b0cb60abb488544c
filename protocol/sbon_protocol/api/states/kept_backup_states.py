"""The backup of a replicated operator or source at its keeper, the node that stores it: states, events, instructions, table.

State and event choose a row of :data:`LIFECYCLE`. The last instruction of a row may give the next event. The keeper goes on with
the operator or source (*adopts* it) only once the register names it as the host. Before it claims that, it refuses all that the
former host may still send.
"""

from enum import StrEnum
from typing import Final, Literal

from sbon_protocol.api.states.lifecycle import Lifecycle, Rows

KeptBackupState = Literal["storing", "host-lost", "yielded", "adopting", "ending", "ended"]

STORING: Final = "storing"
HOST_LOST: Final = "host-lost"
YIELDED: Final = "yielded"
ADOPTING: Final = "adopting"
ENDING: Final = "ending"
ENDED: Final = "ended"

OF_OPERATOR: Final = "operator"
OF_SOURCE: Final = "source"


class KeptBackupEvent(StrEnum):
    """Events of a backup, as its keeper sees them."""

    ASKED = "its host asks what is stored"
    FED = "its host sends frames"
    PRESENT = "its host is there"
    SILENT = "its host is there, but has sent nothing for `backups.check_s`"
    MISSED = "its host is dead, or has come back without its disk"
    OVERDUE = "its host has been lost for `backups.recover_after_s`"
    YIELDS = "its host asks this node to go on"
    NAMED_HOST = "a look into the register finds this node as the host"
    NAMED_OTHER_HOST = "a look into the register finds another host, and this node as its backup"
    SUCCEEDS = "the register lets this node follow its host"
    CLAIMED = "the register names this node as the host"
    NOT_NEEDED = "the register names other nodes, or the query is over, or the source is detached"
    DELETED = "nothing of it is stored any more"


class KeptBackupInstruction(StrEnum):
    """Steps that the keeper carries out."""

    LOOK = "read the register, beside all else"
    NOTE_HOST = "take what the new host sends"
    END_COPY = "end a copy from its host that is under way"
    RECOVER = "claim it, beside all else, again and again until that is decided"
    CLAIM_NOW = "claim it once, before the host is answered"
    SEAL = "refuse all further requests of its host; fail if frames are missing"
    CLAIM = "ask the register to name this node as the host"
    ADOPT = "go on with it from what is stored"
    RELEASE = "give back what it holds"
    DELETE = "delete it"


_E, _I = KeptBackupEvent, KeptBackupInstruction
_rows = Rows[KeptBackupState]()
_KEEPS: Final[tuple[KeptBackupState, ...]] = (STORING, HOST_LOST, YIELDED)

LIFECYCLE: Final = Lifecycle[KeptBackupState](
    subject="kept backup",
    initial=STORING,
    states={
        STORING: "It stores what its host is about to show.",
        HOST_LOST: "Its host is lost. It waits for it, and claims the operator or source after a while.",
        YIELDED: "Its host cannot go on, and has asked this node to.",
        ADOPTING: "The register names this node as the host, and it goes on here; repeated after a failure or a restart.",
        ENDING: "It is being deleted.",
        ENDED: "It is deleted.",
    },
    terminal=frozenset({ENDED}),
    transitions=(
        *_rows((STORING, HOST_LOST), _E.ASKED, STORING),
        *_rows((YIELDED, ADOPTING), _E.ASKED, None),
        *_rows(_KEEPS, _E.FED, STORING),
        *_rows((ADOPTING,), _E.FED, ADOPTING),
        *_rows((ADOPTING,), _E.YIELDS, ADOPTING),
        *_rows((ENDING,), _E.NAMED_OTHER_HOST, ENDING),
        *_rows((STORING, HOST_LOST), _E.PRESENT, STORING),
        *_rows((STORING, HOST_LOST), _E.SILENT, STORING, _I.LOOK),
        *_rows((STORING, HOST_LOST), _E.MISSED, HOST_LOST),
        *_rows((STORING, HOST_LOST), _E.OVERDUE, HOST_LOST, _I.END_COPY, _I.RECOVER),
        *_rows((YIELDED, ADOPTING), _E.OVERDUE, None, _I.END_COPY, _I.RECOVER),
        *_rows((YIELDED, ADOPTING, ENDING), _E.MISSED, None),
        *_rows((ADOPTING, ENDING), _E.PRESENT, None),
        *_rows((ADOPTING, ENDING), _E.SILENT, None, _I.LOOK),
        *_rows((ENDING,), _E.OVERDUE, ENDING, _I.LOOK),
        *_rows(_KEEPS, _E.YIELDS, YIELDED, _I.END_COPY, _I.RECOVER, kind=OF_OPERATOR),
        *_rows(_KEEPS, _E.YIELDS, YIELDED, _I.CLAIM_NOW, kind=OF_SOURCE),
        *_rows((*_KEEPS, ADOPTING, ENDING), _E.NAMED_HOST, None, _I.RECOVER),
        *_rows((*_KEEPS, ADOPTING), _E.NAMED_OTHER_HOST, None, _I.NOTE_HOST),
        *_rows((STORING, HOST_LOST), _E.SUCCEEDS, HOST_LOST, _I.SEAL, _I.CLAIM),
        *_rows((YIELDED, ADOPTING), _E.SUCCEEDS, None, _I.SEAL, _I.CLAIM),
        *_rows((*_KEEPS, ADOPTING), _E.CLAIMED, ADOPTING, _I.ADOPT, _I.DELETE),
        *_rows((*_KEEPS, ADOPTING, ENDING), _E.NOT_NEEDED, ENDING, _I.RELEASE, _I.DELETE),
        *_rows((ADOPTING, ENDING), _E.DELETED, ENDED),
    ),
    derived={},
)

KEEPS: Final = frozenset(_KEEPS)
"""States in which its host is another node."""

"""An operator's follower at the target of its move: its states, its events, the target's instructions, and the table of them all.

State and event choose a row of :data:`LIFECYCLE`. The last instruction of a row may give the next event. Until it is ``ready``
its host may give the follower up, and so may this node, for example once its host is silent. From ``ready`` on only the register
decides: it may name this node although nobody has said so yet. The follower publishes only once the register names this node.
"""

from enum import StrEnum
from typing import Final, Literal

from sbon_protocol.api.states.lifecycle import Lifecycle, Rows

ArrivalState = Literal["copying", "following", "settling", "ready", "live", "ending", "over"]

COPYING: Final = "copying"
FOLLOWING: Final = "following"
SETTLING: Final = "settling"
READY: Final = "ready"
LIVE: Final = "live"
ENDING: Final = "ending"
OVER: Final = "over"


class ArrivalEvent(StrEnum):
    """Events of a follower, as its node sees them."""

    STARTED = "it reads its inputs"
    HALTED = "its host rests, and asks it to rest at the same position"
    SETTLED = "both have emitted the same, and that is stored"
    NOT_SETTLED = "an error while it comes to rest"
    ACTIVATED = "its host has sent the whole stream"
    NAMED = "the register names this node"
    NAMED_STOPPED = "the register names this node, where it does not run: it has failed, or this node has restarted"
    ADOPTED = "the stream is this node's"
    HOSTED = "this node hosts the operator"
    SILENT = "its host has not called for `migration.silence_s`, or this node has restarted"
    REPLACED = "its host begins another move to this node"
    NOT_NAMED = "the register names another host, and no such move, or the query is over"
    GIVEN_UP = "its host has given the move up, or the query is over"
    DELETED = "nothing of it is here any more"


class ArrivalInstruction(StrEnum):
    """Steps that the target carries out."""

    READ_REGISTER = "read whether the register names this node; fail if not"
    GO_LIVE = "adopt the stream, and publish from where it rests"
    RECOVER = "stop what runs of it, and adopt the stream as of its checkpoint"
    HOST = "host the operator, and start it unless it runs"
    DELETE = "delete it with all that it has here, however long that takes"


_E, _I = ArrivalEvent, ArrivalInstruction
_rows = Rows[ArrivalState]()
_UNREADY: Final[tuple[ArrivalState, ...]] = (COPYING, FOLLOWING, SETTLING)
_MAY_HOST: Final[tuple[ArrivalState, ...]] = (READY, LIVE)

LIFECYCLE: Final = Lifecycle[ArrivalState](
    subject="arrival",
    initial=COPYING,
    states={
        COPYING: "It fetches the state, and starts from it.",
        FOLLOWING: "It reads the same input as its host, and catches up.",
        SETTLING: "It comes to rest where its host does. That takes its time: its host does not count as silent.",
        READY: "It may be the next host, which only the register decides; after a restart its checkpoint may.",
        LIVE: "The register names this node, which has the stream.",
        ENDING: "It is being deleted.",
        OVER: "It is deleted, or is the operator, which this node hosts.",
    },
    terminal=frozenset({OVER}),
    transitions=(
        *_rows((COPYING,), _E.STARTED, FOLLOWING),
        *_rows((ENDING,), _E.STARTED, ENDING),
        *_rows((FOLLOWING, SETTLING), _E.HALTED, SETTLING),
        *_rows(_MAY_HOST, _E.HALTED, None),
        *_rows((FOLLOWING, SETTLING), _E.SETTLED, READY),
        *_rows(_MAY_HOST, _E.SETTLED, None),
        *_rows((SETTLING,), _E.NOT_SETTLED, FOLLOWING),
        *_rows(_MAY_HOST, _E.ACTIVATED, None, _I.READ_REGISTER),
        *_rows((READY,), _E.NAMED, READY, _I.GO_LIVE),
        *_rows((READY,), _E.NAMED_STOPPED, READY, _I.RECOVER),
        *_rows((READY,), _E.ADOPTED, LIVE, _I.HOST),
        *_rows((LIVE,), _E.NAMED, LIVE, _I.HOST),
        *_rows((LIVE,), _E.NAMED_STOPPED, LIVE, _I.HOST),
        *_rows((LIVE,), _E.HOSTED, OVER),
        *_rows((COPYING, FOLLOWING, ENDING), _E.SILENT, ENDING, _I.DELETE),
        *_rows((*_UNREADY, ENDING), _E.REPLACED, ENDING, _I.DELETE),
        *_rows((*_MAY_HOST, ENDING), _E.NOT_NAMED, ENDING, _I.DELETE),
        *_rows((*_UNREADY, *_MAY_HOST, ENDING), _E.GIVEN_UP, ENDING, _I.DELETE),
        *_rows((ENDING,), _E.DELETED, OVER),
    ),
    derived={},
)

ENDS: Final = frozenset({ENDING, OVER})
"""States in which it takes no call any more."""

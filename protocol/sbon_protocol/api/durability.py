"""Durability of a query: which losses its operators survive, their backups, and what the loss of a node would cost it."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from sbon_protocol.api.bounded import MAX_REASON, Counted
from sbon_protocol.api.shown import Shown
from sbon_protocol.api.states.backup_states import BackupState

Durability = Literal["local", "replicated", "hot"]
"""Where an operator's state and output are kept: at its host alone, or also at a backup node.

A local operator survives the death of its processes, and waits for its host while this is away. A replicated operator also
survives the loss of its host. A hot one is replicated, and runs at its backup, too, so that rows come again sooner.
"""

SourceDurability = Literal["local", "replicated"]
"""Where the rows of a source are kept."""

LOCAL: Final = "local"
REPLICATED: Final = "replicated"
HOT: Final = "hot"

STRENGTH: Final[dict[Durability, int]] = {LOCAL: 0, REPLICATED: 1, HOT: 2}
"""Order of durabilities: a greater one survives all that a smaller one does."""

BY_FOLLOWER: Final = "by its follower"
"""How a hot operator is taken over, in :attr:`BackupInfo.recovered`; otherwise from its stored checkpoint."""

Part = Literal["operator", "source", "sink", "record"]
OPERATOR: Final = "operator"
SOURCE: Final = "source"
SINK: Final = "sink"
RECORD: Final = "record"


class BackupInfo(Shown, frozen=True, kw_only=True):
    """The backup of a replicated operator, as its host knows it.

    ``batch`` is the newest committed batch that ``node`` has, ``age_s`` the time since it has it; None before the first. A
    backup that is ``current`` may be old: a quiet operator commits no batches.
    """

    state: BackupState
    node: Annotated[str, Meta(max_length=63)] = ""
    """Empty if it is ``missing``."""
    batch: Counted | None = None
    age_s: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    reason: Annotated[str, Meta(max_length=MAX_REASON)] = ""
    """Why it is not current."""
    follows: bool | None = None
    """Whether a follower runs there, which goes on at once if the host is lost; None for an operator that is not hot."""
    follows_not: Annotated[str, Meta(max_length=MAX_REASON)] = ""
    """Why none follows."""
    recovered: Annotated[str, Meta(max_length=MAX_REASON)] = ""
    """How this host took the operator over as its backup, if it has done so since it started."""


class Loss(Shown, frozen=True, kw_only=True):
    """A part of a query that is lost with the disk of ``node``, or has been ``lost`` already."""

    node: str
    part: Part
    name: str
    """Id of the operator, stream and name of the source, kind of the sink; empty for the record."""
    why: str
    """Why no other node can go on with it."""
    lost: bool = False


class Survival(Shown, frozen=True, kw_only=True):
    """Whether a running query survives the loss of any one node with its disk, and what it loses if it does not.

    While a node of ``losses`` is only away, the query waits for it and loses nothing. ``text`` says all that in a sentence.
    """

    any_node: bool
    losses: tuple[Loss, ...] = ()
    text: str = ""

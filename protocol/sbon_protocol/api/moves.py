"""Moves of operators to other nodes, as users see them."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sbon_protocol.api.bounded import Counted
from sbon_protocol.api.shown import Shown


class MoveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Order to move an operator of a query, by its id or the part after the query's, to the node ``to``.

    With ``follow`` the operator goes on until ``to`` is level with it; with ``stop`` it stops while its state is copied.
    """

    operator: Annotated[str, Meta(min_length=1, max_length=512)]
    to: Annotated[
        str,
        Meta(
            pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$",
            description="lower case letters, digits, '.', '_' and '-' are allowed, at most 63, a letter or digit first and last",
        ),
    ]
    how: Literal["follow", "stop"] = "follow"


class MoveProgress(Shown, frozen=True, kw_only=True):
    """``copied_bytes`` of ``total_bytes`` of state are copied; the follower has still to read ``frames_behind`` frames of input.

    ``total_bytes`` is 0 until the list of files has arrived.
    """

    copied_bytes: Counted = 0
    total_bytes: Counted = 0
    frames_behind: Counted = 0


class Moving(Shown, frozen=True, kw_only=True, tag="progress", tag_field="event"):
    """Step of a move: ``stopping``, ``copying``, ``starting``, ``following``, ``settling``, ``switching``; and how far it is."""

    step: str
    progress: MoveProgress = MoveProgress()


class DrainStep(Shown, frozen=True, kw_only=True, tag="progress", tag_field="event"):
    """Step of an operator that leaves a drained node.

    ``planned`` (of a dry run), ``waiting``, a step of its move to ``target`` as of :class:`Moving`, ``moved`` or ``stays``.
    """

    query: str
    operator: str
    step: str
    target: str = ""
    progress: MoveProgress = MoveProgress()
    reason: str = ""
    """Why it waits or stays."""


class NodeDrained(Shown, frozen=True, kw_only=True, tag="drained", tag_field="event"):
    """End of a drain: the node ``has_left``, or stays drained with what could not move. Nothing more follows."""

    node: str
    has_left: bool
    moved: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    """A line for each part that stays, with the reason."""


class MoveCancelled(Shown, frozen=True, kw_only=True):
    """The move is given up: the operator goes on at ``node``."""

    query: str
    operator: str
    node: str


class Moved(Shown, frozen=True, kw_only=True, tag="moved", tag_field="event"):
    """The operator runs at ``node`` now; nothing more follows.

    For ``pause_ms`` it has read no rows; None if its old host, which knows, was restarted meanwhile.
    """

    query: str
    operator: str
    origin: str
    node: str
    copied_bytes: Counted = 0
    pause_ms: Counted | None = None

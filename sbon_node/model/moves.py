"""Moves of operators to other nodes, as users see them."""

from __future__ import annotations

import msgspec

from sbon_node.model.bounded import Counted


class MoveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Order to move an operator of a query, by its id or the part after the query's, to the node ``to``."""

    operator: str
    to: str


class MoveProgress(msgspec.Struct, frozen=True, kw_only=True, tag="progress", tag_field="event"):
    """Step of a move: ``copying``, ``following``, ``settling`` or ``switching``, and the bytes of state copied so far."""

    step: str
    copied_bytes: Counted = 0
    total_bytes: Counted = 0


class Moved(msgspec.Struct, frozen=True, kw_only=True, tag="moved", tag_field="event"):
    """The operator runs at ``node`` now; nothing more follows. For ``pause_ms`` it has read no rows."""

    query: str
    operator: str
    origin: str
    node: str
    copied_bytes: Counted = 0
    pause_ms: Counted = 0

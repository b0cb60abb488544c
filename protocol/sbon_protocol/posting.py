"""The request by which a node passes on rows that a client has posted to it (see SPEC.md, posted rows)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sbon_protocol.base import Line
from sbon_protocol.messages import Call, Message

MAX_POST_HOPS = 2
"""Times that a post is passed on: to the node of its source, and to where that source has gone meanwhile."""


class PostRows(Call, frozen=True):
    """Pass on a post for a source of the receiver; ``hops`` counts how often it has been passed on, this time included."""

    stream: Line
    source: Line
    media_type: Line
    body: bytes
    key: Line = ""
    hops: Annotated[int, Meta(ge=1, le=MAX_POST_HOPS)] = 1


class RowsPosted(Message, frozen=True):
    """The receiver's answer to the post, once its rows are durable: a record ``Pushed`` as in docs/api.md."""

    answer: Any

"""Requests for the rows of a query, by a node whose user follows it (see SPEC.md, rows of queries)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from sbon_protocol.messages import Call, Count, Line, Message, Milliseconds, Quantity


class FollowRows(Call, frozen=True):
    """Request rows of a query from its consumer, for a follower at the caller.

    ``follower`` names one following, ``after`` the frames that it has. ``take`` waits up to ``wait_s`` seconds for frames; with
    ``hold`` the follower only keeps its turn, with ``end`` it gives it up.
    """

    query: Line
    follower: Line
    after: Annotated[dict[Line, Count], Meta(max_length=4096)]
    purpose: Literal["take", "hold", "end"] = "take"
    wait_s: Quantity = 0.0


class FollowedFrame(Message, frozen=True):
    """A frame for a follower; fields as in :class:`~sbon_protocol.messages.Data`."""

    stream: Line
    number: Count
    watermark_ms: Milliseconds
    born_ms: Milliseconds
    payload: bytes


class FollowedRows(Message, frozen=True):
    """The next frames, in order; ``query`` is the query's identifier, and ``end`` its end once no frame is left."""

    query: Line
    frames: Annotated[tuple[FollowedFrame, ...], Meta(max_length=4096)] = ()
    end: Any = None


class AcknowledgeRows(Call, frozen=True):
    """Report that a follower has durably taken all frames up to these numbers, by stream."""

    query: Line
    numbers: Annotated[dict[Line, Count], Meta(max_length=4096)]
